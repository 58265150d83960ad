"""Embeddings towards Cohere: POST /v2/embed."""

from typing import Any

import msgspec
import orjson
from msgspec import Struct
from msgspec.json import Decoder

from adapters.canonical.embedding import (
    EmbeddingRequest,
    EmbeddingResult,
    packed,
    text_in,
    texts_of,
)
from adapters.canonical.messages import Opaque
from adapters.canonical.usage import Usage
from adapters.cohere.vocabulary import EMBED, IMAGE
from adapters.cohere_purposes import input_type
from adapters.raw_json import fragments
from adapters.upstream_json import read_body

__all__ = ["EMBED_PATH", "MAX_INPUTS", "parse_embeddings", "render_embeddings"]

EMBED_PATH = "/embed"
MAX_INPUTS = 96


class _Vectors(Struct):
    floats: list[list[float]] | None = msgspec.field(default=None, name="float")


class _Units(Struct):
    input_tokens: float | None = None


class _Meta(Struct):
    billed_units: _Units | None = None


class _Body(Struct):
    embeddings: _Vectors | None = None
    meta: _Meta | None = None


_decode = Decoder(_Body, strict=False).decode


def render_embeddings(request: EmbeddingRequest) -> bytes:
    """Raises InvalidRequest for token ids, UnsupportedParameter for a purpose that Cohere has no word for.

    Too long an input is an error unless the client lets it be cut: the API would cut it. For a client of the API itself
    that says nothing, it decides.
    """
    body: dict[str, Any] = {
        "model": request.model,
        **_inputs(request),
        "input_type": input_type(request),
        "embedding_types": ["float"],
    }
    is_own = request.dialect == EMBED
    if not (is_own and request.cut_is_default):
        body["truncate"] = "NONE" if request.truncate_prompt_tokens is None else "END"
    if request.truncate_prompt_tokens is not None and request.truncate_prompt_tokens > 0:
        body["max_tokens"] = request.truncate_prompt_tokens
    if request.dimensions is not None:
        body["output_dimension"] = request.dimensions
    if is_own:
        body.update(fragments(request.extras))
    return orjson.dumps(body)


def _inputs(request: EmbeddingRequest) -> dict[str, Any]:
    """As texts, or as images, where all are such."""
    kinds = {each.type if isinstance(each, Opaque) else "" for each in request.inputs}
    if kinds == {""}:
        return {"texts": texts_of(request, "Cohere")}
    if kinds == {IMAGE}:
        return {"images": [orjson.Fragment(each.raw) for each in request.inputs if isinstance(each, Opaque)]}
    rows: list[Any] = []
    for each in request.inputs:
        if isinstance(each, Opaque):
            rows.append(orjson.Fragment(each.raw))
        else:
            rows.append({"content": [{"type": "text", "text": text_in(each, "Cohere")}]})
    return {"inputs": rows}


def parse_embeddings(request: EmbeddingRequest, body: bytes) -> EmbeddingResult:
    """Raises BadUpstreamResponse for a missing vector, or one of another size."""
    found = read_body(_decode, body, "embeddings")
    rows = (found.embeddings.floats if found.embeddings is not None else None) or []
    units = found.meta.billed_units if found.meta is not None else None
    tokens = None if units is None or units.input_tokens is None else int(units.input_tokens)
    usage = None if tokens is None else Usage(prompt_tokens=tokens)
    return EmbeddingResult(vectors=packed(rows, len(request.inputs)), usage=usage)
