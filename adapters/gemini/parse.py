"""A body of generateContent as a Request, to be answered or to be counted. The model stands in the path."""

from typing import Any

from adapters.canonical.request import Request
from adapters.field_types import BOOL, TEXT
from adapters.gemini.content import take_messages, take_system
from adapters.gemini.generation_config import take_config
from adapters.gemini.tools import take_tool_choice, take_tools
from adapters.gemini.vocabulary import GEMINI
from adapters.gemini.wire_objects import in_camel_case, take_object
from adapters.json_fields import JsonObject, parse_object

__all__ = ["parse_count", "parse_generate"]

_TIERS = {"standard": "default", "flex": "flex", "priority": "priority", "unspecified": None}


def parse_generate(raw: bytes, *, max_depth: int, stream: bool) -> Request:
    """Raises InvalidRequest, naming the path. The model's name is empty: whoever knows the path sets it."""
    return _parse(in_camel_case(parse_object(raw, max_depth=max_depth)), stream=stream)


def parse_count(raw: bytes, *, max_depth: int) -> Request:
    """The same of a body to be counted, which may have the whole request inside."""
    body = in_camel_case(parse_object(raw, max_depth=max_depth))
    inner = take_object(body, "generateContentRequest")
    return _parse(body if inner is None else inner, stream=False)


def _parse(body: JsonObject, *, stream: bool) -> Request:
    body.take("model", TEXT)  # what the path says counts
    placed = take_system(body) + take_messages(body)
    tools = take_tools(body)
    tool_choice, extras = take_tool_choice(body, tools)
    values, config = take_config(body)
    tier = body.peek_raw("serviceTier")
    if tier is not None and tier.strip(b'"').decode().lower() in _TIERS:
        values["service_tier"] = _TIERS[(body.take("serviceTier", TEXT) or "").lower()]
    known: dict[str, Any] = {name: value for name, value in values.items() if value is not None}
    return Request(
        model="",
        dialect=GEMINI,
        stream=stream,
        include_usage=True,
        messages=tuple([message for _, message in placed]),
        message_paths=tuple([path for path, _ in placed]),
        tools=tools,
        tool_choice=tool_choice,
        store=body.take("store", BOOL),
        extras={**body.said(), **config, **extras},
        **known,
    )
