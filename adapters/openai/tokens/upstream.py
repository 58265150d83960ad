"""Tokenize, detokenize and the count of a chat prompt towards a provider."""

import orjson
from msgspec import Struct
from msgspec.json import Decoder

from adapters.canonical.tokens import DetokenizeRequest, TokenizeRequest, Tokens
from adapters.raw_json import raw_fields
from adapters.upstream_json import read_body

__all__ = [
    "CHAT_COUNT_PATH",
    "parse_detokenized",
    "parse_token_count",
    "parse_tokens",
    "render_detokenize",
    "render_tokenize",
]

CHAT_COUNT_PATH = "/chat/completions/input_tokens"
_OF_THE_PROMPT = frozenset(
    (
        "model", "messages", "prompt", "tools", "add_special_tokens", "add_generation_prompt", "continue_final_message",
        "chat_template", "chat_template_kwargs",
    )
)  # fmt: skip
"""What of a generation's body vLLM's tokenize takes."""


class _Tokens(Struct):
    tokens: list[int]
    max_model_len: int | None = None
    token_strs: list[str] | None = None


class _Text(Struct):
    prompt: str


class _Count(Struct):
    input_tokens: int


_decode_tokens = Decoder(_Tokens).decode
_decode_text = Decoder(_Text).decode
_decode_count = Decoder(_Count).decode


def render_tokenize(request: TokenizeRequest, generation: bytes) -> bytes:
    """`generation` is the body that would ask this provider for an answer to the same prompt."""
    fields = {
        name: orjson.Fragment(bytes(raw)) for name, raw in raw_fields(generation).items() if name in _OF_THE_PROMPT
    }
    return orjson.dumps({**fields, "return_token_strs": request.with_texts})


def parse_tokens(body: bytes) -> Tokens:
    """Raises BadUpstreamResponse."""
    found = read_body(_decode_tokens, body, "tokens")
    texts = None if found.token_strs is None else tuple(found.token_strs)
    return Tokens(ids=tuple(found.tokens), texts=texts, context=found.max_model_len)


def render_detokenize(request: DetokenizeRequest) -> bytes:
    return orjson.dumps({"model": request.model, "tokens": request.ids})


def parse_detokenized(body: bytes) -> str:
    """Raises BadUpstreamResponse."""
    return read_body(_decode_text, body, "tokens").prompt


def parse_token_count(body: bytes) -> int:
    """Raises BadUpstreamResponse."""
    return read_body(_decode_count, body, "tokens").input_tokens
