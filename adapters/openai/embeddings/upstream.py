"""Embeddings towards a provider. Vectors are taken as numbers and as base64, whatever was asked for."""

import binascii
from array import array
from base64 import b64decode
from typing import Any

import orjson
from msgspec import Struct
from msgspec.json import Decoder

from adapters.canonical.embedding import EmbeddingRequest, EmbeddingResult
from adapters.canonical.errors import BadUpstreamResponse
from adapters.openai.errors import error_from_object
from adapters.openai.usage import WireUsage, parse_usage
from adapters.raw_json import add_missing
from adapters.upstream_json import read_body

__all__ = ["EMBEDDINGS_PATH", "parse_embeddings", "render_embeddings"]

EMBEDDINGS_PATH = "/embeddings"
_FLOAT_BYTES = 4


class _Row(Struct):
    embedding: list[float] | str
    index: int | None = None


class _Body(Struct):
    data: list[_Row] | None = None
    usage: WireUsage | None = None
    error: Any = None


_decode = Decoder(_Body, strict=False).decode


def render_embeddings(request: EmbeddingRequest, *, base64: bool) -> bytes:
    """`base64`: the provider is known to write vectors so, which costs a tenth of reading decimals."""
    one = request.inputs[0] if len(request.inputs) == 1 else None
    body: dict[str, Any] = {"model": request.model, "input": one if isinstance(one, str) else request.inputs}
    if base64:
        body["encoding_format"] = "base64"
    for name in ("dimensions", "truncate_prompt_tokens", "user"):
        value = getattr(request, name)
        if value is not None:
            body[name] = value
    add_missing(body, request.extras)
    return orjson.dumps(body)


def parse_embeddings(request: EmbeddingRequest, body: bytes) -> EmbeddingResult:
    """Raises GatewayError for an error object, a missing vector, or one that is none."""
    found = read_body(_decode, body, "embeddings")
    if found.error is not None:
        raise error_from_object(found.error)
    rows = found.data or []
    placed = {row.index if row.index is not None else place: row for place, row in enumerate(rows)}
    if len(rows) != len(request.inputs) or set(placed) != set(range(len(rows))):
        raise BadUpstreamResponse(f"the upstream sent {len(rows)} embeddings for {len(request.inputs)} inputs")
    vectors = tuple([_vector(placed[place].embedding) for place in range(len(rows))])
    if len(set(map(len, vectors))) != 1 or not vectors[0]:
        raise BadUpstreamResponse("the upstream sent embeddings of different sizes")
    return EmbeddingResult(vectors=vectors, usage=None if found.usage is None else parse_usage(found.usage))


def _vector(value: list[float] | str) -> bytes:
    if isinstance(value, list):
        return array("f", value).tobytes()
    try:
        vector = b64decode(value, validate=True)
    except binascii.Error as error:
        raise BadUpstreamResponse("the upstream sent an embedding that is no base64") from error
    if len(vector) % _FLOAT_BYTES:
        raise BadUpstreamResponse("the upstream sent an embedding that holds no float32 numbers")
    return vector
