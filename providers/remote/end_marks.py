"""Texts that mark the end of a turn, which some servers leave at the end of their answers: taken away again.

What could be the beginning of a mark waits until more is known, so it does not matter where an upstream cuts its
answer. A mark that something follows is no end, and stays.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from msgspec.structs import replace

from adapters.canonical.events import ChoiceFinished, Event, TextDelta
from providers.base import Batch

__all__ = ["without_end_marks"]


async def without_end_marks(
    batches: AsyncGenerator[Batch, None], marks: tuple[str, ...]
) -> AsyncGenerator[Batch, None]:
    held = _Held(marks)
    async with aclosing(batches):
        async for batch in batches:
            told: Batch = []
            for event in batch:
                held.feed(event, told)
            if told:
                yield told
    left: Batch = []
    held.release(left)
    if left:
        yield left


class _Held:
    """The texts of one part that wait, in order."""

    def __init__(self, marks: tuple[str, ...]) -> None:
        self._marks = marks
        self._waiting: list[TextDelta] = []

    def feed(self, event: Event, told: Batch) -> None:
        if isinstance(event, ChoiceFinished):
            if "".join([one.text for one in self._waiting]) in self._marks:
                self._waiting = []
        elif isinstance(event, TextDelta):
            if self._waiting and (event.choice, event.part) != (self._waiting[0].choice, self._waiting[0].part):
                self.release(told)
            self._add(event, told)
            return
        self.release(told)
        told.append(event)

    def release(self, told: Batch) -> None:
        told += self._waiting
        self._waiting = []

    def _add(self, event: TextDelta, told: Batch) -> None:
        self._waiting.append(event)
        text = "".join([one.text for one in self._waiting])
        kept = self._kept(text)
        free = len(text) - kept
        while self._waiting and len(self._waiting[0].text) <= free and (kept or free):
            first = self._waiting.pop(0)
            free -= len(first.text)
            told.append(first)
        if free and self._waiting:  # a delta of which the end may be a mark; its tokens stay with that
            first = self._waiting[0]
            told.append(TextDelta(first.choice, first.part, first.text[:free]))
            self._waiting[0] = replace(first, text=first.text[free:])

    def _kept(self, text: str) -> int:
        """How many characters at the end may belong to a mark."""
        longest = max(map(len, self._marks))
        for start in range(max(0, len(text) - longest), len(text)):
            tail = text[start:]
            if any(mark.startswith(tail) for mark in self._marks):
                return len(tail)
        return 0
