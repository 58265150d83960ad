"""A chat completions body as a Request."""

from adapters.canonical.errors import InvalidRequest, UnsupportedParameter
from adapters.canonical.request import Request
from adapters.json_fields import JsonObject, parse_object
from adapters.openai.content import parse_messages
from adapters.openai.request_fields import build_request, take_model, take_shared
from adapters.openai.response_format import parse_output_format
from adapters.openai.tools import parse_tool_choice, parse_tools
from adapters.openai.vocabulary import BOOL, CHAT, CHAT_FIELDS, POSITIVE, TOP_LOGPROBS

__all__ = ["parse_chat"]

_LEGACY = {"functions": "tools", "function_call": "tool_choice"}


def parse_chat(raw: bytes, *, max_depth: int) -> Request:
    """Raises InvalidRequest, naming the path."""
    body = parse_object(raw, max_depth=max_depth)
    for old, new in _LEGACY.items() if body.has_any(_LEGACY.keys()) else ():
        if body.take_raw(old) is not None:
            raise UnsupportedParameter(f"{old}: this legacy field is not taken; use {new}", param=old)
    model = take_model(body)
    messages = parse_messages(body)
    tools = parse_tools(body)
    tool_choice = parse_tool_choice(body, tools)
    older, newer = body.take("max_tokens", POSITIVE), body.take("max_completion_tokens", POSITIVE)
    logprobs = _take_logprobs(body)
    output_format = parse_output_format(body)
    groups = take_shared(body, CHAT_FIELDS)
    return build_request(
        body,
        CHAT,
        groups,
        model=model,
        messages=messages,
        tools=tools,
        tool_choice=tool_choice,
        max_tokens=newer if newer is not None else older,
        logprobs=logprobs,
        output_format=output_format,
    )


def _take_logprobs(body: JsonObject) -> int | None:
    wanted = body.take("logprobs", BOOL)
    top = body.take("top_logprobs", TOP_LOGPROBS)
    if not wanted:
        if top is not None:
            raise InvalidRequest("top_logprobs: allowed only with logprobs: true", param="top_logprobs")
        return None
    return top or 0
