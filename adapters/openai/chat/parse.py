"""A chat completions body as a Request."""

from typing import Any

from adapters.canonical.errors import InvalidRequest, UnsupportedParameter
from adapters.canonical.request import Request
from adapters.field_types import BOOL, POSITIVE, TOP_LOGPROBS
from adapters.json_fields import JsonObject, parse_object
from adapters.openai.chat.plain import DEPTH, plain_chat
from adapters.openai.content import parse_messages
from adapters.openai.request_fields import build_request, take_limit, take_model, take_shared
from adapters.openai.response_format import FORMAT_ALIASES, RESPONSE_FORMAT, parse_output_format
from adapters.openai.tools import parse_tool_choice, parse_tools
from adapters.openai.vocabulary import CHAT, CHAT_FIELDS

__all__ = ["parse_chat", "parse_chat_fields"]

_LEGACY = {"functions": "tools", "function_call": "tool_choice"}
_RARER = frozenset((*_LEGACY, "tools", "tool_choice", "logprobs", "top_logprobs", RESPONSE_FORMAT, *FORMAT_ALIASES))
"""Most bodies have none of these."""


def parse_chat(raw: bytes, *, max_depth: int) -> Request:
    """Raises InvalidRequest, naming the path."""
    plain = plain_chat(raw) if max_depth >= DEPTH else None
    return plain if plain is not None else parse_chat_fields(raw, max_depth=max_depth)


def parse_chat_fields(raw: bytes, *, max_depth: int) -> Request:
    """The general way. Raises InvalidRequest, naming the path."""
    body = parse_object(raw, max_depth=max_depth)
    model = take_model(body)
    messages = parse_messages(body)
    rarer = _take_rarer(body) if body.has_any(_RARER) else {}
    (older, _), (newer, _) = [take_limit(body, name, POSITIVE) for name in ("max_tokens", "max_completion_tokens")]
    groups = take_shared(body, CHAT_FIELDS)
    return build_request(
        body,
        CHAT,
        groups,
        model=model,
        messages=messages,
        max_tokens=newer if newer is not None else older,
        **rarer,
    )


def _take_rarer(body: JsonObject) -> dict[str, Any]:
    for old, new in _LEGACY.items():
        if body.take_raw(old) is not None:
            raise UnsupportedParameter.at(old, f"this legacy field is not taken; use {new}")
    tools = parse_tools(body)
    return {
        "tools": tools,
        "tool_choice": parse_tool_choice(body, tools),
        "logprobs": _take_logprobs(body),
        "output_format": parse_output_format(body),
    }


def _take_logprobs(body: JsonObject) -> int | None:
    wanted = body.take("logprobs", BOOL)
    top = body.take("top_logprobs", TOP_LOGPROBS)
    if not wanted:
        if top is not None:
            raise InvalidRequest.at("top_logprobs", "allowed only with logprobs: true")
        return None
    return top or 0
