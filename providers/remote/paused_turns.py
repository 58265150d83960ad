"""Turns that an upstream pauses (its tools may take long, or an answer may be longer than one call gives): they go on.

The reader sees one answer: one Started, parts counted on, usage added up, one finish. Knows no wire words: how a turn
goes on is a dialect's (`Resumption`).
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Protocol

from msgspec.structs import replace

from adapters.canonical.events import (
    ChoiceFinished,
    Event,
    PromptReported,
    ProviderReported,
    ReasoningDelta,
    Started,
    TextDelta,
    UsageReported,
)
from adapters.canonical.messages import ASSISTANT, Message
from adapters.canonical.request import Request
from adapters.canonical.result import Folder
from adapters.canonical.stop_reason import StopReason
from adapters.canonical.usage import Usage, summed
from providers.base import Batch
from providers.choices import StreamCall

__all__ = ["MAX_CONTINUATIONS", "Resumption", "SentBack", "continued"]

MAX_CONTINUATIONS = 8
"""So often one turn goes on; after that its pause is the client's to know."""
_TEXTS = (TextDelta, ReasoningDelta)


class Resumption(Protocol):
    """How one paused turn goes on. `in_same_part`: in the middle of the text that it stopped in."""

    in_same_part: bool

    def feed(self, batch: Batch) -> None:
        """What the turn says."""
        ...

    def resumed(self, request: Request) -> Request | None:
        """What to ask to hear the rest; None: it can't be had."""
        ...


class SentBack:
    """What the model said so far becomes the last message."""

    in_same_part = False

    def __init__(self) -> None:
        self._folder = Folder()

    def feed(self, batch: Batch) -> None:
        self._folder.feed(batch)

    def resumed(self, request: Request) -> Request | None:
        said = Message(role=ASSISTANT, parts=self._folder.result().choices[0].parts)
        return replace(request, messages=(*(request.messages or ()), said), message_paths=None)


async def continued(
    call: StreamCall, request: Request, resumption: Callable[[], Resumption] = SentBack
) -> AsyncGenerator[Batch, None]:
    """The answer to a request for one choice, whose `call` may end in PAUSED."""
    before: Usage | None = None
    parts = _Parts()
    for turn in range(MAX_CONTINUATIONS + 1):
        resuming = resumption()
        pause: ChoiceFinished | None = None
        spent = before
        async with aclosing(call(request)) as batches:
            async for batch in batches:
                resuming.feed(batch)
                told: Batch = []
                for event in batch:
                    if type(event) is UsageReported:
                        spent = event.usage if before is None else summed((before, event.usage))
                        told.append(UsageReported(spent))
                    elif type(event) is ChoiceFinished and event.reason is StopReason.PAUSED:
                        pause = event
                    elif not (turn and type(event) is Started):
                        told.append(parts.counted_on(event))
                if told:
                    yield told
        if pause is None:
            return
        following = resuming.resumed(request) if turn < MAX_CONTINUATIONS else None
        if following is None:
            yield [pause]
            return
        request = following
        parts.go_on(in_same_part=resuming.in_same_part)
        before = spent


class _Parts:
    """Numbers the parts of one turn on from those of the turns before it."""

    def __init__(self) -> None:
        self._first = 0
        self._last = -1
        self._kind: type[Event] | None = None
        self._open: type[Event] | None = None
        """Of the text in whose middle the turn before stopped."""

    def go_on(self, *, in_same_part: bool) -> None:
        self._first = self._last + 1
        self._open = self._kind if in_same_part and self._kind in _TEXTS else None

    def counted_on(self, event: Event) -> Event:
        match event:
            case Started() | PromptReported() | ProviderReported() | UsageReported() | ChoiceFinished():
                return event
            case _:
                if self._open is not None and type(event) is self._open:
                    self._first -= 1
                self._open = None
                self._kind = type(event)
                part = event.part + self._first
                self._last = max(self._last, part)
                return replace(event, part=part) if self._first else event
