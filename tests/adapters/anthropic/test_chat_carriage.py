"""Answers of Anthropic for chat clients: the openai SDK reads them, streamed as whole, signed thoughts included."""

import json

import pytest
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from adapters.canonical.events import Event
from adapters.openai.chat.front import ChatFront
from tests.adapters.anthropic.exchange import Exchange
from tests.adapters.golden_case import GoldenCase, golden_cases
from tests.adapters.openai.exchange import chunks_of
from tests.adapters.openai.test_sdk_oracle import essence, without_nulls


def good(case: GoldenCase) -> tuple[Exchange, list[Event]] | None:
    exchange = Exchange(case.request)
    if case.stream is None or not isinstance(exchange.front, ChatFront):
        return None
    events, error = exchange.read_stream(case.stream)
    return (exchange, events) if error is None else None


CASES = [case for case in golden_cases("anthropic") if good(case)]


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_the_openai_sdk_reads_the_same_streamed_and_whole(case: GoldenCase) -> None:
    found = good(case)
    assert found is not None
    exchange, events = found
    state: ChatCompletionStreamState[None] = ChatCompletionStreamState()
    for chunk in chunks_of(exchange.stream(events)):
        state.handle_chunk(ChatCompletionChunk.model_validate(chunk, strict=True))
    streamed = json.loads(state.current_completion_snapshot.model_dump_json())
    whole = json.loads(exchange.answer(events))
    ChatCompletion.model_validate(whole, strict=True)
    for choice in (streamed["choices"][0], whole["choices"][0]):
        choice["message"]["reasoning_content"] = choice["message"].get("reasoning_content") or None
    assert essence(streamed["choices"][0]) == essence(whole["choices"][0])
    assert without_nulls(streamed["usage"]) == whole["usage"]


def test_a_signed_thought_reaches_the_openai_sdk_in_one_piece() -> None:
    (case,) = [case for case in CASES if case.name == "chat_thinking_interleaved"]
    found = good(case)
    assert found is not None
    exchange, events = found
    message = json.loads(exchange.answer(events))["choices"][0]["message"]
    assert message["reasoning_details"] == [
        {"type": "reasoning.text", "text": "one", "signature": "S1", "index": 0, "origin": "claude"},
        {"type": "reasoning.text", "text": "two", "signature": "S2", "index": 1, "origin": "claude", "position": 2},
    ]
