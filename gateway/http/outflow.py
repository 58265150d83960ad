"""Whether a client takes what is written to it."""

import asyncio
from collections.abc import Callable

from gateway.http.patience import Patience

__all__ = ["STALLED_S", "Outflow"]

STALLED_S = 60.0
"""A client that takes nothing for so long is cut off."""


class Outflow:
    """`paused` and `resumed` are the transport's words, `over` the connection's. Calls `abort` for a client that takes
    nothing any more."""

    __slots__ = ("_abort", "_is_over", "_patience", "_room", "_transport", "_untaken", "is_full")

    def __init__(self, transport: asyncio.Transport, abort: Callable[[], None]) -> None:
        self._transport = transport
        self._abort = abort
        self._patience = Patience(self._look)
        self._room = asyncio.Event()
        self._untaken = 0
        """Bytes that waited for the client when they were counted last."""
        self._is_over = False
        self.is_full = False
        """It takes less than was written."""

    async def drained(self) -> None:
        """Returns when the client has taken most of what was written. Raises ConnectionError when it is gone."""
        while self.is_full and not self._is_over:
            await self._room.wait()
        if self._is_over:
            raise ConnectionResetError("the client is gone")

    def paused(self) -> None:
        self.is_full = True
        self._room.clear()
        self._count()

    def resumed(self) -> None:
        self.is_full = False
        self._room.set()

    def over(self) -> None:
        self._is_over = True
        self._room.set()
        self._patience.stop()

    def _count(self) -> None:
        self._untaken = self._transport.get_write_buffer_size()
        self._patience.last(STALLED_S)

    def _look(self) -> None:
        if not self.is_full:
            return
        if self._transport.get_write_buffer_size() >= self._untaken:
            self._abort()
        else:
            self._count()
