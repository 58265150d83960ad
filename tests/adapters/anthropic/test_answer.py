"""Answers that no recorded case has: streams out of order, and bodies that are no message."""

import json
from typing import Any

import pytest
from msgspec.structs import replace

from adapters.canonical.errors import BadUpstreamResponse, GatewayError, StreamTruncated
from adapters.canonical.events import ChoiceFinished, Event, Started, TextDelta
from adapters.canonical.messages import ToolCall
from adapters.canonical.result import fold
from adapters.canonical.usage import Usage
from tests.adapters.anthropic.exchange import messages, sse

START = {"type": "message_start", "message": {"id": "m", "model": "c", "usage": {"input_tokens": 1}}}
OPEN = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
SHUT = {"type": "content_block_stop", "index": 0}
STOP = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}}
END = {"type": "message_stop"}


def delta(text: Any, index: int = 0) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": "text_delta", "text": text}}


def read(*events: dict[str, Any]) -> tuple[list[Event], GatewayError | None]:
    return messages(stream=True).read_stream(sse(*events))


def test_a_stream_without_its_start_still_begins_with_one_event() -> None:
    events, error = read(OPEN, delta("a"), SHUT, STOP, END)
    assert error is None
    assert events[0] == Started()
    assert sum(isinstance(event, Started) for event in events) == 1


def test_deltas_of_a_long_block_add_up_with_pings_and_other_blocks_between() -> None:
    words = [f"w{number}é\n" for number in range(40)]
    events: list[dict[str, Any]] = [START, OPEN]
    for number, word in enumerate(words):
        events.append(delta(word))
        if number % 7 == 0:
            events.append({"type": "ping"})
    second = [{**OPEN, "index": 1}, delta("again", 1), {**SHUT, "index": 1}]
    found, error = read(*events, SHUT, *second, STOP, END)
    assert error is None
    assert [part.text for part in fold(found).choices[0].parts] == ["".join(words), "again"]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "events",
    [
        [START, delta("a")],
        [START, OPEN, SHUT, delta("a")],
        [START, OPEN, delta(5)],
        [START, {"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "id": "a"}}],
        [START, OPEN, SHUT, STOP, {**OPEN, "index": 1}],
    ],
)
def test_a_stream_against_the_protocol_is_an_error(events: list[dict[str, Any]]) -> None:
    found, error = read(*events, END)
    assert isinstance(error, BadUpstreamResponse)
    assert not any(isinstance(event, ChoiceFinished) for event in found)


def test_a_stream_that_stops_without_a_reason_is_truncated() -> None:
    found, error = read(START, OPEN, delta("a"), SHUT, END)
    assert isinstance(error, StreamTruncated)
    assert TextDelta(0, 0, "a") in found


@pytest.mark.parametrize(
    "body", [b"{}", b"[]", b"null", b"<html>", b'{"content":[]}', b'{"type":"message","content":5}']
)
def test_a_body_that_is_no_message_is_an_error(body: bytes) -> None:
    with pytest.raises(BadUpstreamResponse):
        messages().upstream.parse_body(messages().request, body)


def test_a_message_that_says_nothing_is_still_an_answer() -> None:
    body = json.dumps({"type": "message", "content": [], "stop_reason": "end_turn"}).encode()
    _, finish = messages().upstream.parse_body(messages().request, body)
    assert isinstance(finish, ChoiceFinished)


def call(index: int, **fields: Any) -> list[dict[str, Any]]:
    block = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}, **fields}
    opened = {"type": "content_block_start", "index": index, "content_block": block}
    return [opened, {"type": "content_block_stop", "index": index}]


def calls_in(*events: dict[str, Any]) -> list[ToolCall]:
    found, error = read(*events)
    assert error is None
    return [part for part in fold(found).choices[0].parts if isinstance(part, ToolCall)]


def test_a_null_is_as_good_as_a_field_that_is_not_there() -> None:
    nulls = {"thinking": None, "partial_json": None, "signature": None, "citation": None}
    opened = {"type": "content_block_start", "index": None, "content_block": {"type": "text", "text": None, "id": None}}
    said = {"type": "content_block_delta", "index": None, "delta": {"type": "text_delta", "text": "a", **nulls}}
    silent = {"type": "content_block_delta", "index": None, "delta": {"type": "text_delta", "text": None}}
    found, error = read(START, opened, said, silent, {**SHUT, "index": None}, STOP, END)
    assert error is None
    assert [event for event in found if isinstance(event, TextDelta)] == [TextDelta(0, 0, "a")]
    body = json.dumps({"type": "message", "content": None, "stop_reason": "end_turn"}).encode()
    assert len(messages().upstream.parse_body(messages().request, body)) == 2


@pytest.mark.parametrize("lacking", [{"id": ""}, {"id": None}, {"id": "toolu_1"}])
def test_calls_without_an_id_of_their_own_get_one(lacking: dict[str, Any]) -> None:
    first, second = calls_in(START, *call(0), *call(1, **lacking), STOP, END)
    assert first.id == "toolu_1"
    assert second.id not in ("", "toolu_1")


@pytest.mark.parametrize("said", [{"city": "Oslo"}, '{"city": "Oslo"}'])
def test_an_input_is_an_object_also_where_a_host_writes_it_as_a_string(said: object) -> None:
    (found,) = calls_in(START, *call(0, input=said), STOP, END)
    assert json.loads(found.arguments) == {"city": "Oslo"}


@pytest.mark.parametrize("said", ["", None, {}])
def test_an_input_of_nothing_is_an_empty_object(said: object) -> None:
    (found,) = calls_in(START, *call(0, input=said), STOP, END)
    assert found.arguments == "{}"


def used(at_start: object, at_end: object) -> Usage | None:
    start = {"type": "message_start", "message": {"usage": at_start}}
    found, error = read(start, OPEN, delta("a"), SHUT, {**STOP, "usage": at_end}, END)
    assert error is None
    return fold(found).usage


def test_a_prompt_of_nothing_does_not_take_the_count_of_the_start_back() -> None:
    counted = {"input_tokens": 30, "cache_read_input_tokens": 9, "output_tokens": 0}
    nothing = {"input_tokens": 0, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0, "output_tokens": 5}
    expected = Usage(prompt_tokens=39, completion_tokens=5, cached_tokens=9, cache_write_tokens=0)
    assert used(counted, nothing) == expected
    assert used({"input_tokens": 0}, {**counted, "output_tokens": 5}) == Usage(
        prompt_tokens=39, completion_tokens=5, cached_tokens=9
    )
    assert used(counted, {"input_tokens": 0, "cache_read_input_tokens": 39}) == Usage(
        prompt_tokens=39, completion_tokens=0, cached_tokens=39
    )


def test_counts_of_another_type_are_read_where_they_are_counts_and_never_cost_an_answer() -> None:
    assert used({"input_tokens": "3"}, {"output_tokens": 5.0}) == Usage(prompt_tokens=3, completion_tokens=5)
    assert used({"input_tokens": -3}, {"output_tokens": 5}) == Usage(completion_tokens=5)
    assert used({"input_tokens": []}, {"output_tokens": "many"}) is None


def test_a_call_with_the_id_of_an_earlier_one_gets_another() -> None:
    used_before = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "ok"}
    said = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": [used_before]},
        {"role": "user", "content": [result]},
    ]
    found, error = messages(stream=True, messages=said).read_stream(sse(START, *call(0), STOP, END))
    assert error is None
    (made,) = [part for part in fold(found).choices[0].parts if isinstance(part, ToolCall)]
    assert made.id not in ("", "toolu_1")


@pytest.mark.parametrize("lives", [None, 7, [], {}, {"ephemeral_1h_input_tokens": "many"}])
def test_what_was_written_to_a_cache_for_an_hour_is_known_apart(lives: object) -> None:
    counts = {"input_tokens": 1, "cache_creation_input_tokens": 30, "output_tokens": 0}
    for_an_hour = {"ephemeral_5m_input_tokens": 10, "ephemeral_1h_input_tokens": 20}
    written = Usage(prompt_tokens=31, completion_tokens=5, cache_write_tokens=30)
    end = {"output_tokens": 5}
    assert used({**counts, "cache_creation": for_an_hour}, end) == replace(written, cache_write_1h_tokens=20)
    assert used({**counts, "cache_creation": lives}, end) == written
