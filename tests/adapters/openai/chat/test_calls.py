"""Tool call fragments, as upstreams of every kind send them."""

from typing import Any

import pytest

from adapters.canonical.errors import BadUpstreamResponse
from adapters.canonical.events import ChoiceFinished, ToolArgumentsDelta, ToolCallFinished, ToolCallStarted
from adapters.canonical.messages import ToolCall
from adapters.canonical.result import fold
from adapters.canonical.stop_reason import StopReason
from tests.adapters.openai.exchange import chat, sse

TOOLS = [{"type": "function", "function": {"name": name}} for name in ("f", "g")]


def fragment(index: int | None = None, id: str | None = None, name: str | None = None, args: Any = None) -> Any:
    """One element of delta.tool_calls; None leaves a field out."""
    function = {key: value for key, value in (("name", name), ("arguments", args)) if value is not None}
    found = {"index": index, "id": id, "function": function or None}
    return {key: value for key, value in found.items() if value is not None}


def read(*fragments: Any, finish: str | None = "tool_calls", **fields: Any) -> tuple[list[ToolCall], list[Any]]:
    """The calls of a stream with one fragment a chunk, and its events."""
    deltas = [{"index": 0, "delta": {"tool_calls": [one]}} for one in fragments]
    ends = [{"index": 0, "delta": {}, "finish_reason": finish}] if finish else []
    chunks = [{"choices": [choice]} for choice in (*deltas, *ends)]
    events, error = chat(stream=True, tools=TOOLS, **fields).read_stream(sse(*chunks))
    if error is not None:
        raise error
    parts = fold(events).choices[0].parts
    assert all(isinstance(part, ToolCall) for part in parts)
    return [part for part in parts if isinstance(part, ToolCall)], list(events)


def one(call: ToolCall) -> tuple[str, str, str]:
    return call.id, call.name, call.arguments


@pytest.mark.parametrize("again", [None, "", "a"])
def test_an_id_that_is_empty_or_repeated_on_later_fragments_is_the_same_call(again: str | None) -> None:
    calls, _ = read(fragment(0, "a", "f", ""), fragment(0, again, None, '{"x":'), fragment(0, again, "", "1}"))
    assert [one(call) for call in calls] == [("a", "f", '{"x":1}')]


def test_a_repeated_name_is_the_same_call() -> None:
    calls, _ = read(fragment(0, "a", "f", "{"), fragment(0, None, "f", "}"))
    assert [one(call) for call in calls] == [("a", "f", "{}")]


def test_a_late_name_begins_the_call_with_all_its_arguments() -> None:
    calls, events = read(fragment(0, "a", None, "{"), fragment(0, None, None, '"x"'), fragment(0, None, "f", ":1}"))
    assert [one(call) for call in calls] == [("a", "f", '{"x":1}')]
    assert [type(event) for event in events[1:4]] == [ToolCallStarted, ToolArgumentsDelta, ToolArgumentsDelta]


def test_a_late_id_is_kept_when_it_comes_before_the_arguments() -> None:
    calls, _ = read(fragment(0, None, "f"), fragment(0, "a"), fragment(0, None, None, "{}"))
    assert [one(call) for call in calls] == [("a", "f", "{}")]


def test_an_id_that_comes_after_the_arguments_began_makes_no_second_call() -> None:
    calls, _ = read(fragment(0, None, "f", "{"), fragment(0, "late", None, "}"))
    assert [one(call) for call in calls] == [("call_1", "f", "{}")]


def test_the_same_index_with_another_id_is_another_call() -> None:
    calls, _ = read(fragment(0, "a", "f", "{}"), fragment(0, "b", "f", '{"x":1}'))
    assert [one(call) for call in calls] == [("a", "f", "{}"), ("b", "f", '{"x":1}')]


def test_the_same_index_with_another_name_and_no_ids_is_another_call() -> None:
    calls, _ = read(fragment(0, None, "f", "{}"), fragment(0, None, "g", "{}"))
    assert [one(call) for call in calls] == [("call_1", "f", "{}"), ("call_2", "g", "{}")]


def test_without_indexes_a_fragment_without_a_name_continues_the_last_call() -> None:
    calls, _ = read(
        fragment(None, "a", "f", "{"),
        fragment(None, None, None, "}"),
        fragment(None, "b", "g", "["),
        fragment(None, "", None, "]"),
    )
    assert [one(call) for call in calls] == [("a", "f", "{}"), ("b", "g", "[]")]


def test_without_indexes_a_known_id_continues_its_call() -> None:
    calls, _ = read(
        fragment(None, "a", "f", "{"),
        fragment(None, "b", "g", "{"),
        fragment(None, "a", None, "}"),
        fragment(None, "b", None, "}"),
    )
    assert [one(call) for call in calls] == [("a", "f", "{}"), ("b", "g", "{}")]


def test_without_indexes_and_ids_each_name_is_a_call() -> None:
    calls, _ = read(fragment(None, None, "f", "{}"), fragment(None, None, "g", "{}"))
    assert [one(call) for call in calls] == [("call_1", "f", "{}"), ("call_2", "g", "{}")]


def test_an_id_that_is_new_on_each_fragment_is_the_same_call() -> None:
    calls, _ = read(fragment(0, "a", "f", ""), fragment(0, "b", None, '{"x":'), fragment(0, "c", "", "1}"))
    assert [one(call) for call in calls] == [("a", "f", '{"x":1}')]
    calls, _ = read(fragment(0, "a", "f", '{"x":'), fragment(0, "b", "f", "1}"))
    assert [one(call) for call in calls] == [("a", "f", '{"x":1}')]


@pytest.mark.parametrize(("first", "second"), [("f", "f"), ("f", "g")])
@pytest.mark.parametrize("same_id", [None, "a"])
@pytest.mark.parametrize("index", [0, None])
def test_a_name_behind_whole_arguments_is_another_call_whatever_index_and_id_say(
    first: str, second: str, same_id: str | None, index: int | None
) -> None:
    calls, _ = read(fragment(index, same_id, first, '{"x":1}'), fragment(index, same_id, second, '{"x":2}'))
    assert [(call.name, call.arguments) for call in calls] == [(first, '{"x":1}'), (second, '{"x":2}')]
    assert len({call.id for call in calls}) == 2


def test_a_whole_call_that_is_said_once_more_is_one_call() -> None:
    calls, _ = read(fragment(0, "a", "f", '{"x":'), fragment(0, None, None, "1}"), fragment(0, "a", "f", '{"x":1}'))
    assert [one(call) for call in calls] == [("a", "f", '{"x":1}')]


@pytest.mark.parametrize("rest", [('{"x":1}',), ('{"x"', ":1}"), (' {"x":1}',)])
def test_an_empty_object_before_the_arguments_is_none_of_them(rest: tuple[str, ...]) -> None:
    calls, _ = read(fragment(0, "a", "f", "{}"), *[fragment(0, None, None, text) for text in rest])
    assert [(call.id, call.arguments.strip()) for call in calls] == [("a", '{"x":1}')]


def test_an_empty_object_alone_is_the_arguments() -> None:
    calls, events = read(fragment(0, "a", "f", "{}"), fragment(1, "b", "g", "{}"), fragment(0, None, None, ""))
    assert [one(call) for call in calls] == [("a", "f", "{}"), ("b", "g", "{}")]
    assert sum(isinstance(event, ToolArgumentsDelta) for event in events) == 2


def test_custom_calls_without_indexes_are_told_apart_by_name() -> None:
    custom = [{"type": "custom", "custom": {"name": name, "input": "x"}} for name in ("f", "g")]
    calls, _ = read(*custom)
    assert [(call.name, call.kind, call.arguments) for call in calls] == [("f", "custom", "x"), ("g", "custom", "x")]


def test_an_id_that_two_calls_share_is_replaced() -> None:
    calls, _ = read(fragment(0, "a", "f", "{}"), fragment(1, "a", "g", "{}"))
    assert [one(call) for call in calls] == [("a", "f", "{}"), ("call_1", "g", "{}")]


def test_an_id_of_an_earlier_call_of_the_conversation_is_replaced() -> None:
    earlier = {"role": "assistant", "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f"}}]}
    said = [{"role": "user", "content": "hi"}, earlier, {"role": "tool", "tool_call_id": "a", "content": "ok"}]
    said[1]["tool_calls"][0]["function"]["arguments"] = "{}"  # type: ignore[index]
    calls, _ = read(fragment(0, "a", "f", "{}"), fragment(1, "b", "g", "{}"), messages=said)
    assert [call.id for call in calls] == ["call_1", "b"]


def test_a_gap_in_the_upstreams_indexes_is_closed() -> None:
    calls, events = read(fragment(3, "a", "f", "{}"), fragment(7, "b", "g", "{}"))
    assert [one(call) for call in calls] == [("a", "f", "{}"), ("b", "g", "{}")]
    assert [event.part for event in events if isinstance(event, ToolCallStarted)] == [0, 1]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [({"x": 1}, '{"x": 1}'), ({}, "{}"), ("", "{}"), (None, "{}"), ('"{}"', '"{}"'), (7, "7")],
)
def test_arguments_may_come_as_an_object_or_not_at_all(arguments: Any, expected: str) -> None:
    calls, _ = read(fragment(0, "a", "f", arguments))
    assert calls[0].arguments == expected


def test_a_call_whose_arguments_never_came_is_announced_at_the_end() -> None:
    _, events = read(fragment(0, None, "f"))
    assert events[1:] == [
        ToolCallStarted(0, 0, "call_1", "f"),
        ToolArgumentsDelta(0, 0, "{}"),
        ToolCallFinished(0, 0),
        ChoiceFinished(0, StopReason.TOOL_CALLS, "tool_calls"),
    ]


def test_a_cut_call_is_not_completed() -> None:
    calls, events = read(fragment(0, "a", "f"), finish="length")
    assert calls[0].arguments == ""
    assert events[-1] == ChoiceFinished(0, StopReason.LENGTH, "length")


def test_a_call_without_a_name_is_an_upstream_error() -> None:
    with pytest.raises(BadUpstreamResponse, match="without a name"):
        read(fragment(0, "a", None, "{}"))


@pytest.mark.parametrize("arguments", [rb'"\ud800"', b'"\xff"', b'{"x":"\xff"}'])
def test_arguments_that_are_not_unicode_are_an_upstream_error(arguments: bytes) -> None:
    call = b'{"id":"a","function":{"name":"f","arguments":%b}}' % arguments
    payload = b'data: {"choices":[{"index":0,"delta":{"tool_calls":[%b]}}]}\n\n' % call
    _, error = chat(stream=True).read_stream(payload)
    assert isinstance(error, BadUpstreamResponse)


def test_without_parallel_calls_the_first_alone_is_kept_with_dense_parts() -> None:
    calls, events = read(
        fragment(0, "a", "f", "{"),
        fragment(1, "b", "g", "{}"),
        fragment(0, None, None, "}"),
        parallel_tool_calls=False,
    )
    assert [one(call) for call in calls] == [("a", "f", "{}")]
    assert {event.part for event in events if isinstance(event, ToolCallStarted | ToolCallFinished)} == {0}


@pytest.mark.parametrize(
    ("finish", "reason"),
    [
        ("stop", StopReason.TOOL_CALLS),
        ("tool_calls", StopReason.TOOL_CALLS),
        ("function_call", StopReason.TOOL_CALLS),
        ("eos", StopReason.TOOL_CALLS),
        ("length", StopReason.LENGTH),
        ("content_filter", StopReason.CONTENT_FILTER),
        ("novel", StopReason.OTHER),
    ],
)
def test_the_stop_reason_follows_from_the_calls_and_the_upstreams_word(finish: str, reason: StopReason) -> None:
    _, events = read(fragment(0, "a", "f", "{}"), finish=finish)
    assert events[-1].reason is reason
