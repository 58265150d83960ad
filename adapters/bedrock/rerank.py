"""Ranks towards Bedrock: POST /model/{model}/invoke for the models that rank (Amazon Rerank, Cohere Rerank).

Source: Cohere's reference of its rerank API, whose words Amazon's model takes as well, and AWS's pages on both
(2026-11). Bedrock's own Rerank operation is on another host, which takes no API key.
"""

from collections.abc import Mapping
from typing import Any

import orjson
from msgspec import Struct
from msgspec.json import Decoder

from adapters.bedrock.invocation import told_usage
from adapters.canonical.rerank import RerankRequest, RerankResult, RerankScore, ranked
from adapters.raw_json import add_missing
from adapters.upstream_json import read_body

__all__ = ["is_of_cohere", "parse_rerank", "ranks", "render_rerank"]

_COHERE = "cohere.rerank-"
_RANKS = (_COHERE, "amazon.rerank-")
_VERSION = 2


class _Row(Struct):
    index: int
    relevance_score: float


class _Body(Struct):
    results: list[_Row]


_decode = Decoder(_Body, strict=False).decode


def ranks(model: str) -> bool:
    """Whether a model ranks, by its id, profile or ARN."""
    return any(word in model for word in _RANKS)


def is_of_cohere(model: str) -> bool:
    """Whether it takes the other fields of Cohere's API too."""
    return _COHERE in model


def render_rerank(request: RerankRequest) -> bytes:
    """The body. No more results are asked for than there are documents."""
    most = len(request.documents)
    body: dict[str, Any] = {
        "query": request.query,
        "documents": request.documents,
        "top_n": min(request.top_n or most, most),
    }
    if is_of_cohere(request.model):
        body["api_version"] = _VERSION
    add_missing(body, request.extras)
    return orjson.dumps(body)


def parse_rerank(request: RerankRequest, body: bytes, headers: Mapping[str, str]) -> RerankResult:
    """Raises BadUpstreamResponse for scores of documents that there are not, or too few."""
    found = read_body(_decode, body, "scores")
    scores = ranked(request, [RerankScore(row.index, row.relevance_score) for row in found.results])
    return RerankResult(scores=scores, usage=told_usage(headers))
