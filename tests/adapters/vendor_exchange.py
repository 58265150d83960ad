"""A chat client's request at an OpenAI-shaped vendor: its row between the dialect and the client, as its provider puts
them together."""

import asyncio
from collections.abc import AsyncGenerator

from adapters.canonical.errors import GatewayError
from adapters.canonical.events import Event
from adapters.openai.chat.front import ChatFront
from adapters.openai.chat.upstream import ChatUpstream
from adapters.openai.quirks import Quirks
from providers.base import Batch
from providers.remote.end_marks import without_end_marks
from tests.adapters.openai.exchange import HEAD
from tests.adapters.sides import Sides

__all__ = ["VendorExchange"]


class VendorExchange(Sides):
    """Minted call ids count from call_1 in each stream."""

    def __init__(self, quirks: Quirks, body: bytes) -> None:
        self._marks = quirks.end_marks
        super().__init__(ChatFront(), ChatUpstream(quirks, lambda: f"call_{self.mint()}"), HEAD, body)

    def read_stream(self, *pieces: bytes) -> tuple[list[Event], GatewayError | None]:
        events, error = super().read_stream(*pieces)
        return self._unmarked(events), error

    def read_body(self, body: bytes) -> tuple[list[Event], GatewayError | None]:
        events, error = super().read_body(body)
        return self._unmarked(events), error

    def _unmarked(self, events: list[Event]) -> list[Event]:
        return asyncio.run(_unmarked(events, self._marks)) if self._marks else events


async def _unmarked(events: list[Event], marks: tuple[str, ...]) -> list[Event]:
    async def batches() -> AsyncGenerator[Batch, None]:
        for event in events:
            yield [event]

    return [event async for batch in without_end_marks(batches(), marks) for event in batch]
