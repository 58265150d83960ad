"""Embeddings, both ways: /api/embed, and the older /api/embeddings of one text."""

from typing import Any

import orjson
from msgspec import Struct
from msgspec.json import Decoder

from adapters.canonical.embedding import CUT_TO_WINDOW, EmbeddingRequest, EmbeddingResult, numbers, packed, texts_of
from adapters.canonical.errors import UnsupportedParameter
from adapters.canonical.usage import Usage
from adapters.field_types import BOOL, NAME, POSITIVE, TEXT
from adapters.front import AnswerHead
from adapters.json_fields import JsonObject, parse_object
from adapters.ollama.durations import keep_alive_value, take_keep_alive
from adapters.ollama.errors import error_from_text
from adapters.upstream_json import read_body

__all__ = [
    "EMBED",
    "EMBED_HINTS",
    "EMBED_PATH",
    "EmbedFront",
    "EmbeddingsFront",
    "parse_embeddings",
    "render_embeddings",
]

EMBED = "ollama.embed"
EMBED_PATH = "/api/embed"
EMBED_HINTS = {"options": None}
"""Unmapped fields that say nothing about a vector, whatever they say."""
_SPELLINGS = {"truncate_prompt_tokens": "truncate", "keep_alive_s": "keep_alive"}
_INPUT = Decoder(str | list[str])


class _Body(Struct):
    embeddings: list[list[float]] | None = None
    prompt_eval_count: int | None = None
    error: Any = None


_decode = Decoder(_Body, strict=False).decode


class EmbedFront:
    """POST /api/embed. Clients that only want the model to be loaded send no input."""

    id_prefix = ""

    def client_field(self, name: str) -> str:
        """The client's spelling of a canonical field."""
        return _SPELLINGS.get(name, name)

    def parse(self, body: bytes, *, max_depth: int, request_id: str) -> EmbeddingRequest:
        """Raises InvalidRequest, naming the path."""
        fields = parse_object(body, max_depth=max_depth)
        inputs = fields.take("input", _INPUT) or ()
        return _request(fields, (inputs,) if isinstance(inputs, str) else tuple(inputs), request_id)

    def render(self, request: EmbeddingRequest, result: EmbeddingResult, head: AnswerHead) -> bytes:
        found: dict[str, Any] = {"model": head.model, "embeddings": [numbers(vector) for vector in result.vectors]}
        if result.usage is not None and result.usage.prompt_tokens is not None:
            found["prompt_eval_count"] = result.usage.prompt_tokens
        return orjson.dumps(found)


class EmbeddingsFront(EmbedFront):
    """POST /api/embeddings, likewise."""

    def parse(self, body: bytes, *, max_depth: int, request_id: str) -> EmbeddingRequest:
        """Raises InvalidRequest, naming the path."""
        fields = parse_object(body, max_depth=max_depth)
        prompt = fields.take("prompt", TEXT)
        return _request(fields, (prompt,) if prompt else (), request_id)

    def render(self, request: EmbeddingRequest, result: EmbeddingResult, head: AnswerHead) -> bytes:
        return orjson.dumps({"embedding": [number for vector in result.vectors for number in numbers(vector)]})


def _request(fields: JsonObject, inputs: tuple[str, ...], request_id: str) -> EmbeddingRequest:
    cut = fields.take("truncate", BOOL)
    return EmbeddingRequest(
        model=fields.require("model", NAME),
        dialect=EMBED,
        inputs=inputs,
        dimensions=fields.take("dimensions", POSITIVE),
        truncate_prompt_tokens=CUT_TO_WINDOW if cut else None,
        cut_is_default=cut is None,
        keep_alive_s=take_keep_alive(fields),
        request_id=request_id,
        extras=fields.said(),
    )


def render_embeddings(request: EmbeddingRequest) -> bytes:
    """Raises InvalidRequest for token ids. Too long an input is an error unless the client lets it be cut: its own
    clients, who say nothing, leave that to the server."""
    body: dict[str, Any] = {"model": request.model, "input": texts_of(request, "Ollama")}
    if not (request.cut_is_default and request.dialect == EMBED):
        body["truncate"] = request.truncate_prompt_tokens == CUT_TO_WINDOW
    if request.dimensions is not None:
        body["dimensions"] = request.dimensions
    if request.keep_alive_s is not None:
        body["keep_alive"] = keep_alive_value(request.keep_alive_s)
    for name, raw in request.extras.items():
        if request.dialect != EMBED:
            raise UnsupportedParameter.at(name, "Ollama does not take it")
        body.setdefault(name, orjson.Fragment(raw))
    return orjson.dumps(body)


def parse_embeddings(request: EmbeddingRequest, body: bytes) -> EmbeddingResult:
    """Raises GatewayError for an error object, a missing vector, or one of another size."""
    found = read_body(_decode, body, "embeddings")
    if found.error is not None:
        raise error_from_text(found.error)
    count = found.prompt_eval_count
    usage = None if count is None else Usage(prompt_tokens=count)
    return EmbeddingResult(vectors=packed(found.embeddings or [], len(request.inputs)), usage=usage)
