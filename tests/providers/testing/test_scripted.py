"""The scripted provider keeps the contract, and plays what it is told."""

import asyncio
from contextlib import aclosing

import pytest

from adapters.canonical.errors import GatewayError, StreamTruncated, UpstreamOverloaded
from adapters.canonical.events import (
    ChoiceFinished,
    Event,
    Started,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallFinished,
    ToolCallStarted,
    UsageReported,
)
from adapters.canonical.messages import USER, Message, Text
from adapters.canonical.request import Request
from adapters.canonical.stop_reason import StopReason
from adapters.canonical.usage import Usage
from providers.base import Batch, ModelEntry
from providers.testing.contract import TEXT, TOOL_CALLS, ProviderContract, Scene
from providers.testing.scripted import ScriptedProvider, Step

STARTED: Batch = [Started(id="1")]


def request(*, stream: bool = True) -> Request:
    return Request(model="m", dialect="test", stream=stream, messages=(Message(role=USER, parts=(Text(text="hi"),)),))


def end(reason: StopReason) -> Batch:
    return [ChoiceFinished(0, reason), UsageReported(Usage(prompt_tokens=3, completion_tokens=4))]


def calls() -> Batch:
    events: list[Event] = []
    for part, (name, arguments) in enumerate(TOOL_CALLS):
        events += [
            ToolCallStarted(0, part, f"call_{part}", name),
            ToolArgumentsDelta(0, part, arguments),
            ToolCallFinished(0, part),
        ]
    return events


def steps(scene: Scene) -> list[Step]:
    head, tail = [TextDelta(0, 0, TEXT[:3])], [TextDelta(0, 0, TEXT[3:])]
    match scene:
        case Scene.TEXT:
            return [STARTED, [*head], [*tail, *end(StopReason.STOP)]]
        case Scene.LENGTH:
            return [STARTED, [*head], [*tail], end(StopReason.LENGTH)]
        case Scene.TOOLS:
            return [STARTED, calls(), end(StopReason.TOOL_CALLS)]
        case Scene.REFUSED:
            return [UpstreamOverloaded("no")]
        case Scene.BROKEN:
            return [STARTED, [*head], StreamTruncated("cut")]
        case Scene.SILENT:
            return [asyncio.Event()]
        case Scene.STALLED:
            return [STARTED, [*head], asyncio.Event()]


class ScriptedStage:
    def __init__(self) -> None:
        self.provider = ScriptedProvider("scripted")

    def set(self, scene: Scene) -> None:
        self.provider.play(steps(scene))

    def request(self, *, stream: bool) -> Request:
        return request(stream=stream)

    async def reached(self) -> None:
        await self.provider.waiting.wait()

    async def freed(self) -> None:
        assert self.provider.open_streams == 0


class TestContract(ProviderContract):
    @pytest.fixture
    def stage(self) -> ScriptedStage:
        return ScriptedStage()


async def play(provider: ScriptedProvider, asked: Request) -> list[Event]:
    async with aclosing(provider.stream(asked)) as batches:
        return [event async for batch in batches for event in batch]


async def test_scripts_are_played_in_turn_and_the_last_one_repeats() -> None:
    provider = ScriptedProvider("p", [[Started(id="1")]], [[Started(id="2")]])
    seen = [(await play(provider, request()))[0] for _ in range(3)]
    assert [event.id for event in seen if isinstance(event, Started)] == ["1", "2", "2"]


async def test_a_script_may_depend_on_the_request_and_requests_are_recorded() -> None:
    provider = ScriptedProvider("p", lambda asked: [[Started(model=asked.model)]])
    asked = request()
    assert await play(provider, asked) == [Started(model="m")]
    assert provider.requests == [asked]


async def test_an_event_holds_the_stream_back_until_it_is_set() -> None:
    gate = asyncio.Event()
    provider = ScriptedProvider("p", [STARTED, gate, end(StopReason.STOP)])
    task = asyncio.create_task(play(provider, request()))
    await provider.waiting.wait()
    assert provider.open_streams == 1
    assert not task.done()
    gate.set()
    assert len(await task) == 3
    assert provider.open_streams == 0


async def test_a_batch_given_out_may_be_changed_without_changing_the_script() -> None:
    provider = ScriptedProvider("p", [STARTED])
    async with aclosing(provider.stream(request())) as batches:
        (await anext(batches)).clear()
    assert await play(provider, request()) == STARTED


async def test_the_model_list_may_fail() -> None:
    provider = ScriptedProvider("p", [], models=[ModelEntry(id="m")])
    assert [entry.id for entry in await provider.models()] == ["m"]
    failing = ScriptedProvider("p", [], models_error=UpstreamOverloaded("no"))
    with pytest.raises(GatewayError):
        await failing.models()
