"""Turns that an upstream pauses (it runs tools of its own, and that may take long): they are sent back until they end.

The reader sees one answer: one Started, parts counted on, usage added up, one finish. Knows no wire words.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from msgspec.structs import replace

from adapters.canonical.events import (
    ChoiceFinished,
    Event,
    PromptReported,
    ProviderReported,
    Started,
    UsageReported,
)
from adapters.canonical.messages import ASSISTANT, Message
from adapters.canonical.request import Request
from adapters.canonical.result import Folder
from adapters.canonical.stop_reason import StopReason
from adapters.canonical.usage import Usage, summed
from providers.base import Batch
from providers.choices import StreamCall

__all__ = ["MAX_CONTINUATIONS", "continued"]

MAX_CONTINUATIONS = 8
"""So often one turn is sent back; after that its pause is the client's to know."""


async def continued(call: StreamCall, request: Request) -> AsyncGenerator[Batch, None]:
    """The answer to a request for one choice, whose `call` may end in PAUSED."""
    before: Usage | None = None
    first_part = 0
    for turn in range(MAX_CONTINUATIONS + 1):
        folder = Folder()
        paused = False
        spent = before
        async with aclosing(call(request)) as batches:
            async for batch in batches:
                folder.feed(batch)
                told: Batch = []
                for event in batch:
                    if type(event) is UsageReported:
                        spent = event.usage if before is None else summed((before, event.usage))
                        told.append(UsageReported(spent))
                    elif type(event) is ChoiceFinished:
                        paused = event.reason is StopReason.PAUSED and turn < MAX_CONTINUATIONS
                        if not paused:
                            told.append(event)
                    elif not (turn and type(event) is Started):
                        told.append(_renumbered(event, first_part))
                if told:
                    yield told
        if not paused:
            return
        parts = folder.result().choices[0].parts
        request = replace(request, messages=(*(request.messages or ()), Message(role=ASSISTANT, parts=parts)))
        first_part += len(parts)
        before = spent


def _renumbered(event: Event, first_part: int) -> Event:
    match event:
        case Started() | PromptReported() | ProviderReported() | UsageReported() | ChoiceFinished():
            return event
        case _:
            return replace(event, part=event.part + first_part) if first_part else event
