"""Numbers of an upstream that no count can be, in every dialect: the answer is whole, and nothing adds them up."""

import json
from typing import Any

import pytest

from adapters.canonical.events import UsageReported
from adapters.canonical.usage import Usage
from tests.adapters.anthropic.exchange import messages
from tests.adapters.bedrock import exchange as bedrock
from tests.adapters.cohere import exchange as cohere
from tests.adapters.gemini.exchange import generate
from tests.adapters.ollama.exchange import ollama
from tests.adapters.openai.exchange import chat
from tests.adapters.openai.responses.exchange import responses
from tests.adapters.sides import Sides

CHOICE = {"index": 0, "message": {"role": "assistant", "content": "a"}, "finish_reason": "stop"}
TEXT = {"type": "text", "text": "a"}
CANDIDATE = {"content": {"role": "model", "parts": [{"text": "a"}]}, "finishReason": "STOP", "index": 0}
CASES: dict[str, tuple[Sides, dict[str, Any], Usage]] = {
    "chat": (
        chat(),
        {
            "choices": [CHOICE],
            "usage": {"prompt_tokens": 7, "completion_tokens": -1, "prompt_tokens_details": {"cached_tokens": -1}},
        },
        Usage(prompt_tokens=7),
    ),
    "chat_too_many": (
        chat(),
        {"choices": [CHOICE], "usage": {"prompt_tokens": 10**30, "completion_tokens": 5}},
        Usage(completion_tokens=5),
    ),
    "responses": (
        responses(),
        {
            "status": "completed",
            "output": [],
            "usage": {"input_tokens": 7, "output_tokens": 2**53 + 1, "input_tokens_details": {"cached_tokens": -1}},
        },
        Usage(prompt_tokens=7),
    ),
    "anthropic": (
        messages(),
        {
            "content": [TEXT],
            "stop_reason": "end_turn",
            "usage": {"input_tokens": -1, "cache_read_input_tokens": 500, "output_tokens": 5},
        },
        Usage(prompt_tokens=500, completion_tokens=5, cached_tokens=500),
    ),
    "gemini": (
        generate(),
        {
            "candidates": [CANDIDATE],
            "usageMetadata": {"promptTokenCount": 7, "toolUsePromptTokenCount": -1, "candidatesTokenCount": -1},
        },
        Usage(prompt_tokens=7),
    ),
    "ollama": (
        ollama(),
        {"message": {"content": "a"}, "done": True, "done_reason": "stop", "prompt_eval_count": 7, "eval_count": -1},
        Usage(prompt_tokens=7),
    ),
    "bedrock": (
        bedrock.chat(),
        {
            "output": {"message": {"role": "assistant", "content": [{"text": "a"}]}},
            "stopReason": "end_turn",
            "usage": {"inputTokens": 7, "cacheReadInputTokens": -1, "cacheWriteInputTokens": 2, "outputTokens": -1},
        },
        Usage(prompt_tokens=9, cache_write_tokens=2),
    ),
    "cohere": (
        cohere.chat(),
        {
            "message": {"role": "assistant", "content": [TEXT]},
            "finish_reason": "COMPLETE",
            "usage": {"tokens": {"input_tokens": 7.0, "output_tokens": -1.0}},
        },
        Usage(prompt_tokens=7),
    ),
}


@pytest.mark.parametrize("dialect", CASES)
def test_a_number_that_no_count_can_be_is_not_told(dialect: str) -> None:
    sides, body, expected = CASES[dialect]

    events, error = sides.read_body(json.dumps(body).encode())

    assert error is None
    assert [event.usage for event in events if isinstance(event, UsageReported)] == [expected]
