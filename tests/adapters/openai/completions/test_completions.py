"""Legacy completions: prompts in, text and parallel logprob lists out."""

import json
from typing import Any

import pytest

from adapters.canonical.errors import BadUpstreamResponse, InvalidRequest, StreamTruncated
from adapters.canonical.events import (
    ChoiceFinished,
    Event,
    PromptReported,
    ProviderReported,
    ReasoningDelta,
    TextDelta,
    ToolCallStarted,
    UsageReported,
)
from adapters.canonical.stop_reason import StopReason
from adapters.canonical.usage import TokenLogprob, TopLogprob, Usage
from tests.adapters.openai.exchange import chunks_of, completion, sse

STOP = ChoiceFinished(0, StopReason.STOP)


@pytest.mark.parametrize(
    ("prompt", "prompts", "sent"),
    [
        ("", ("",), ""),
        ("a", ("a",), "a"),
        (["a"], ("a",), "a"),
        (["a", ""], ("a", ""), ["a", ""]),
        ([1, 2], ((1, 2),), [1, 2]),
        ([[1, 2]], ((1, 2),), [1, 2]),
        ([[1], [2, 3]], ((1,), (2, 3)), [[1], [2, 3]]),
        (["a", [1]], ("a", (1,)), ["a", [1]]),
    ],
)
def test_prompts_of_every_kind_are_taken(prompt: Any, prompts: Any, sent: Any) -> None:
    exchange = completion(prompt=prompt)
    assert exchange.request.prompts == prompts
    assert exchange.sent()["prompt"] == sent


@pytest.mark.parametrize(
    ("prompt", "path"),
    [
        ([], "prompt"),
        ([[]], "prompt[0]"),
        (["a", []], "prompt[1]"),
        (None, "prompt"),
        (5, "prompt"),
        ({}, "prompt"),
        (["a", 1], "prompt[1]"),
        ([1, "a"], "prompt[0]"),
        ([-1], "prompt[0]"),
        ([2**31], "prompt[0]"),
        ([1.5], "prompt[0]"),
        ([True], "prompt[0]"),
        ([[1, "a"]], "prompt[0][1]"),
        (["a"] * 2049, "prompt"),
    ],
)
def test_a_wrong_prompt_is_refused_with_its_path(prompt: Any, path: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        completion(prompt=prompt)
    assert caught.value.param == path


def test_best_of_must_not_be_less_than_n() -> None:
    with pytest.raises(InvalidRequest, match="best_of"):
        completion(n=3, best_of=2)
    assert completion(n=2, best_of=2).request.best_of == 2


def test_scoring_alone_is_asked_with_zero_tokens() -> None:
    assert completion(max_tokens=0, echo=True, logprobs=0).sent() == {
        "model": "m",
        "prompt": "hi",
        "echo": True,
        "max_tokens": 0,
        "logprobs": 0,
    }


def entry(text: str, logprob: float | None = -1.0, *tops: str, raw: bytes | None = None) -> TokenLogprob:
    return TokenLogprob(text, logprob, raw=raw, top=tuple(TopLogprob(top, -0.5) for top in tops))


def logprobs_of(*events: Event) -> list[dict[str, Any]]:
    chunks = chunks_of(completion(stream=True).stream(events))
    return [choice["logprobs"] for chunk in chunks for choice in chunk["choices"] if choice["logprobs"]]


def test_the_lists_are_equally_long_and_the_chosen_token_is_always_among_the_alternatives() -> None:
    found = logprobs_of(TextDelta(0, 0, "ab", (entry("a", -1.0, "x", "y"), entry("b", -1.0, "b"))), STOP)[0]
    assert len({len(found[name]) for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset")}) == 1
    assert found["top_logprobs"] == [{"x": -0.5, "y": -0.5, "a": -1.0}, {"b": -0.5}]


def test_offsets_count_characters_over_all_chunks_even_where_tokens_cut_them() -> None:
    emoji = "😊".encode()
    events = [
        TextDelta(0, 0, "é", (entry("é"),)),
        TextDelta(0, 0, "", (entry("\ufffd", raw=emoji[:2]),)),
        TextDelta(0, 0, "😊", (entry("\ufffd", raw=emoji[2:]),)),
        TextDelta(0, 0, "z", (entry("z"),)),
    ]
    assert [offset for found in logprobs_of(*events, STOP) for offset in found["text_offset"]] == [0, 1, 2, 2]


def test_the_first_token_of_an_echoed_prompt_has_no_logprob() -> None:
    found = logprobs_of(TextDelta(0, 0, "a", (entry("a", None),)), STOP)[0]
    assert (found["token_logprobs"], found["top_logprobs"]) == ([None], [None])


def test_this_surface_has_no_word_for_reasoning_or_calls() -> None:
    events: list[Event] = [
        ReasoningDelta(0, 0, "r"),
        TextDelta(0, 1, "a"),
        ToolCallStarted(0, 2, "c", "f"),
        ChoiceFinished(0, StopReason.TOOL_CALLS),
    ]
    body = json.loads(completion().answer(events))
    assert (body["choices"][0]["text"], body["choices"][0]["finish_reason"]) == ("a", "stop")
    chunks = chunks_of(completion(stream=True).stream(events))
    assert [choice["text"] for chunk in chunks for choice in chunk["choices"]] == ["a", ""]


def test_usage_stands_in_its_own_last_chunk_when_asked_for() -> None:
    events: list[Event] = [TextDelta(0, 0, "a"), STOP, UsageReported(Usage(prompt_tokens=1, completion_tokens=1))]
    asked = chunks_of(completion(stream=True, stream_options={"include_usage": True}).stream(events))
    assert [chunk["usage"] is None for chunk in asked] == [True, True, False]
    assert asked[-1]["choices"] == []
    assert all("usage" not in chunk for chunk in chunks_of(completion(stream=True).stream(events)))


def test_each_prompts_token_ids_stand_in_its_own_choices_in_both_forms() -> None:
    events: list[Event] = [PromptReported(0, token_ids=(1,)), PromptReported(1, token_ids=(2,))]
    events += [TextDelta(index, 0, "x") for index in range(4)]
    events += [ChoiceFinished(index, StopReason.STOP) for index in range(4)]
    fields = {"prompt": ["a", "b"], "n": 2}
    whole = json.loads(completion(**fields).answer(events))
    assert [choice["prompt_token_ids"] for choice in whole["choices"]] == [[1], [1], [2], [2]]
    chunks = chunks_of(completion(stream=True, **fields).stream(events))
    told = [
        (c["index"], c["prompt_token_ids"]) for chunk in chunks for c in chunk["choices"] if "prompt_token_ids" in c
    ]
    assert told == [(0, [1]), (1, [1]), (2, [2]), (3, [2])]


def test_opaque_fields_of_chat_are_not_shown_here() -> None:
    events: list[Event] = [ProviderReported({"x": b'"blob"'}, "openai.chat"), TextDelta(0, 0, "a"), STOP]
    assert b"blob" not in completion(stream=True).stream(events)
    assert b"blob" not in completion().answer(events)


def read(*choices: Any) -> tuple[list[Event], Any]:
    return completion(stream=True).read_stream(sse(*[{"choices": [choice]} for choice in choices]))


def test_what_breaks_the_protocol_is_an_upstream_error() -> None:
    uneven = {"tokens": ["a"], "token_logprobs": [], "top_logprobs": None, "text_offset": [0]}
    assert isinstance(read({"text": "a", "logprobs": {**uneven, "token_logprobs": [1.0, 2.0]}})[1], BadUpstreamResponse)
    assert isinstance(read({"text": "a", "index": 1})[1], BadUpstreamResponse)
    assert isinstance(read({"text": "", "finish_reason": "stop"}, {"text": "late"})[1], BadUpstreamResponse)
    assert isinstance(read({"text": "a"})[1], StreamTruncated)
    assert read({"text": "a", "index": None}, {"text": None, "finish_reason": "stop"})[1] is None


def test_logprobs_in_the_chat_form_are_read_too() -> None:
    content = [{"token": "a", "logprob": -1.0, "bytes": [97], "top_logprobs": []}]
    events, _ = read({"text": "a", "logprobs": {"content": content}, "finish_reason": "stop"})
    assert events[1] == TextDelta(0, 0, "a", (TokenLogprob("a", -1.0, raw=b"a"),))
