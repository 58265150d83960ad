"""The readers that checks rely on take a good stream and refuse a broken one."""

import json
from typing import Any

import pytest

from tests.cases.anthropic_stream import fold_messages
from tests.cases.case import case_named
from tests.cases.reply import Reply, fold
from tests.cases.responses_stream import final_response


def _reply(body: bytes) -> Reply:
    return Reply(200, {"content-type": "text/event-stream"}, body)


def test_a_stream_of_messages_is_put_together() -> None:
    message = fold_messages(_reply(case_named("US-02").upstream_bytes).events)
    assert [block.text for block in message.blocks] == ["hi"]
    assert message.stop_reason == "end_turn"
    assert message.usage["output_tokens"] == 9


def test_a_block_that_is_never_closed_is_refused() -> None:
    events = [event for event in _reply(case_named("US-02").upstream_bytes).events if event[0] != "content_block_stop"]
    with pytest.raises(AssertionError):
        fold_messages(events)


def _responses_events() -> list[tuple[str, Any]]:
    at = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    text = {"type": "output_text", "text": "hello", "annotations": []}
    done = {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant", "content": [text]}
    ended = {"error": None, "incomplete_details": None}
    rows: list[tuple[str, Any]] = [
        ("response.created", {"response": {"id": "r", "status": "in_progress", "output": []}}),
        ("response.in_progress", {"response": {"id": "r", "status": "in_progress", "output": []}}),
        ("response.output_item.added", {"output_index": 0, "item": {**done, "status": "in_progress", "content": []}}),
        ("response.content_part.added", {**at, "part": {**text, "text": ""}}),
        ("response.output_text.delta", {**at, "delta": "he", "logprobs": []}),
        ("response.output_text.delta", {**at, "delta": "llo", "logprobs": []}),
        ("response.output_text.done", {**at, "text": "hello", "logprobs": []}),
        ("response.content_part.done", {**at, "part": text}),
        ("response.output_item.done", {"output_index": 0, "item": done}),
        ("response.completed", {"response": {"id": "r", "status": "completed", "output": [done], **ended}}),
    ]
    return rows


def _numbered(rows: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    return [(name, {"type": name, "sequence_number": number, **data}) for number, (name, data) in enumerate(rows)]


def test_a_stream_of_a_response_is_put_together() -> None:
    assert final_response(_numbered(_responses_events()))["output"][0]["content"][0]["text"] == "hello"


@pytest.mark.parametrize("missing", range(10))
def test_a_response_stream_without_any_one_of_its_events_is_refused(missing: int) -> None:
    events = _responses_events()
    del events[missing]
    with pytest.raises((AssertionError, KeyError)):
        final_response(_numbered(events))


def _chunks(*deltas: dict[str, Any]) -> bytes:
    rows = [{"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    return b"".join(b"data: %b\n\n" % json.dumps(row).encode() for row in rows) + b"data: [DONE]\n\n"


@pytest.mark.parametrize(
    "deltas",
    [
        [{"role": "assistant"}, {"role": "assistant"}],
        [{"role": "assistant"}, {"tool_calls": [{"index": 1, "id": "c", "function": {"name": "f"}}]}],
        [{"role": "assistant"}, {"tool_calls": [{"index": 0, "id": "c", "function": {"name": ""}}]}],
        [{"content": "no role"}],
    ],
)
def test_a_chat_stream_that_an_sdk_could_not_put_together_is_refused(deltas: list[dict[str, Any]]) -> None:
    with pytest.raises(AssertionError):
        fold(_reply(_chunks(*deltas)).chunks)
