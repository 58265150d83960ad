"""The blocks that a Messages client reads: dense, one open at a time, never empty, whatever order the parts come in."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.canonical.errors import UpstreamError, UpstreamOverloaded
from adapters.canonical.events import (
    AnnotationAdded,
    ChoiceFinished,
    Event,
    MediaDelta,
    ProviderReported,
    ReasoningDelta,
    ReasoningFinished,
    RefusalDelta,
    Started,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallFinished,
    ToolCallStarted,
    UsageReported,
)
from adapters.canonical.messages import ProviderData
from adapters.canonical.stop_reason import StopReason
from adapters.canonical.usage import Usage
from adapters.origin_marks import marked
from tests.adapters.anthropic.exchange import blocks_of, events_of, messages

STOP = ChoiceFinished(0, StopReason.STOP, "stop")
CALLED = ChoiceFinished(0, StopReason.TOOL_CALLS, "tool_calls")


def streamed(*events: Event) -> bytes:
    return messages(stream=True).stream([Started(), *events])


def body(*events: Event) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(messages().answer([Started(), *events]))
    return found


def call(part: int, name: str = "f") -> ToolCallStarted:
    return ToolCallStarted(0, part, f"call_{part}", name)


def use(part: int, value: dict[str, Any]) -> dict[str, Any]:
    return {"type": "tool_use", "id": f"call_{part}", "name": "f", "input": value}


def arguments(part: int, text: str) -> ToolArgumentsDelta:
    return ToolArgumentsDelta(0, part, text)


def test_calls_that_come_one_after_another_are_streamed_though_their_ends_come_last() -> None:
    renderer = messages(stream=True).renderer()
    renderer.feed([Started(), call(0), arguments(0, '{"a":'), arguments(0, "1}")])
    frames = events_of(renderer.feed([call(1)]))
    assert [frame["type"] for frame in frames] == ["content_block_stop", "content_block_start"]
    assert renderer.feed([arguments(1, "{}")])
    rest = events_of(renderer.feed([ToolCallFinished(0, 0), ToolCallFinished(0, 1), CALLED]) + renderer.finish())
    assert [frame["type"] for frame in rest] == ["content_block_stop", "message_delta", "message_stop"]


def test_calls_that_come_interleaved_are_put_in_a_row() -> None:
    events: list[Event] = [
        call(0),
        call(1),
        arguments(1, '{"b":'),
        arguments(0, '{"a":'),
        call(2),
        arguments(2, "{}"),
        arguments(1, "2}"),
        arguments(0, "1}"),
        TextDelta(0, 3, "and so"),
        ToolCallFinished(0, 0),
        ToolCallFinished(0, 1),
        ToolCallFinished(0, 2),
        CALLED,
    ]
    expected = [use(0, {"a": 1}), use(1, {"b": 2}), use(2, {}), {"type": "text", "text": "and so"}]
    assert blocks_of(streamed(*events)) == expected
    assert body(*events)["content"] == expected


@given(st.data())
def test_any_order_of_the_pieces_gives_the_same_blocks(data: st.DataObject) -> None:
    pieces: dict[int, list[Event]] = {
        0: [call(0), arguments(0, '{"a"'), arguments(0, ":1}"), ToolCallFinished(0, 0)],
        1: [call(1), arguments(1, '{"b":{'), arguments(1, '"c":2}}'), ToolCallFinished(0, 1)],
        2: [call(2), arguments(2, "{}"), ToolCallFinished(0, 2)],
    }
    events: list[Event] = []
    left = {part: list(queue) for part, queue in pieces.items()}
    while any(left.values()):
        opened = {event.part for event in events if isinstance(event, ToolCallStarted)}
        ready = [part for part, queue in left.items() if queue and (part in opened or part == len(opened))]
        events.append(left[data.draw(st.sampled_from(ready))].pop(0))
    found = blocks_of(streamed(*events, CALLED))
    assert found == [use(0, {"a": 1}), use(1, {"b": {"c": 2}}), use(2, {})]


def test_nothing_makes_no_block() -> None:
    empty: list[Event] = [
        TextDelta(0, 0, ""),
        ReasoningDelta(0, 1, ""),
        RefusalDelta(0, 2, ""),
        MediaDelta(0, 3, "audio", "QQ=="),
    ]
    foreign = AnnotationAdded(0, 4, b"{}", "openai.chat")
    details = ReasoningFinished(0, 1, provider_data=ProviderData("openai.chat", {"reasoning_details": b"[]"}))
    assert blocks_of(streamed(*empty, foreign, details, STOP)) == []
    assert body(*empty, foreign, details, STOP)["content"] == []


def test_thought_and_text_are_blocks_of_their_own() -> None:
    events: list[Event] = [
        ReasoningDelta(0, 0, "h"),
        ReasoningDelta(0, 0, "m"),
        TextDelta(0, 1, "a"),
        TextDelta(0, 1, "b"),
        ReasoningDelta(0, 2, "again"),
        ReasoningFinished(0, 2, signature="S", origin="x"),
        ReasoningFinished(0, 3, encrypted="E", origin="x"),
        STOP,
    ]
    expected = [
        {"type": "thinking", "thinking": "hm", "signature": ""},
        {"type": "text", "text": "ab"},
        {"type": "thinking", "thinking": "again", "signature": marked("S", "x")},
        {"type": "redacted_thinking", "data": marked("E", "x")},
    ]
    assert blocks_of(streamed(*events)) == expected
    assert body(*events)["content"] == expected


@pytest.mark.parametrize(
    ("finish", "events", "word", "sequence"),
    [
        (STOP, [TextDelta(0, 0, "a")], "end_turn", None),
        (STOP, [call(0), arguments(0, "{}")], "tool_use", None),
        (CALLED, [call(0), arguments(0, "{}")], "tool_use", None),
        (ChoiceFinished(0, StopReason.LENGTH, "length"), [call(0), arguments(0, "{}")], "max_tokens", None),
        (ChoiceFinished(0, StopReason.STOP, "stop", "END"), [TextDelta(0, 0, "a")], "stop_sequence", "END"),
        (ChoiceFinished(0, StopReason.STOP, "stop", 7), [TextDelta(0, 0, "a")], "end_turn", None),
        (ChoiceFinished(0, StopReason.CONTENT_FILTER), [TextDelta(0, 0, "a")], "refusal", None),
        (STOP, [RefusalDelta(0, 0, "No.")], "refusal", None),
        (ChoiceFinished(0, StopReason.PAUSED, "pause_turn"), [TextDelta(0, 0, "a")], "pause_turn", None),
        (ChoiceFinished(0, StopReason.OTHER, "odd"), [TextDelta(0, 0, "a")], "end_turn", None),
        (
            ChoiceFinished(0, StopReason.LENGTH, "model_context_window_exceeded"),
            [TextDelta(0, 0, "a")],
            "model_context_window_exceeded",
            None,
        ),
    ],
)
def test_the_stop_reason_follows_from_what_was_said(
    finish: ChoiceFinished, events: list[Event], word: str, sequence: str | None
) -> None:
    delta = events_of(streamed(*events, finish))[-2]["delta"]
    whole = body(*events, finish)
    for found in (delta, whole):
        assert (found["stop_reason"], found["stop_sequence"]) == (word, sequence)
        assert found.get("native_stop_reason") == ("odd" if finish.raw == "odd" else None)


@pytest.mark.parametrize("reason", [StopReason.ERROR, StopReason.CANCELLED])
def test_an_answer_that_was_given_up_is_an_error_and_never_a_stop_reason(reason: StopReason) -> None:
    finish = ChoiceFinished(0, reason, "gone")
    renderer = messages(stream=True).renderer()
    renderer.feed([Started(), TextDelta(0, 0, "a")])
    with pytest.raises(UpstreamError):
        renderer.feed([finish])
    with pytest.raises(UpstreamError):
        body(TextDelta(0, 0, "a"), finish)


def test_an_error_is_the_last_event() -> None:
    frames = messages(stream=True).stream([Started(), TextDelta(0, 0, "par")], UpstreamOverloaded("busy"))
    assert [event["type"] for event in events_of(frames)] == [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "error",
    ]


def test_usage_leaves_the_cache_out_of_the_input_and_is_told_at_both_ends() -> None:
    early = Usage(prompt_tokens=100, completion_tokens=1, cached_tokens=60, cache_write_tokens=10)
    late = Usage(prompt_tokens=100, completion_tokens=9, cached_tokens=60, cache_write_tokens=10, reasoning_tokens=4)
    events: list[Event] = [UsageReported(early), TextDelta(0, 0, "a"), STOP, UsageReported(late)]
    first, *_, delta, _ = events_of(streamed(*events))
    counts = {"input_tokens": 30, "cache_creation_input_tokens": 10, "cache_read_input_tokens": 60}
    assert first["message"]["usage"] == {**counts, "output_tokens": 1}
    total = {**counts, "output_tokens": 9, "output_tokens_details": {"thinking_tokens": 4}}
    assert delta["usage"] == total
    assert body(*events)["usage"] == total


def test_fields_of_another_dialect_stay_out() -> None:
    events: list[Event] = [ProviderReported({"system_fingerprint": b'"x"'}, "openai.chat"), TextDelta(0, 0, "a"), STOP]
    assert "system_fingerprint" not in body(*events)
    assert b"system_fingerprint" not in streamed(*events)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", {}),
        ("null", {}),
        (' {"a":1} ', {"a": 1}),
        ('{"a":', {"INVALID_JSON": '{"a":'}),
        ("5", {"INVALID_JSON": "5"}),
    ],
)
def test_arguments_that_are_no_object_stand_in_one(text: str, value: dict[str, Any]) -> None:
    assert body(call(0), arguments(0, text), CALLED)["content"] == [use(0, value)]
