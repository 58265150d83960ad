"""Totals that come with nearly every chunk: read when they are asked for, none of them lost."""

import json
from typing import Any

from adapters.canonical.events import UsageReported
from adapters.canonical.usage import Usage
from adapters.gemini.usage import RunningUsage
from tests.adapters.gemini.exchange import chat, sse


def raw(**counts: Any) -> bytes:
    return json.dumps(counts).encode()


def test_a_later_report_replaces_an_earlier_one_but_for_what_it_leaves_out() -> None:
    running = RunningUsage()
    running.note(raw(promptTokenCount=4, cachedContentTokenCount=3))
    running.note(raw(promptTokenCount=4, candidatesTokenCount=1, thoughtsTokenCount=7))
    running.note(raw(promptTokenCount=5, candidatesTokenCount=2))
    expected = Usage(prompt_tokens=5, completion_tokens=9, cached_tokens=3, reasoning_tokens=7)
    assert running.report() == (expected, {})
    assert running.report() == (None, {})


def test_fields_that_we_do_not_map_are_news_once() -> None:
    running = RunningUsage()
    running.note(raw(promptTokenCount=4, trafficType="ON_DEMAND", later=None))
    assert running.report() == (Usage(prompt_tokens=4), {"trafficType": b'"ON_DEMAND"'})
    running.note(raw(promptTokenCount=4, trafficType="ON_DEMAND"))
    assert running.report() == (None, {})


def test_prompts_of_tools_and_kinds_of_tokens_are_told() -> None:
    running = RunningUsage()
    shares = [{"modality": "TEXT", "tokenCount": 3}, {"modality": "AUDIO", "tokenCount": 1}]
    running.note(raw(promptTokenCount=4, toolUsePromptTokenCount=6, promptTokensDetails=shares))
    assert running.report()[0] == Usage(prompt_tokens=10, prompt_text_tokens=3, prompt_audio_tokens=1)


def test_running_totals_are_told_to_clients_that_want_them_and_else_at_the_end() -> None:
    chunks = [
        {
            "candidates": [{"content": {"parts": [{"text": "a"}], "role": "model"}, "index": 0}],
            "usageMetadata": {"promptTokenCount": 4, "candidatesTokenCount": count},
        }
        for count in (1, 2, 3)
    ]
    stream = sse(*chunks, {"candidates": [{"finishReason": "STOP", "index": 0}]})
    options = {"include_usage": True, "continuous_usage_stats": True}
    for fields, counts in (({"stream_options": options}, [1, 2, 3]), ({}, [1, 3])):
        events, error = chat(stream=True, **fields).read_stream(stream)
        assert error is None
        told = [event.usage.completion_tokens for event in events if isinstance(event, UsageReported)]
        assert told == counts
