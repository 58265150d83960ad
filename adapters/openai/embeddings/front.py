"""Embeddings towards clients."""

from array import array
from base64 import b64encode
from typing import Annotated, Literal

import orjson
from msgspec import Meta
from msgspec.json import Decoder

from adapters.canonical.embedding import EmbeddingRequest, EmbeddingResult
from adapters.canonical.usage import Usage
from adapters.front import AnswerHead
from adapters.json_fields import parse_object
from adapters.openai.prompts import take_prompts
from adapters.openai.request_fields import take_model
from adapters.openai.vocabulary import POSITIVE, SHORT_TEXT

__all__ = ["EMBEDDINGS", "TRUNCATE", "EmbeddingsFront", "prompt_usage"]

EMBEDDINGS = "openai.embeddings"
_FORMAT = Decoder(Literal["float", "base64"])
TRUNCATE = Decoder(Annotated[int, Meta(ge=-1, le=2**31 - 1)])


class EmbeddingsFront:
    """POST /v1/embeddings."""

    id_prefix = "embd-"

    def parse(self, body: bytes, *, max_depth: int, request_id: str) -> EmbeddingRequest:
        """Raises InvalidRequest, naming the path."""
        fields = parse_object(body, max_depth=max_depth)
        return EmbeddingRequest(
            model=take_model(fields),
            dialect=EMBEDDINGS,
            inputs=take_prompts(fields, "input"),
            dimensions=fields.take("dimensions", POSITIVE),
            truncate_prompt_tokens=fields.take("truncate_prompt_tokens", TRUNCATE),
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
        return orjson.dumps({"object": "list", "data": rows, "model": head.model, "usage": prompt_usage(result.usage)})


def prompt_usage(usage: Usage | None) -> dict[str, int]:
    """The usage of an answer that has a prompt only; totals are always numbers."""
    tokens = (usage.prompt_tokens if usage is not None else None) or 0
    return {"prompt_tokens": tokens, "total_tokens": tokens}


def _written(vector: bytes, *, base64: bool) -> str | list[float]:
    return b64encode(vector).decode() if base64 else array("f", vector).tolist()
