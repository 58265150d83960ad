"""The events of an answer through filters: each text of it has filters of its own, and little of it is ever held back.

What was held back of a text comes before anything that ends it: its own end, the choice's, or the next part.
"""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import TypeAlias

from msgspec.structs import replace

from adapters.canonical.errors import ContentRefused
from adapters.canonical.events import (
    ChoiceFinished,
    Event,
    ReasoningDelta,
    ReasoningFinished,
    RefusalDelta,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallFinished,
    UsageReported,
    is_output,
)
from adapters.canonical.stop_reason import StopReason
from gateway.guardrails.chain import FilterChain
from providers.base import Batch

__all__ = ["filtered"]

_Delta: TypeAlias = TextDelta | ReasoningDelta | RefusalDelta | ToolArgumentsDelta
_Place: TypeAlias = tuple[int, int, bool]
"""A choice, its part, and whether it is a summary."""


async def filtered(
    batches: AsyncGenerator[Batch, None], new_filters: Callable[[], FilterChain], num_choices: int
) -> AsyncGenerator[Batch, None]:
    """The batches with their texts filtered. The first one brings the first output, as the router's do.

    A text that is refused before that raises ContentRefused; after it, it ends every choice with CONTENT_FILTER.
    """
    answer = _Answer(new_filters)
    held: Batch | None = []
    async with aclosing(batches):
        try:
            async for batch in batches:
                passed = await answer.feed(batch)
                if held is not None:
                    held += passed
                    if not any(map(is_output, passed)):
                        continue
                    passed, held = held, None
                if passed:
                    yield passed
        except ContentRefused:
            if held is not None:
                raise
            yield answer.cut_off(num_choices)
            return
    if held:
        yield held


@dataclass(slots=True)
class _Open:
    """A text that is being written: the last delta of it, and its filters."""

    last: _Delta
    filters: FilterChain


class _Answer:
    def __init__(self, new_filters: Callable[[], FilterChain]) -> None:
        self._new_filters = new_filters
        self._open: dict[_Place, _Open] = {}
        self._finished: set[int] = set()
        self._usage: UsageReported | None = None

    async def feed(self, batch: Batch) -> Batch:
        passed: Batch = []
        for event in batch:
            if isinstance(event, TextDelta | ReasoningDelta | RefusalDelta | ToolArgumentsDelta):
                await self._delta(event, passed)
                continue
            if isinstance(event, UsageReported):
                self._usage = event
            elif isinstance(event, ChoiceFinished):
                await self._close([place for place in self._open if place[0] == event.choice], passed)
                self._finished.add(event.choice)
            elif isinstance(event, ToolCallFinished | ReasoningFinished):
                await self._close([place for place in self._open if place[:2] == (event.choice, event.part)], passed)
            passed.append(event)
        return passed

    def cut_off(self, num_choices: int) -> Batch:
        """The end of every choice that has none."""
        ends: Batch = [
            ChoiceFinished(choice, StopReason.CONTENT_FILTER, raw="guardrail")
            for choice in range(num_choices)
            if choice not in self._finished
        ]
        return [*ends, self._usage] if self._usage is not None else ends

    async def _delta(self, event: _Delta, passed: Batch) -> None:
        choice, part = event.choice, event.part
        place = (choice, part, isinstance(event, ReasoningDelta) and event.summary)
        found = self._open.get(place)
        if found is None:
            if not isinstance(event, ToolArgumentsDelta):  # calls may be written side by side, texts are not
                await self._close([other for other in self._open if other[0] == choice and other[1] != part], passed)
            found = self._open[place] = _Open(event, self._new_filters())
        found.last = event
        text = await found.filters.feed(event.text)
        if text:
            passed.append(_said(event, text))

    async def _close(self, places: Sequence[_Place], passed: Batch) -> None:
        for place in places:
            ended = self._open.pop(place)
            text = await ended.filters.finish()
            if text:
                passed.append(_said(ended.last, text))


def _said(delta: _Delta, text: str) -> Event:
    """The delta with another text, and without what was known of its tokens."""
    if isinstance(delta, ToolArgumentsDelta):
        return replace(delta, text=text)
    if isinstance(delta, RefusalDelta):
        return replace(delta, text=text, logprobs=())
    return replace(delta, text=text, logprobs=(), token_ids=())
