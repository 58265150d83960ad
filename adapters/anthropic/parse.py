"""A Messages body as a Request, to be answered or to be counted."""

from collections.abc import Mapping
from typing import Any

from adapters.anthropic.content import take_messages, take_system
from adapters.anthropic.thinking import take_thinking
from adapters.anthropic.tools import take_tool_choice, take_tools
from adapters.anthropic.vocabulary import MESSAGES, NO_THREADS, STOPS
from adapters.canonical.errors import InvalidRequest, UnsupportedParameter
from adapters.canonical.messages import ASSISTANT, Message, ToolCall
from adapters.canonical.request import OutputFormat, Request, Sampling, TemplateOptions
from adapters.field_types import BOOL, COUNT, FRACTION, NAME, RAW_OBJECT, SHORT_TEXT, TEXT
from adapters.json_fields import JsonObject, parse_object, parse_object_at

__all__ = ["parse_count", "parse_messages"]

_NO_SAMPLING = Sampling()
_SCHEMA = "json_schema"
_PREFILL = TemplateOptions(continue_final_message=True, add_generation_prompt=False)


def parse_messages(raw: bytes, *, max_depth: int) -> Request:
    """Raises InvalidRequest, naming the path."""
    body = parse_object(raw, max_depth=max_depth)
    max_tokens = body.require("max_tokens", COUNT)
    return _parse(body, max_tokens=max_tokens, stream=body.take("stream", BOOL) or False)


def parse_count(raw: bytes, *, max_depth: int) -> Request:
    """The same without a limit and a stream. Raises InvalidRequest, naming the path."""
    return _parse(parse_object(raw, max_depth=max_depth))


def _parse(body: JsonObject, **values: Any) -> Request:
    if body.peek_raw("thread") is not None:
        raise UnsupportedParameter.at("thread", "send the whole conversation, which no one keeps here", code=NO_THREADS)
    model = body.require("model", NAME)
    placed = take_system(body) + take_messages(body)
    tools = take_tools(body)
    tool_choice, parallel = take_tool_choice(body, tools)
    thinking, output_config = body.take_object("thinking"), body.take_object("output_config")
    reasoning = take_thinking(thinking, output_config)
    output_format = None if output_config is None else _take_format(output_config)
    user, metadata = _take_metadata(body)
    return Request(
        model=model,
        dialect=MESSAGES,
        include_usage=True,
        open_ended=True,  # a limit has to be given, and the API lets it reach beyond the window
        messages=tuple([message for _, message in placed]),
        message_paths=tuple([path for path, _ in placed]),
        tools=tools,
        tool_choice=tool_choice,
        parallel_tool_calls=parallel,
        output_format=output_format,
        sampling=_take_sampling(body),
        reasoning=reasoning,
        template=_PREFILL if _is_prefill(placed[-1][1]) else None,
        service_tier=body.take("service_tier", TEXT),
        user=user,
        extras={**body.said(), **metadata, **_unmapped(thinking), **_unmapped(output_config)},
        **values,
    )


def _is_prefill(last: Message) -> bool:
    """The answer is to go on from an assistant's words, where they stand last."""
    return last.role == ASSISTANT and not any(isinstance(part, ToolCall) for part in last.parts)


def _take_sampling(body: JsonObject) -> Sampling:
    found = {
        "temperature": body.take("temperature", FRACTION),
        "top_p": body.take("top_p", FRACTION),
        "top_k": body.take("top_k", COUNT),
        "stop": tuple(body.take("stop_sequences", STOPS) or ()) or None,
    }
    known: dict[str, Any] = {name: value for name, value in found.items() if value is not None}
    return Sampling(**known) if known else _NO_SAMPLING


def _take_format(output_config: JsonObject) -> OutputFormat | None:
    found = output_config.take_object("format")
    if found is None:
        return None
    kind = found.require("type", TEXT)
    if kind != _SCHEMA:
        raise InvalidRequest.at(found.at("type"), f"expected {_SCHEMA}, got {kind}")
    schema = found.require("schema", RAW_OBJECT)
    found.refuse_rest()
    return OutputFormat(kind=kind, schema=schema)


def _unmapped(inner: JsonObject | None) -> Mapping[str, bytes]:
    """What nobody took of an object of the body, by paths."""
    return {} if inner is None else {inner.at(name): raw for name, raw in inner.said().items()}


def _take_metadata(body: JsonObject) -> tuple[str | None, Mapping[str, bytes]]:
    """The user's id where nothing else stands there; otherwise the whole object, unmapped."""
    raw = body.take_raw("metadata")
    if raw is None:
        return None, {}
    metadata = parse_object_at(raw, "metadata")
    user = metadata.take("user_id", SHORT_TEXT)
    return (None, {"metadata": raw}) if metadata.rest() else (user, {})
