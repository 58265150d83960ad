"""Rerank and score towards clients. Cohere, Jina and vLLM differ in what stands around the scores only."""

from typing import Annotated, Any

import orjson
from msgspec import Meta, Struct
from msgspec.json import Decoder

from adapters.canonical.errors import InvalidRequest
from adapters.canonical.rerank import RerankRequest, RerankResult, ScoreRequest, ScoreResult
from adapters.field_types import BOOL, OPEN_COUNT, POSITIVE, SHORT_TEXT, TEXT
from adapters.front import AnswerHead
from adapters.json_fields import JsonObject, parse_object
from adapters.openai.embeddings.front import prompt_usage
from adapters.openai.request_fields import take_model

__all__ = ["RERANK", "SCORE", "CohereRerankFront", "RerankFront", "ScoreFront"]

RERANK = "openai.rerank"
SCORE = "openai.score"
_MAX_DOCUMENTS = 10_000


class _Document(Struct, forbid_unknown_fields=True):
    text: str


_DOCUMENTS = Decoder(Annotated[list[str | _Document], Meta(min_length=1, max_length=_MAX_DOCUMENTS)])
_TEXTS = Decoder(str | Annotated[list[str], Meta(min_length=1, max_length=_MAX_DOCUMENTS)])


class RerankFront:
    """POST /v1/rerank and /rerank, with Jina's and vLLM's answer: a usage, and the documents unless they are not
    wanted."""

    id_prefix = "rerank-"

    def parse(self, body: bytes, *, max_depth: int, request_id: str) -> RerankRequest:
        """Raises InvalidRequest, naming the path."""
        fields = parse_object(body, max_depth=max_depth)
        documents = fields.require("documents", _DOCUMENTS)
        return RerankRequest(
            model=take_model(fields),
            dialect=RERANK,
            query=fields.require("query", TEXT),
            documents=tuple([each if isinstance(each, str) else each.text for each in documents]),
            top_n=fields.take("top_n", POSITIVE),
            truncate_prompt_tokens=fields.take("truncate_prompt_tokens", OPEN_COUNT),
            return_documents=fields.take("return_documents", BOOL),
            user=fields.take("user", SHORT_TEXT),
            request_id=request_id,
            extras=fields.rest(),
        )

    def render(self, request: RerankRequest, result: RerankResult, head: AnswerHead) -> bytes:
        """The body of the answer."""
        rows = _rows(request, result, documents=request.return_documents is not False)
        return orjson.dumps({"id": head.id, "model": head.model, "usage": prompt_usage(result.usage), "results": rows})


class CohereRerankFront(RerankFront):
    """POST /v2/rerank, with Cohere's answer: documents only where they are wanted, and a meta object."""

    def render(self, request: RerankRequest, result: RerankResult, head: AnswerHead) -> bytes:
        meta: dict[str, Any] = {"api_version": {"version": "2"}}
        if result.usage is not None and result.usage.prompt_tokens is not None:
            meta["tokens"] = {"input_tokens": result.usage.prompt_tokens}
        rows = _rows(request, result, documents=bool(request.return_documents))
        return orjson.dumps({"id": head.id, "results": rows, "meta": meta})


class ScoreFront:
    """POST /v1/score and /score, as vLLM has it: one text against many, or pair by pair."""

    id_prefix = "score-"

    def parse(self, body: bytes, *, max_depth: int, request_id: str) -> ScoreRequest:
        """Raises InvalidRequest, naming the path."""
        fields = parse_object(body, max_depth=max_depth)
        queries, documents = _texts(fields, "text_1", "queries"), _texts(fields, "text_2", "documents")
        if len(queries) == 1:
            queries *= len(documents)
        if len(queries) != len(documents):
            raise InvalidRequest.at(
                "text_2", f"expected one text for each of the {len(queries)} of text_1, found {len(documents)}"
            )
        return ScoreRequest(
            model=take_model(fields),
            dialect=SCORE,
            queries=queries,
            documents=documents,
            truncate_prompt_tokens=fields.take("truncate_prompt_tokens", OPEN_COUNT),
            user=fields.take("user", SHORT_TEXT),
            request_id=request_id,
            extras=fields.rest(),
        )

    def render(self, request: ScoreRequest, result: ScoreResult, head: AnswerHead) -> bytes:
        """The body of the answer."""
        rows = [{"index": index, "object": "score", "score": score} for index, score in enumerate(result.scores)]
        head_fields = {"id": head.id, "object": "list", "created": head.created, "model": head.model}
        return orjson.dumps({**head_fields, "data": rows, "usage": prompt_usage(result.usage)})


def _texts(fields: JsonObject, name: str, newer: str) -> tuple[str, ...]:
    """A text or a list of them; vLLM knows two names."""
    value = fields.require(newer if newer in fields and name not in fields else name, _TEXTS)
    return (value,) if isinstance(value, str) else tuple(value)


def _rows(request: RerankRequest, result: RerankResult, *, documents: bool) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for each in result.scores:
        row: dict[str, Any] = {"index": each.index}
        if documents:
            row["document"] = {"text": request.documents[each.index]}
        rows.append({**row, "relevance_score": each.score})
    return rows
