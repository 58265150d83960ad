"""What the Open Responses specification (2026-04-24) demands of objects and events, as checks."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

__all__ = ["EVENTS", "check_event", "check_item", "check_resource"]

Check = Callable[[Any], bool]


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def _object(value: Any) -> bool:
    return isinstance(value, dict)


def _list(value: Any) -> bool:
    return isinstance(value, list)


def _or_null(check: Check) -> Check:
    return lambda value: value is None or check(value)


def _one_of(*values: str) -> Check:
    return lambda value: value in values


RESOURCE: Mapping[str, Check] = {
    "id": _text,
    "object": _one_of("response"),
    "created_at": _whole,
    "completed_at": _or_null(_whole),
    "status": _one_of("queued", "in_progress", "completed", "incomplete", "failed", "cancelled"),
    "incomplete_details": _or_null(_object),
    "model": _text,
    "previous_response_id": _or_null(_text),
    "instructions": _or_null(lambda value: isinstance(value, str | list)),
    "output": _list,
    "error": _or_null(lambda value: _object(value) and _text(value["code"]) and _text(value["message"])),
    "tools": _list,
    "tool_choice": lambda value: isinstance(value, str | dict),
    "truncation": _one_of("auto", "disabled"),
    "parallel_tool_calls": _flag,
    "text": lambda value: _object(value) and _text(value["format"]["type"]),
    "top_p": _number,
    "presence_penalty": _number,
    "frequency_penalty": _number,
    "top_logprobs": _whole,
    "temperature": _number,
    "reasoning": _or_null(lambda value: value.keys() >= {"effort", "summary"}),
    "usage": _or_null(_object),
    "max_output_tokens": _or_null(_whole),
    "max_tool_calls": _or_null(_whole),
    "store": _flag,
    "background": _flag,
    "service_tier": _text,
    "metadata": _object,
    "safety_identifier": _or_null(_text),
    "prompt_cache_key": _or_null(_text),
}
"""All 31 keys; each must be there."""
USAGE: Mapping[str, Check] = {
    "input_tokens": _whole,
    "output_tokens": _whole,
    "total_tokens": _whole,
    "input_tokens_details": lambda value: _whole(value["cached_tokens"]),
    "output_tokens_details": lambda value: _whole(value["reasoning_tokens"]),
}
STATUS = _one_of("in_progress", "completed", "incomplete")
ITEMS: Mapping[str, Mapping[str, Check]] = {
    "message": {"id": _text, "status": STATUS, "role": _text, "content": _list},
    "function_call": {"id": _text, "status": STATUS, "call_id": _text, "name": _text, "arguments": _text},
    "function_call_output": {"id": _text, "status": STATUS, "call_id": _text},
    "reasoning": {"id": _text, "summary": _list},
    "compaction": {"id": _text, "encrypted_content": _text},
}
PARTS: Mapping[str, Mapping[str, Check]] = {
    "output_text": {"text": _text, "annotations": _list, "logprobs": _list},
    "refusal": {"refusal": _text},
    "input_text": {"text": _text},
}
_RESPONSE: Mapping[str, Check] = {"response": _object}
_ITEM: Mapping[str, Check] = {"output_index": _whole, "item": _object}
_IN_ITEM: Mapping[str, Check] = {"item_id": _text, "output_index": _whole}
_IN_PART: Mapping[str, Check] = {**_IN_ITEM, "content_index": _whole}
_IN_SUMMARY: Mapping[str, Check] = {**_IN_ITEM, "summary_index": _whole}
EVENTS: Mapping[str, Mapping[str, Check]] = {
    **{
        f"response.{name}": _RESPONSE
        for name in ("created", "queued", "in_progress", "completed", "incomplete", "failed")
    },
    "response.output_item.added": _ITEM,
    "response.output_item.done": _ITEM,
    "response.content_part.added": {**_IN_PART, "part": _object},
    "response.content_part.done": {**_IN_PART, "part": _object},
    "response.output_text.delta": {**_IN_PART, "delta": _text, "logprobs": _list},
    "response.output_text.done": {**_IN_PART, "text": _text, "logprobs": _list},
    "response.output_text.annotation.added": {**_IN_PART, "annotation_index": _whole, "annotation": _object},
    "response.refusal.delta": {**_IN_PART, "delta": _text},
    "response.refusal.done": {**_IN_PART, "refusal": _text},
    "response.function_call_arguments.delta": {**_IN_ITEM, "delta": _text},
    "response.function_call_arguments.done": {**_IN_ITEM, "arguments": _text},
    "response.reasoning.delta": {**_IN_PART, "delta": _text},
    "response.reasoning.done": {**_IN_PART, "text": _text},
    "response.reasoning_summary_part.added": {**_IN_SUMMARY, "part": _object},
    "response.reasoning_summary_part.done": {**_IN_SUMMARY, "part": _object},
    "response.reasoning_summary_text.delta": {**_IN_SUMMARY, "delta": _text},
    "response.reasoning_summary_text.done": {**_IN_SUMMARY, "text": _text},
    "error": {"error": _object},
}
"""All 24 types of events."""


def check_resource(response: Mapping[str, Any]) -> None:
    _check(response, RESOURCE, "response")
    if response["usage"] is not None:
        _check(response["usage"], USAGE, "usage")
    for tool in response["tools"]:
        if tool["type"] == "function":
            assert tool.keys() >= {"name", "description", "parameters", "strict"}
    for item in response["output"]:
        check_item(item)


def check_item(item: Mapping[str, Any]) -> None:
    assert item["type"] in ITEMS, item["type"]
    _check(item, ITEMS[item["type"]], item["type"])
    if item["type"] == "message":
        for part in item["content"]:
            _check(part, PARTS[part["type"]], part["type"])


def check_event(event: Mapping[str, Any]) -> None:
    assert event["type"] in EVENTS, event["type"]
    assert _whole(event["sequence_number"])
    _check(event, EVENTS[event["type"]], event["type"])
    if "response" in event:
        check_resource(event["response"])
    if "item" in event:
        check_item(event["item"])


def _check(found: Mapping[str, Any], wanted: Mapping[str, Check], what: str) -> None:
    wrong: Sequence[str] = [name for name, good in wanted.items() if name not in found or not good(found[name])]
    assert not wrong, f"{what}: {wrong}"
