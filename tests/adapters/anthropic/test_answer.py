"""Answers that no recorded case has: streams out of order, and bodies that are no message."""

import json
from typing import Any

import pytest

from adapters.canonical.errors import BadUpstreamResponse, GatewayError, StreamTruncated
from adapters.canonical.events import ChoiceFinished, Event, Started, TextDelta
from adapters.canonical.result import fold
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
