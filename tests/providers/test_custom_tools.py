"""Custom tools for models that know functions alone: what is sent, and what their calls are for the client."""

import json
from collections.abc import AsyncGenerator, Sequence

import pytest

from adapters.canonical.events import (
    ChoiceFinished,
    Event,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallFinished,
    ToolCallStarted,
)
from adapters.canonical.messages import ASSISTANT, USER, Message, ProviderData, Text, ToolCall
from adapters.canonical.request import Request, Tool
from adapters.canonical.stop_reason import StopReason
from providers.base import Batch
from providers.custom_tools import as_function, custom_calls, custom_names, with_function_calls

PATCH = '*** Begin "ä"\n\\'
NAMES = frozenset(("patch",))
END = ChoiceFinished(0, StopReason.TOOL_CALLS)


async def answered(*batches: Sequence[Event]) -> list[Event]:
    async def upstream() -> AsyncGenerator[Batch, None]:
        for batch in batches:
            yield list(batch)

    return [event async for batch in custom_calls(upstream(), NAMES) for event in batch]


def called(*texts: str, name: str = "patch", part: int = 0) -> list[Event]:
    deltas = [ToolArgumentsDelta(0, part, text) for text in texts]
    return [ToolCallStarted(0, part, f"c{part}", name), *deltas, ToolCallFinished(0, part)]


def test_the_function_takes_one_text_and_keeps_name_and_description() -> None:
    tool = Tool(kind="custom", name="patch", description="Applies it.")
    found = as_function(tool)
    assert (found.kind, found.name, found.description, found.strict) == ("function", "patch", "Applies it.", None)
    assert json.loads(found.parameters or b"")["properties"] == {"input": {"type": "string"}}
    assert custom_names(Request(model="m", dialect="x", tools=(tool, found))) == NAMES


def test_earlier_calls_are_calls_of_the_function() -> None:
    data = ProviderData("openai.responses", {"status": b'"completed"'})
    custom = ToolCall(id="a", name="patch", arguments=PATCH, kind="custom", provider_data=data)
    function = ToolCall(id="b", name="f", arguments="{}")
    asked = Message(role=USER, parts=(Text(text="hi"),))
    found = with_function_calls((asked, Message(role=ASSISTANT, parts=(custom, function))))
    assert found[0] is asked
    first, second = found[1].parts
    assert isinstance(first, ToolCall)
    assert (first.id, first.kind, json.loads(first.arguments)) == ("a", "function", {"input": PATCH})
    assert second is function


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
async def test_a_call_of_the_function_is_a_call_of_the_tool_with_its_text_however_it_is_cut(size: int) -> None:
    arguments = json.dumps({"input": PATCH})
    pieces = [arguments[at : at + size] for at in range(0, len(arguments), size)]
    for batches in ([[*called(*pieces), END]], [[event] for event in (*called(*pieces), END)]):
        started, *deltas, finished, end = await answered(*batches)
        assert started == ToolCallStarted(0, 0, "c0", "patch", "custom")
        assert "".join([event.text for event in deltas if isinstance(event, ToolArgumentsDelta)]) == PATCH
        assert (finished, end) == (ToolCallFinished(0, 0), END)


async def test_arguments_of_another_form_are_the_input_as_they_stand() -> None:
    _, delta, _ = await answered(called('{"patch": "x"}'))
    assert delta == ToolArgumentsDelta(0, 0, '{"patch": "x"}')
    assert len(await answered(called("{}"))) == 2


async def test_other_calls_and_calls_that_are_custom_already_pass_as_they_are() -> None:
    custom: list[Event] = [
        ToolCallStarted(0, 1, "c", "patch", "custom"),
        ToolArgumentsDelta(0, 1, '{"input": "x"}'),
    ]
    told: list[Event] = [TextDelta(0, 2, "hi"), *called('{"a":1}', name="f"), *custom, ToolCallFinished(0, 1), END]
    assert await answered(told) == told
