"""Asking once for each choice: numbers, seeds, sums, order of ends, and that nothing outlives the reader."""

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from typing import Any

import pytest

from adapters.canonical.errors import UpstreamOverloaded
from adapters.canonical.events import (
    ChoiceFinished,
    Event,
    PromptReported,
    ProviderReported,
    Started,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallStarted,
    UsageReported,
)
from adapters.canonical.messages import USER, Message, Text
from adapters.canonical.request import Request, Sampling
from adapters.canonical.stop_reason import StopReason
from adapters.canonical.usage import Usage
from providers.base import Batch
from providers.choices import MAX_PARALLEL, fan_out, fan_out_prompts
from providers.testing.scripted import ScriptedProvider, Step

pytestmark = pytest.mark.timeout(10)


def chat(**changes: Any) -> Request:
    return Request(model="m", dialect="d", messages=(Message(role=USER, parts=(Text(text="hi"),)),), **changes)


def completion(*prompts: str, **changes: Any) -> Request:
    return Request(model="m", dialect="d", prompts=prompts, **changes)


def usage(prompt: int | None, completion: int, cached: int | None = None) -> UsageReported:
    return UsageReported(Usage(prompt_tokens=prompt, completion_tokens=completion, cached_tokens=cached))


def answer(text: str, *more: Event) -> list[Step]:
    return [[Started(id=text)], [TextDelta(0, 0, text)], [ChoiceFinished(0, StopReason.STOP), *more]]


async def play(provider: ScriptedProvider, request: Request) -> list[Event]:
    async with aclosing(fan_out(provider.stream, request)) as batches:
        return [event async for batch in batches for event in batch]


def of(kind: type[Any], events: Iterable[Event]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


async def test_each_choice_of_each_prompt_is_asked_for_alone_and_numbered_prompt_first() -> None:
    provider = ScriptedProvider("p", lambda asked: answer(str(asked.prompts)))
    events = await play(provider, completion("a", "b", n=2))
    texts = {event.choice: event.text for event in of(TextDelta, events)}
    assert texts == {0: "('a',)", 1: "('a',)", 2: "('b',)", 3: "('b',)"}
    assert sorted(event.choice for event in of(ChoiceFinished, events)) == [0, 1, 2, 3]
    assert all(asked.n is None and asked.num_choices == 1 for asked in provider.requests)


async def test_there_is_one_started_and_it_comes_first() -> None:
    events = await play(ScriptedProvider("p", answer("x")), chat(n=5))
    assert len(of(Started, events)) == 1
    assert isinstance(events[0], Started)


async def test_every_kind_of_event_gets_the_number_of_its_choice() -> None:
    script: list[Step] = [
        [Started(), ToolCallStarted(0, 0, "c", "f"), ToolArgumentsDelta(0, 0, "{}")],
        [ProviderReported({"a": b"1"}, "d", 0), ProviderReported({"b": b"2"}, "d"), ChoiceFinished(0, StopReason.STOP)],
    ]
    events = await play(ScriptedProvider("p", script), chat(n=2))
    for kind in (ToolCallStarted, ToolArgumentsDelta, ChoiceFinished):
        assert sorted(event.choice for event in of(kind, events)) == [0, 1]
    reports = of(ProviderReported, events)
    assert sorted(str(event.choice) for event in reports) == ["0", "1", "None"]


async def test_the_first_choice_keeps_the_seed_and_the_others_get_their_own_for_ever() -> None:
    seeds = []
    for _ in range(2):
        provider = ScriptedProvider("p", answer("x"))
        await play(provider, completion("a", "b", n=3, sampling=Sampling(seed=7)))
        seeds.append([asked.sampling.seed for asked in provider.requests])
    assert seeds[0] == seeds[1]
    assert seeds[0][:3] == seeds[0][3:]
    assert seeds[0][0] == 7
    assert len(set(seeds[0])) == 3
    assert all(seed is not None and -(2**63) <= seed < 2**63 for seed in seeds[0])


async def test_without_a_seed_none_is_invented() -> None:
    provider = ScriptedProvider("p", answer("x"))
    await play(provider, chat(n=2, sampling=Sampling(temperature=1)))
    assert [asked.sampling for asked in provider.requests] == [Sampling(temperature=1)] * 2


async def test_the_prompt_counts_once_each_and_completions_add_up() -> None:
    scripts = [answer("x", usage(10, 1, cached=2)), answer("y", usage(10, 2, cached=9))]
    scripts += [answer("z", usage(20, 4)), answer("w", usage(20, 8))]
    events = await play(ScriptedProvider("p", *scripts), completion("a", "b", n=2))
    total = of(UsageReported, events)[-1].usage
    assert (total.prompt_tokens, total.completion_tokens, total.cached_tokens) == (30, 15, 2)


async def test_running_totals_never_fall() -> None:
    script: list[Step] = [[Started()]]
    script += [[TextDelta(0, 0, "x"), usage(10, count)] for count in range(1, 5)]
    script += [[ChoiceFinished(0, StopReason.STOP), usage(10, 5)]]
    events = await play(ScriptedProvider("p", script), chat(n=3))
    totals = [event.usage for event in of(UsageReported, events)]
    assert [total.completion_tokens for total in totals] == sorted(total.completion_tokens for total in totals)
    prompts = [total.prompt_tokens or 0 for total in totals]
    assert prompts == sorted(prompts)
    assert (totals[-1].prompt_tokens, totals[-1].completion_tokens) == (10, 15)


async def test_a_prompt_that_only_a_later_choice_counted_still_counts() -> None:
    events = await play(ScriptedProvider("p", answer("x"), answer("y", usage(10, 2))), chat(n=2))
    total = of(UsageReported, events)[-1].usage
    assert (total.prompt_tokens, total.completion_tokens) == (10, 2)


async def test_unknown_usage_stays_unknown() -> None:
    events = await play(ScriptedProvider("p", answer("x")), chat(n=2))
    assert not of(UsageReported, events)


async def test_facts_about_a_prompt_are_told_once_under_its_number() -> None:
    script: list[Step] = [[Started(), PromptReported(0, token_ids=(1, 2))], [ChoiceFinished(0, StopReason.STOP)]]
    events = await play(ScriptedProvider("p", script), completion("a", "b", n=2))
    assert sorted(event.prompt for event in of(PromptReported, events)) == [0, 1]


async def test_one_choice_passes_straight_through() -> None:
    started: Batch = [Started(id="1")]

    async def stream(request: Request) -> AsyncGenerator[Batch, None]:
        yield started

    before = asyncio.all_tasks()
    async with aclosing(fan_out(stream, chat(n=1))) as batches:
        assert await anext(batches) is started
        assert asyncio.all_tasks() == before


async def test_choices_run_at_once() -> None:
    gate = asyncio.Event()
    provider = ScriptedProvider("p", [[Started()], gate], answer("second"))
    async with aclosing(fan_out(provider.stream, chat(n=2))) as batches:
        async for batch in batches:
            if any(isinstance(event, ChoiceFinished) and event.choice == 1 for event in batch):
                break
        assert provider.open_streams == 1
    assert provider.open_streams == 0


async def test_no_more_calls_run_at_once_than_the_limit() -> None:
    gate = asyncio.Event()
    most = 0

    def script(asked: Request) -> Iterable[Step]:
        nonlocal most
        most = max(most, provider.open_streams)
        if provider.open_streams == MAX_PARALLEL:
            gate.set()
        return [[Started()], gate, [ChoiceFinished(0, StopReason.STOP)]]

    provider = ScriptedProvider("p", script)
    events = await play(provider, chat(n=128))
    assert len(of(ChoiceFinished, events)) == 128
    assert most == MAX_PARALLEL


async def test_the_first_error_ends_the_other_branches_and_is_raised() -> None:
    provider = ScriptedProvider("p", [[Started()], asyncio.Event()], [UpstreamOverloaded("no")])
    with pytest.raises(UpstreamOverloaded):
        await play(provider, chat(n=2))
    assert provider.open_streams == 0


async def test_closing_early_ends_every_branch_and_every_task() -> None:
    before = asyncio.all_tasks()
    provider = ScriptedProvider("p", [[Started()], asyncio.Event()])
    async with aclosing(fan_out(provider.stream, chat(n=4))) as batches:
        await anext(batches)
    assert provider.open_streams == 0
    assert asyncio.all_tasks() == before


async def test_cancelling_the_reader_ends_every_branch() -> None:
    provider = ScriptedProvider("p", [asyncio.Event()])
    task = asyncio.create_task(play(provider, chat(n=4)))
    await provider.waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert provider.open_streams == 0


async def test_a_slow_reader_holds_the_branches_back() -> None:
    given = 0

    async def endless(request: Request) -> AsyncGenerator[Batch, None]:
        nonlocal given
        while True:
            given += 1
            await asyncio.sleep(0)
            yield [TextDelta(0, 0, "x")]

    async with aclosing(fan_out(endless, chat(n=2))) as batches:
        await anext(batches)
        for _ in range(1000):
            await asyncio.sleep(0)
        assert given < 100


async def test_a_stream_of_all_choices_of_a_prompt_is_asked_once_for_each_prompt() -> None:
    def two(asked: Request) -> list[Step]:
        texts = [TextDelta(choice, 0, f"{asked.prompts}{choice}") for choice in range(2)]
        ends = [ChoiceFinished(choice, StopReason.STOP) for choice in range(2)]
        return [[Started(), PromptReported(0, (1,)), *texts], [*ends, usage(3, 5)]]

    provider = ScriptedProvider("p", two)
    async with aclosing(fan_out_prompts(provider.stream, completion("a", "b", n=2))) as batches:
        events = [event async for batch in batches for event in batch]
    assert [request.n for request in provider.requests] == [2, 2]
    found = sorted((event.choice, event.text) for event in of(TextDelta, events))
    assert found == [(0, "('a',)0"), (1, "('a',)1"), (2, "('b',)0"), (3, "('b',)1")]
    assert sorted(event.choice for event in of(ChoiceFinished, events)) == [0, 1, 2, 3]
    assert sorted(event.prompt for event in of(PromptReported, events)) == [0, 1]
    assert len(of(Started, events)) == 1
    assert of(UsageReported, events)[-1] == usage(6, 10)
