"""How long a connection waits for what has to come next."""

import asyncio
from collections.abc import Callable

__all__ = ["Patience"]


class Patience:
    """`ended` is called once the time is over. One timer serves all waits: it is set anew when it has run out."""

    __slots__ = ("_deadline", "_ended", "_timer")

    def __init__(self, ended: Callable[[], None]) -> None:
        self._ended = ended
        self._deadline = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def last(self, seconds: float) -> None:
        """It ends so long from now."""
        loop = asyncio.get_running_loop()
        deadline = self._deadline = loop.time() + seconds
        if self._timer is None or self._timer.when() > deadline:
            self.stop()
            self._timer = loop.call_at(deadline, self._look)

    def stop(self) -> None:
        """It never ends."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        if loop.time() < self._deadline:
            self._timer = loop.call_at(self._deadline, self._look)
        else:
            self._ended()
