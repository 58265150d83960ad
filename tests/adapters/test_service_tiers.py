"""The tier at which an answer was made, which decides what it costs, in every upstream's place for it."""

import json
from typing import Any

import pytest

from adapters.canonical.events import Event, UsageReported
from adapters.canonical.usage import Usage, tier_of
from tests.adapters.anthropic.exchange import messages
from tests.adapters.openai.exchange import DONE, chat, sse
from tests.adapters.openai.responses.exchange import responses

CHOICE = {"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}
DELTA = {"index": 0, "delta": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}
COUNTS = {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}
CHAT = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "usage": COUNTS, "choices": [CHOICE]}
MESSAGE = {
    "id": "msg",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [{"type": "text", "text": "hi"}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
}
RESPONSE = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1,
    "model": "m",
    "status": "completed",
    "output": [
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "hi", "annotations": []}],
        }
    ],
    "usage": {"input_tokens": 3, "output_tokens": 1, "total_tokens": 4},
}


def usage_of(events: list[Event], error: Exception | None) -> Usage:
    assert error is None
    return [event for event in events if isinstance(event, UsageReported)][-1].usage


def body(answer: dict[str, Any], **fields: object) -> bytes:
    return json.dumps({**answer, **fields}).encode()


def test_chat_tells_it_beside_the_choices() -> None:
    assert usage_of(*chat().read_body(body(CHAT, service_tier="priority"))).tier == "priority"
    assert usage_of(*chat().read_body(body(CHAT, service_tier="default"))).tier is None


def test_a_stream_of_chat_tells_it_in_any_chunk_before_the_usage() -> None:
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    first, last = {**chunk, "choices": [DELTA], "service_tier": "flex"}, {**chunk, "choices": [], "usage": COUNTS}
    assert usage_of(*chat(stream=True).read_stream(sse(first, last) + DONE)).tier == "flex"


def test_messages_tell_it_in_the_usage_and_clients_still_read_it_there() -> None:
    exchange = messages()
    usage = {"input_tokens": 3, "output_tokens": 1, "service_tier": "batch"}
    events, error = exchange.read_body(body(MESSAGE, usage=usage))
    assert usage_of(events, error).tier == "batch"
    assert json.loads(exchange.answer(events))["usage"]["service_tier"] == "batch"


def test_responses_tell_it_at_their_top() -> None:
    assert usage_of(*responses().read_body(body(RESPONSE, service_tier="flex"))).tier == "flex"


@pytest.mark.parametrize("word", [None, "", "auto", "default", "standard", "standard_only", 7, {}])
def test_what_is_no_other_tier_is_the_standard_one(word: object) -> None:
    assert tier_of(word) is None
