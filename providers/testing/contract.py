"""The contract of a provider as a pytest suite: subclass ProviderContract, say how your upstream is made to behave.

    class TestMyProvider(ProviderContract):
        @pytest_asyncio.fixture
        async def stage(self) -> AsyncIterator[Stage]:
            async with my_upstream() as upstream:
                yield MyStage(MyProvider(settings), upstream)

Needs pytest and pytest-asyncio. The laws it names are those of the events' own documentation: one way to an answer,
one end of a stream, nothing left behind.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import aclosing
from enum import Enum
from typing import Any, Protocol

import pytest

from adapters.canonical.errors import GatewayError
from adapters.canonical.events import (
    ChoiceFinished,
    Event,
    ReasoningDelta,
    Started,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallFinished,
    ToolCallStarted,
    UsageReported,
    is_output,
)
from adapters.canonical.messages import Text, ToolCall
from adapters.canonical.request import EXPRESSIBLE_FIELDS, Request
from adapters.canonical.result import Result, fold
from adapters.canonical.stop_reason import StopReason
from providers.base import Batch, Provider

__all__ = ["TEXT", "TOOL_CALLS", "ProviderContract", "Scene", "Stage"]

TEXT = "Grüße, 世界!"
"""What the upstream answers in the scenes with text."""
TOOL_CALLS = (("get_weather", '{"city":"Oslo"}'), ("get_time", '{"zone":"CET"}'))
"""Name and arguments of the two calls of Scene.TOOLS."""


class Scene(Enum):
    """How the upstream behaves. All but TEXT, TOOLS and LENGTH end in an error or not at all."""

    TEXT = "text"
    """TEXT in several deltas, a natural end, and usage."""
    TOOLS = "tools"
    """TOOL_CALLS, with ids."""
    LENGTH = "length"
    """TEXT, cut by the token limit."""
    REFUSED = "refused"
    """An error in place of an answer."""
    BROKEN = "broken"
    """The beginning of TEXT, then the connection breaks. Asked for streams only."""
    SILENT = "silent"
    """Nothing, for ever."""
    STALLED = "stalled"
    """The beginning of TEXT, then nothing, for ever. Asked for streams only."""


class Stage(Protocol):
    """A provider and the upstream behind it."""

    @property
    def provider(self) -> Provider: ...

    def set(self, scene: Scene) -> None:
        """From the next request on, the upstream behaves like this."""
        ...

    def request(self, *, stream: bool) -> Request:
        """A request that the provider can express; with tools where the scene is TOOLS."""
        ...

    async def reached(self) -> None:
        """Returns when the upstream is working on a request."""
        ...

    async def freed(self) -> None:
        """Returns when the upstream works on nothing any more. Raises TimeoutError if that takes over a second."""
        ...


both_modes = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
good_scenes = pytest.mark.parametrize("scene", [Scene.TEXT, Scene.TOOLS, Scene.LENGTH])


class ProviderContract:
    """What every provider keeps. A subclass gives the fixture `stage`."""

    pytestmark = pytest.mark.asyncio

    @good_scenes
    async def test_the_fold_of_a_stream_is_the_whole_answer(self, stage: Stage, scene: Scene) -> None:
        stage.set(scene)
        streamed = fold(await _collect(stage, stream=True))
        stage.set(scene)
        whole = fold(await _collect(stage, stream=False))
        assert streamed.choices == whole.choices
        assert streamed.usage == whole.usage

    @both_modes
    async def test_text_arrives_unchanged_with_its_usage(self, stage: Stage, stream: bool) -> None:
        stage.set(Scene.TEXT)
        result = fold(await _collect(stage, stream=stream))
        assert _texts(result) == [TEXT]
        assert result.choices[0].finish.reason is StopReason.STOP
        assert result.usage is not None
        assert result.usage.completion_tokens

    @both_modes
    async def test_a_cut_by_the_token_limit_is_told(self, stage: Stage, stream: bool) -> None:
        stage.set(Scene.LENGTH)
        result = fold(await _collect(stage, stream=stream))
        assert result.choices[0].finish.reason is StopReason.LENGTH

    @both_modes
    async def test_tool_calls_arrive_whole_in_order_and_with_ids_of_their_own(self, stage: Stage, stream: bool) -> None:
        stage.set(Scene.TOOLS)
        result = fold(await _collect(stage, stream=stream))
        calls = [part for part in result.choices[0].parts if isinstance(part, ToolCall)]
        assert [(call.name, call.arguments) for call in calls] == list(TOOL_CALLS)
        assert len({call.id for call in calls}) == len(calls)
        assert all(call.id for call in calls)
        assert result.choices[0].finish.reason is StopReason.TOOL_CALLS

    @both_modes
    @good_scenes
    async def test_started_comes_first_and_no_batch_is_empty(self, stage: Stage, scene: Scene, stream: bool) -> None:
        stage.set(scene)
        batches = await _collect_batches(stage, stream=stream)
        assert all(batches)
        assert isinstance(batches[0][0], Started)
        assert sum(isinstance(event, Started) for batch in batches for event in batch) == 1

    @both_modes
    @good_scenes
    async def test_each_choice_ends_once_and_says_nothing_after_it(
        self, stage: Stage, scene: Scene, stream: bool
    ) -> None:
        stage.set(scene)
        events = await _collect(stage, stream=stream)
        finishes = Counter(event.choice for event in events if isinstance(event, ChoiceFinished))
        assert finishes == {0: 1}
        end = next(place for place, event in enumerate(events) if isinstance(event, ChoiceFinished))
        assert not any(is_output(event) for event in events[end + 1 :])

    @both_modes
    @good_scenes
    async def test_parts_are_numbered_densely_and_calls_begin_and_end(
        self, stage: Stage, scene: Scene, stream: bool
    ) -> None:
        stage.set(scene)
        opened: list[int] = []
        running: set[int] = set()
        for event in await _collect(stage, stream=stream):
            match event:
                case ToolCallStarted():
                    assert event.part == len(opened)
                    assert event.id
                    assert event.name
                    opened.append(event.part)
                    running.add(event.part)
                case ToolArgumentsDelta():
                    assert event.part in running
                case ToolCallFinished():
                    running.remove(event.part)
                case TextDelta() | ReasoningDelta():
                    if event.part not in opened:
                        assert event.part == len(opened)
                        opened.append(event.part)
                case _:
                    pass
        assert not running
        assert opened

    @both_modes
    @good_scenes
    async def test_running_totals_of_usage_never_fall(self, stage: Stage, scene: Scene, stream: bool) -> None:
        stage.set(scene)
        events = await _collect(stage, stream=stream)
        totals = [event.usage.total_tokens or 0 for event in events if isinstance(event, UsageReported)]
        assert totals == sorted(totals)

    @both_modes
    async def test_a_refusal_is_raised_before_any_output(self, stage: Stage, stream: bool) -> None:
        stage.set(Scene.REFUSED)
        events, error = await _collect_until_error(stage, stream=stream)
        assert isinstance(error, GatewayError)
        assert not any(is_output(event) for event in events)
        await stage.freed()

    async def test_a_break_in_the_middle_is_an_error_after_what_came_and_never_a_finish(self, stage: Stage) -> None:
        stage.set(Scene.BROKEN)
        events, error = await _collect_until_error(stage, stream=True)
        assert isinstance(error, GatewayError)
        assert any(is_output(event) for event in events)
        assert not any(isinstance(event, ChoiceFinished) for event in events)
        await stage.freed()

    async def test_closing_a_stream_early_frees_the_upstream(self, stage: Stage) -> None:
        stage.set(Scene.STALLED)
        async with aclosing(_stream(stage, stream=True)) as batches:
            async for batch in batches:
                if any(is_output(event) for event in batch):
                    break
        await stage.freed()

    @both_modes
    async def test_cancelling_before_the_answer_frees_the_upstream(self, stage: Stage, stream: bool) -> None:
        stage.set(Scene.SILENT)
        task = asyncio.create_task(_collect(stage, stream=stream))
        await stage.reached()
        await _cancel(task)
        await stage.freed()

    async def test_cancelling_inside_an_answer_frees_the_upstream(self, stage: Stage) -> None:
        stage.set(Scene.STALLED)
        began = asyncio.Event()

        async def read() -> None:
            async with aclosing(_stream(stage, stream=True)) as batches:
                async for batch in batches:
                    if any(is_output(event) for event in batch):
                        began.set()

        task = asyncio.create_task(read())
        await began.wait()
        await _cancel(task)
        await stage.freed()

    async def test_a_stream_that_is_never_read_reaches_nobody(self, stage: Stage) -> None:
        stage.set(Scene.TEXT)
        await _stream(stage, stream=True).aclose()
        await stage.freed()

    @pytest.mark.parametrize("scene", [Scene.TEXT, Scene.REFUSED, Scene.BROKEN])
    async def test_no_task_is_left_behind(self, stage: Stage, scene: Scene) -> None:
        stage.set(scene)
        await _collect_until_error(stage, stream=True)
        stage.set(scene)
        before = asyncio.all_tasks()
        await _collect_until_error(stage, stream=True)
        await stage.freed()
        new = asyncio.all_tasks() - before
        left = (await asyncio.wait(new, timeout=1))[1] if new else set()
        assert not left

    async def test_a_failing_stream_leaves_its_neighbour_alone(self, stage: Stage) -> None:
        stage.set(Scene.STALLED)
        async with aclosing(_stream(stage, stream=True)) as stalled:
            await anext(stalled)
            stage.set(Scene.REFUSED)
            _, error = await _collect_until_error(stage, stream=True)
            assert isinstance(error, GatewayError)
            stage.set(Scene.TEXT)
            assert _texts(fold(await _collect(stage, stream=True))) == [TEXT]
        await stage.freed()

    async def test_closing_the_provider_twice_is_once_and_fails_what_runs(self, stage: Stage) -> None:
        stage.set(Scene.STALLED)
        async with aclosing(_stream(stage, stream=True)) as batches:
            await anext(batches)
            await stage.provider.aclose()
            await stage.provider.aclose()
            with pytest.raises(GatewayError):
                await _drain(batches)
        await stage.freed()

    async def test_what_it_declares_are_names_that_the_router_knows(self, stage: Stage) -> None:
        capabilities = stage.provider.capabilities(stage.request(stream=True).model)
        assert capabilities.fields <= EXPRESSIBLE_FIELDS
        assert stage.provider.name


def _stream(stage: Stage, *, stream: bool) -> AsyncGenerator[Batch, None]:
    return stage.provider.stream(stage.request(stream=stream))


async def _collect_batches(stage: Stage, *, stream: bool) -> list[Batch]:
    async with aclosing(_stream(stage, stream=stream)) as batches:
        return [batch async for batch in batches]


async def _collect(stage: Stage, *, stream: bool) -> list[Event]:
    return [event for batch in await _collect_batches(stage, stream=stream) for event in batch]


async def _collect_until_error(stage: Stage, *, stream: bool) -> tuple[list[Event], GatewayError | None]:
    events: list[Event] = []
    try:
        async with aclosing(_stream(stage, stream=stream)) as batches:
            async for batch in batches:
                events += batch
    except GatewayError as error:
        return events, error
    return events, None


async def _drain(batches: AsyncGenerator[Batch, None]) -> None:
    async for _ in batches:
        pass


async def _cancel(task: "asyncio.Task[Any]") -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def _texts(result: Result) -> list[str]:
    return [
        "".join([part.text for part in choice.parts if isinstance(part, Text)])
        for choice in sorted(result.choices, key=lambda choice: choice.index)
    ]
