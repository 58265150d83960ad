"""One deadline around many waits, and one timer for all requests; `asyncio.timeout` would cost one for each wait."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

__all__ = ["Deadline", "DeadlinePassed", "Deadlines"]

T = TypeVar("T")


class DeadlinePassed(Exception):
    """The deadline passed during a wait, or before it."""


class Deadline:
    """Ends waits at `at` (loop time). It interrupts nothing between waits, so a generator may yield there.

    All waits belong to the task that made it. Close it when done.
    """

    __slots__ = ("_others", "_passed", "_task", "_waiting", "at")

    def __init__(self, at: float, others: "dict[Deadline, None]") -> None:
        self.at = at
        self._passed = False
        self._waiting = False
        self._task = asyncio.current_task()
        self._others = others

    @property
    def remaining_s(self) -> float:
        return max(0.0, self.at - asyncio.get_running_loop().time())

    def close(self) -> None:
        self._others.pop(self, None)

    async def wait(self, awaitable: Awaitable[T]) -> T:
        """What the awaitable gives. Raises DeadlinePassed."""
        if self._has_passed():
            raise DeadlinePassed
        self._waiting = True
        try:
            return await awaitable
        except asyncio.CancelledError:
            # As in asyncio.timeout: only our own cancel becomes a timeout; one that also came from outside stays.
            if self._has_passed() and self._task is not None and self._task.uncancel() == 0:
                raise DeadlinePassed from None
            raise
        finally:
            self._waiting = False

    def _has_passed(self) -> bool:
        return self._passed

    def expire(self) -> None:
        self._passed = True
        if self._waiting and self._task is not None:
            self._task.cancel()


class Deadlines:
    """Deadlines that all lie `after_s` from their start, so that they pass in the order in which they began.

    A request adds itself to a dict and takes itself out; the one timer waits for the oldest that is left.
    """

    def __init__(self, after_s: float) -> None:
        self.after_s = after_s
        self._running: dict[Deadline, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    @property
    def count(self) -> int:
        """How many run."""
        return len(self._running)

    def start(self) -> Deadline:
        loop = asyncio.get_running_loop()
        deadline = Deadline(loop.time() + self.after_s, self._running)
        self._running[deadline] = None
        if self._timer is None:
            self._timer = loop.call_at(deadline.at, self._expire)
        return deadline

    def _expire(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        now = loop.time()
        while self._running:
            oldest = next(iter(self._running))
            if oldest.at > now:
                self._timer = loop.call_at(oldest.at, self._expire)
                return
            del self._running[oldest]
            oldest.expire()
