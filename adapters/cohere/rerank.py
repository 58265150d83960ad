"""Ranks towards Cohere: POST /v2/rerank."""

from typing import Any

import orjson
from msgspec import Struct
from msgspec.json import Decoder

from adapters.canonical.rerank import RerankRequest, RerankResult, RerankScore, ranked
from adapters.canonical.usage import Usage
from adapters.raw_json import add_missing
from adapters.upstream_json import read_body

__all__ = ["RERANK_PATH", "parse_rerank", "render_rerank"]

RERANK_PATH = "/rerank"


class _Row(Struct):
    index: int
    relevance_score: float


class _Tokens(Struct):
    input_tokens: float | None = None


class _Meta(Struct):
    tokens: _Tokens | None = None
    billed_units: _Tokens | None = None


class _Body(Struct):
    results: list[_Row]
    meta: _Meta | None = None


_decode = Decoder(_Body, strict=False).decode


def render_rerank(request: RerankRequest) -> bytes:
    """The body. `extras` are those of a client of this very API, or of the ones that copy it."""
    body: dict[str, Any] = {"model": request.model, "query": request.query, "documents": request.documents}
    if request.top_n is not None:
        body["top_n"] = request.top_n
    add_missing(body, request.extras)
    return orjson.dumps(body)


def parse_rerank(request: RerankRequest, body: bytes) -> RerankResult:
    """Raises BadUpstreamResponse for scores of documents that there are not."""
    found = read_body(_decode, body, "scores")
    scores = ranked(request, [RerankScore(row.index, row.relevance_score) for row in found.results])
    meta = found.meta or _Meta()
    counts = [each.input_tokens for each in (meta.tokens, meta.billed_units) if each is not None]
    tokens = next((int(count) for count in counts if count is not None), None)
    return RerankResult(scores=scores, usage=None if tokens is None else Usage(prompt_tokens=tokens))
