"""Tokenize, detokenize and the count of a chat prompt towards a provider."""

from typing import TypeVar

import msgspec
import orjson
from msgspec import Raw, Struct
from msgspec.json import Decoder

from adapters.canonical.errors import BadUpstreamResponse
from adapters.canonical.tokens import DetokenizeRequest, TokenizeRequest, Tokens

__all__ = [
    "CHAT_COUNT_PATH",
    "parse_detokenized",
    "parse_token_count",
    "parse_tokens",
    "render_detokenize",
    "render_tokenize",
]

T = TypeVar("T")

CHAT_COUNT_PATH = "/chat/completions/input_tokens"
_OF_THE_PROMPT = frozenset(
    (
        "model",
        "messages",
        "prompt",
        "tools",
        "add_special_tokens",
        "add_generation_prompt",
        "continue_final_message",
        "chat_template",
        "chat_template_kwargs",
    )
)
"""What of a generation's body vLLM's tokenize takes."""


class _Tokens(Struct):
    tokens: list[int]
    max_model_len: int | None = None
    token_strs: list[str] | None = None


class _Text(Struct):
    prompt: str


class _Count(Struct):
    input_tokens: int


_decode_fields = Decoder(dict[str, Raw]).decode


def render_tokenize(request: TokenizeRequest, generation: bytes) -> bytes:
    """`generation` is the body that would ask this provider for an answer to the same prompt."""
    fields = {
        name: orjson.Fragment(bytes(raw)) for name, raw in _decode_fields(generation).items() if name in _OF_THE_PROMPT
    }
    return orjson.dumps({**fields, "return_token_strs": request.with_texts})


def parse_tokens(body: bytes) -> Tokens:
    found = _decoded(body, _Tokens)
    texts = None if found.token_strs is None else tuple(found.token_strs)
    return Tokens(ids=tuple(found.tokens), texts=texts, context=found.max_model_len)


def render_detokenize(request: DetokenizeRequest) -> bytes:
    return orjson.dumps({"model": request.model, "tokens": request.ids})


def parse_detokenized(body: bytes) -> str:
    return _decoded(body, _Text).prompt


def parse_token_count(body: bytes) -> int:
    return _decoded(body, _Count).input_tokens


def _decoded(body: bytes, kind: type[T]) -> T:
    """Raises BadUpstreamResponse."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadUpstreamResponse(f"the upstream sent no tokens: {error}") from error
