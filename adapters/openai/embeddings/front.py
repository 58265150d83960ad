"""Embeddings towards clients."""

from base64 import b64encode
from typing import Literal

import orjson
from msgspec.json import Decoder

from adapters.canonical.embedding import (
    CLASSIFICATION,
    CLUSTERING,
    DOCUMENT,
    QUERY,
    SIMILARITY,
    EmbeddingRequest,
    EmbeddingResult,
    numbers,
)
from adapters.canonical.usage import Usage
from adapters.field_types import OPEN_COUNT, POSITIVE, SHORT_TEXT
from adapters.front import AnswerHead
from adapters.json_fields import parse_object
from adapters.openai.prompts import take_prompts
from adapters.openai.request_fields import take_model

__all__ = ["EMBEDDINGS", "INPUT_TYPE", "EmbeddingsFront", "prompt_usage"]

EMBEDDINGS = "openai.embeddings"
INPUT_TYPE = "input_type"
"""The extra in which clients say what vectors are for, for those who read that as `purpose`."""
_PURPOSES = {
    "query": QUERY,
    "search_query": QUERY,
    "passage": DOCUMENT,
    "document": DOCUMENT,
    "search_document": DOCUMENT,
    "classification": CLASSIFICATION,
    "clustering": CLUSTERING,
    "semantic_similarity": SIMILARITY,
}
"""The words of NVIDIA, Cohere and Voyage."""
_FORMAT = Decoder(Literal["float", "base64"])


class EmbeddingsFront:
    """POST /v1/embeddings."""

    id_prefix = "embd-"

    def client_field(self, name: str) -> str:
        """The client's spelling of a canonical field."""
        return INPUT_TYPE if name == "purpose" else name

    def parse(self, body: bytes, *, max_depth: int, request_id: str) -> EmbeddingRequest:
        """Raises InvalidRequest, naming the path.

        `input_type`, which many servers of this dialect have, stays among the extras as well, in the client's word.
        """
        fields = parse_object(body, max_depth=max_depth)
        input_type = fields.peek_raw(INPUT_TYPE) or b""
        return EmbeddingRequest(
            model=take_model(fields),
            dialect=EMBEDDINGS,
            inputs=take_prompts(fields, "input"),
            dimensions=fields.take("dimensions", POSITIVE),
            truncate_prompt_tokens=fields.take("truncate_prompt_tokens", OPEN_COUNT),
            purpose=_PURPOSES.get(input_type.decode().strip('"')),
            user=fields.take("user", SHORT_TEXT),
            base64=fields.take("encoding_format", _FORMAT) == "base64",
            request_id=request_id,
            extras=fields.rest(),
        )

    def render(self, request: EmbeddingRequest, result: EmbeddingResult, head: AnswerHead) -> bytes:
        """The body of the answer."""
        rows = [
            {"object": "embedding", "index": index, "embedding": _written(vector, base64=request.base64)}
            for index, vector in enumerate(result.vectors)
        ]
        told = {"object": "list", "data": rows, "model": head.model, "usage": prompt_usage(result.usage)}
        return orjson.dumps({"id": head.id, **told})  # OpenAI has no id, but clients of Mistral and vLLM know one


def prompt_usage(usage: Usage | None) -> dict[str, int]:
    """The usage of an answer that has a prompt only; totals are always numbers."""
    tokens = (usage.prompt_tokens if usage is not None else None) or 0
    return {"prompt_tokens": tokens, "total_tokens": tokens}


def _written(vector: bytes, *, base64: bool) -> str | list[float]:
    return b64encode(vector).decode() if base64 else numbers(vector)
