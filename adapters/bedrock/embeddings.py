"""Embeddings towards Bedrock: POST /model/{model}/invoke in the words of each model's maker (Amazon Titan, Cohere)."""

from collections.abc import Mapping
from typing import Any

import msgspec
import orjson
from msgspec import Struct
from msgspec.json import Decoder

from adapters.bedrock.invocation import told_usage
from adapters.canonical.embedding import (
    EmbeddingRequest,
    EmbeddingResult,
    packed,
    texts_of,
)
from adapters.canonical.usage import Usage
from adapters.cohere_purposes import input_type
from adapters.upstream_json import read_body

__all__ = ["EmbeddingModel", "embedding_model", "parse_embeddings", "render_embeddings"]


class EmbeddingModel(Struct, frozen=True):
    """What is known of an embedding model by a word of its name: whose words it takes, how many inputs in one call, and
    the canonical fields that it can express."""

    is_cohere: bool
    most: int
    fields: frozenset[str]


_MODELS = {
    "cohere.embed-v4": EmbeddingModel(True, 96, frozenset(("purpose", "dimensions", "truncate_prompt_tokens"))),
    "cohere.embed-": EmbeddingModel(True, 96, frozenset(("purpose", "truncate_prompt_tokens"))),
    "amazon.titan-embed-text-v2": EmbeddingModel(False, 1, frozenset(("dimensions",))),
    "amazon.titan-embed-": EmbeddingModel(False, 1, frozenset()),
}


class _Floats(Struct):
    floats: list[list[float]] | None = msgspec.field(default=None, name="float")


class _Body(Struct, rename="camel"):
    embedding: list[float] | None = None  # Titan
    input_text_token_count: int | None = None
    embeddings: list[list[float]] | _Floats | None = None  # Cohere


_decode = Decoder(_Body, strict=False).decode


def embedding_model(model: str) -> EmbeddingModel | None:
    """None for a model that gives no vectors."""
    return next((found for word, found in _MODELS.items() if word in model), None)


def render_embeddings(request: EmbeddingRequest, model: EmbeddingModel) -> bytes:
    """Raises InvalidRequest for token ids, UnsupportedParameter for a purpose that Cohere has no word for.

    Too long a text is an error unless the client lets it be cut.
    """
    texts = texts_of(request, "Bedrock")
    if not model.is_cohere:
        found: dict[str, Any] = {"inputText": texts[0]}
        return orjson.dumps(found if request.dimensions is None else {**found, "dimensions": request.dimensions})
    body: dict[str, Any] = {
        "texts": texts,
        "input_type": input_type(request),
        "embedding_types": ["float"],
        "truncate": "NONE" if request.truncate_prompt_tokens is None else "END",
    }
    if request.dimensions is not None:
        body["output_dimension"] = request.dimensions
    return orjson.dumps(body)


def parse_embeddings(request: EmbeddingRequest, body: bytes, headers: Mapping[str, str]) -> EmbeddingResult:
    """Raises BadUpstreamResponse for a missing vector, or one of another size. Tokens may be told by a header."""
    found = read_body(_decode, body, "embeddings")
    rows = found.embeddings.floats if isinstance(found.embeddings, _Floats) else found.embeddings
    if rows is None:
        rows = [] if found.embedding is None else [found.embedding]
    tokens = found.input_text_token_count
    usage = told_usage(headers) if tokens is None else Usage(prompt_tokens=tokens)
    return EmbeddingResult(vectors=packed(rows, len(request.inputs)), usage=usage)
