"""Rerank towards a provider: one shape of request by two spellings, and every shape of answer that is out there."""

from typing import Any

import orjson
from msgspec import Struct
from msgspec.json import Decoder

from adapters.canonical.errors import BadUpstreamResponse
from adapters.canonical.rerank import RerankRequest, RerankResult, RerankScore, ranked
from adapters.canonical.usage import Usage
from adapters.openai.errors import error_from_object
from adapters.raw_json import add_missing
from adapters.upstream_json import read_body

__all__ = ["RERANK_WORDS", "RerankWords", "TEI_RERANK_WORDS", "parse_rerank", "render_rerank"]


class RerankWords(Struct, frozen=True):
    """How a provider spells the fields. `top_n` None: it always gives all scores."""

    documents: str = "documents"
    top_n: str | None = "top_n"


RERANK_WORDS = RerankWords()
"""Of Cohere, Jina, vLLM, SGLang, llama.cpp, Together and Fireworks."""
TEI_RERANK_WORDS = RerankWords("texts", None)


class _Row(Struct):
    index: int
    relevance_score: float | None = None  # Cohere and nearly everybody
    score: float | None = None  # TEI


class _Tokens(Struct):
    prompt_tokens: int | None = None
    total_tokens: int | None = None
    input_tokens: int | None = None


class _Meta(Struct):
    tokens: _Tokens | None = None


class _Body(Struct):
    results: list[_Row] | None = None
    data: list[_Row] | None = None  # Fireworks
    usage: _Tokens | None = None
    meta: _Meta | None = None  # Cohere
    error: Any = None


_decode = Decoder(_Body | list[_Row], strict=False).decode


def render_rerank(request: RerankRequest, words: RerankWords) -> bytes:
    body: dict[str, Any] = {
        "model": request.model,
        "query": request.query,
        words.documents: request.documents,
    }
    if request.top_n is not None and words.top_n is not None:
        body[words.top_n] = request.top_n
    for name in ("truncate_prompt_tokens", "user"):
        value = getattr(request, name)
        if value is not None:
            body[name] = value
    add_missing(body, request.extras)
    return orjson.dumps(body)


def parse_rerank(request: RerankRequest, body: bytes) -> RerankResult:
    """Raises GatewayError for an error object, or for scores of documents that there are not."""
    found = read_body(_decode, body, "scores")
    if isinstance(found, list):
        found = _Body(results=found)
    if found.error is not None:
        raise error_from_object(found.error)
    rows = found.results if found.results is not None else found.data
    if rows is None:
        raise BadUpstreamResponse("the upstream sent no scores")
    return RerankResult(scores=ranked(request, [_score(row) for row in rows]), usage=_usage(found))


def _score(row: _Row) -> RerankScore:
    score = row.relevance_score if row.relevance_score is not None else row.score
    if score is None:
        raise BadUpstreamResponse(f"the upstream sent no score of document {row.index}")
    return RerankScore(row.index, score)


def _usage(body: _Body) -> Usage | None:
    tokens = body.usage or (body.meta.tokens if body.meta is not None else None)
    if tokens is None:
        return None
    counts = (tokens.prompt_tokens, tokens.input_tokens, tokens.total_tokens)
    return Usage(prompt_tokens=next((count for count in counts if count is not None), None))
