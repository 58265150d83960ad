"""One limit for waits that all last as long at most, with one timer for all of them.

`asyncio.timeout` makes a timer for each wait, which costs a request that does not stream 3% of its CPU.
"""

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["SharedLimit"]

W = TypeVar("W")


class SharedLimit(Generic[W]):
    """Waits end in the order in which they began, so the one timer looks at the oldest that is left. `end` is given
    each whose time is over."""

    __slots__ = ("_due", "_end", "_timer", "limit_s")

    def __init__(self, limit_s: float, end: Callable[[W], None]) -> None:
        self.limit_s = limit_s
        self._end = end
        self._due: dict[W, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    @property
    def count(self) -> int:
        """How many are watched."""
        return len(self._due)

    def watch(self, wait: W, loop: asyncio.AbstractEventLoop) -> float:
        """Gives when its time is over, by the loop's clock. `forget` it then."""
        self._due[wait] = at = loop.time() + self.limit_s
        if self._timer is None:
            self._timer = loop.call_at(at, self._look)
        return at

    def forget(self, wait: W) -> None:
        self._due.pop(wait, None)

    def close(self) -> None:
        """Nothing is watched any more."""
        self._due.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        now = loop.time()
        while self._due:
            wait, at = next(iter(self._due.items()))
            if at > now:
                self._timer = loop.call_at(at, self._look)
                return
            del self._due[wait]
            self._end(wait)
