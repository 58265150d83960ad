"""A bare server behind a row that names its model's forms: what it is asked for, and how its text is read."""

from typing import Any

import pytest

from adapters.canonical.messages import Reasoning, Text, ToolCall
from adapters.canonical.request import ReasoningOptions, Tool, ToolChoice
from adapters.canonical.result import Choice, fold
from adapters.canonical.stop_reason import StopReason
from providers.base import ProviderSettings
from providers.registry import build
from tests.mock_upstream import Answer
from tests.providers.remote.openai_wire import DONE, body_of, chunk, collect, connected, request, whole

pytestmark = pytest.mark.timeout(20)

TEXT = '<think>\nplan\n</think>\n\nLook.\n<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
TOOLS = (Tool(kind="function", name="f", parameters=b"{}"),)
FORMS: dict[str, Any] = {"options": {"reasoning_format": "think", "tool_format": "hermes"}}
LOGPROBS = [{"token": "b", "logprob": -0.5, "bytes": [98], "top_logprobs": []}]


def streamed(text: str) -> Answer:
    deltas = [chunk({"content": text[at : at + 3]}) for at in range(0, len(text), 3)]
    return Answer.sse([*deltas, chunk({}, "stop"), DONE])


async def answered(answer: Answer, *, stream: bool, forms: dict[str, Any] = FORMS, **fields: Any) -> Choice:
    async with connected(answer, **forms) as (_, provider):
        return fold(await collect(provider, request(stream=stream, **fields))).choices[0]


@pytest.mark.parametrize("stream", [True, False])
async def test_reasoning_and_calls_in_the_text_become_parts(stream: bool) -> None:
    answer = streamed(TEXT) if stream else whole({"content": TEXT})
    choice = await answered(answer, stream=stream, tools=TOOLS)
    thought, text, call = choice.parts
    assert (thought, text) == (Reasoning(text="plan"), Text(text="Look."))
    assert isinstance(call, ToolCall)
    assert (call.name, call.arguments) == ("f", '{"a": 1}')
    assert choice.finish.reason is StopReason.TOOL_CALLS


async def test_without_tools_what_looks_like_a_call_stays_text() -> None:
    none: dict[str, Any] = {"tools": TOOLS, "tool_choice": ToolChoice(mode="none")}
    for fields in ({}, none):
        choice = await answered(whole({"content": TEXT}), stream=False, **fields)
        assert [type(part) for part in choice.parts] == [Reasoning, Text]


async def test_hidden_reasoning_is_not_shown() -> None:
    hides = ReasoningOptions(include=False)
    choice = await answered(whole({"content": "<think>a</think>b"}), stream=False, reasoning=hides)
    assert choice.parts == (Text(text="b"),)


async def test_reasoning_may_be_left_in_the_text() -> None:
    left = ReasoningOptions(separate=False)
    choice = await answered(whole({"content": "<think>a</think>b"}), stream=False, reasoning=left)
    assert choice.parts == (Text(text="<think>a</think>b"),)


async def test_logprobs_stay_with_the_text_that_they_belong_to() -> None:
    pieces = ["<think>", "a", "</think>", "b"]
    told = [{"token": piece, "logprob": -0.5, "bytes": list(piece.encode())} for piece in pieces]
    message, logprobs = {"content": "".join(pieces)}, {"content": told}
    choice = {"index": 0, "message": message, "logprobs": logprobs, "finish_reason": "stop"}
    read = await answered(whole({}, choices=[choice]), stream=False, logprobs=0)
    assert [entry.text for entry in read.reasoning_logprobs] == ["a"]
    assert [entry.text for entry in read.logprobs] == ["b"]


async def test_a_prompt_that_opens_the_reasoning_is_told_by_the_format() -> None:
    forms = {"options": {"reasoning_format": "think_opened"}}
    choice = await answered(whole({"content": "a</think>b"}), stream=False, forms=forms)
    assert choice.parts == (Reasoning(text="a"), Text(text="b"))
    off = ReasoningOptions(effort="none")
    choice = await answered(whole({"content": "b"}), stream=False, forms=forms, reasoning=off)
    assert choice.parts == (Text(text="b"),)


async def test_a_harmony_answer_is_read_with_its_calls() -> None:
    text = (
        "<|channel|>analysis<|message|>plan<|end|><|start|>assistant<|channel|>commentary to=functions.f "
        '<|constrain|>json<|message|>{"a": 1}'
    )
    forms = {"options": {"reasoning_format": "harmony"}}
    choice = await answered(streamed(text), stream=True, forms=forms, tools=TOOLS)
    assert [type(part) for part in choice.parts] == [Reasoning, ToolCall]


async def test_special_marks_are_asked_for_and_vllm_reads_no_calls_itself() -> None:
    forms: dict[str, Any] = {"type": "vllm", "options": {"tool_format": "mistral"}}
    async with connected(whole({"content": "x"}), whole({"content": "x"}), **forms) as (upstream, provider):
        await collect(provider, request(stream=False, tools=TOOLS))
        await collect(provider, request(stream=False))
        assert (body_of(upstream)["tool_choice"], body_of(upstream)["skip_special_tokens"]) == ("none", False)
        assert not body_of(upstream, 1).keys() & {"tool_choice", "skip_special_tokens"}


async def test_plain_marks_need_nothing_asked_for() -> None:
    async with connected(whole({"content": "x"}), **FORMS) as (upstream, provider):
        await collect(provider, request(stream=False, tools=TOOLS))
        assert not body_of(upstream).keys() & {"tool_choice", "skip_special_tokens"}


@pytest.mark.parametrize("key", ["reasoning_format", "tool_format"])
def test_a_format_that_nobody_knows_or_can_have_is_refused_by_its_key(key: str) -> None:
    for kind, message in (("vllm", "no format is named 'x'"), ("anthropic", "only for servers of OpenAI's")):
        settings = ProviderSettings(name="p", type=kind, base_url="http://h/v1", options={key: "x"})
        with pytest.raises(ValueError, match=rf"providers\.p\.{key}: {message}"):
            build(settings)
