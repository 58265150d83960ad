"""The end of a turn of the event loop, where everything that was written in that turn leaves together."""

import asyncio
from collections.abc import Callable

__all__ = ["TurnEnd"]


class TurnEnd:
    """In between, each write would throw the code of this program out of the processor's
    cache, and wake the peer for one message alone."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: list[Callable[[], None]] = []

    def call(self, write: Callable[[], None]) -> None:
        """Calls it once the loop has run what is ready now, and before it waits."""
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._call_all)
        self._waiting.append(write)

    def _call_all(self) -> None:
        waiting, self._waiting = self._waiting, []
        for write in waiting:
            write()
