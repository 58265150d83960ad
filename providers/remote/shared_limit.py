"""One limit for waits that all last as long at most, with one timer for all of them.

`asyncio.timeout` makes a timer for each wait, which costs a request that does not stream 3% of its CPU.
"""

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

__all__ = ["SharedLimit"]

T = TypeVar("T")


class SharedLimit:
    """Waits end in the order in which they began, so the one timer looks at the oldest that is left. A task waits for
    one thing at a time."""

    __slots__ = ("_due", "_late", "_limit_s", "_timer")

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._due: dict[asyncio.Task[object], float] = {}
        self._late: set[asyncio.Task[object]] = set()
        self._timer: asyncio.TimerHandle | None = None

    async def hold(self, work: Coroutine[None, None, T]) -> T:
        """What the work gives. Raises TimeoutError, and cancels the work, where that takes too long."""
        loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        assert task is not None
        self._due[task] = at = loop.time() + self._limit_s
        if self._timer is None:
            self._timer = loop.call_at(at, self._expire)
        try:
            return await work
        except asyncio.CancelledError:
            if task in self._late and task.uncancel() == 0:  # else somebody else cancelled it as well
                raise TimeoutError from None
            raise
        finally:
            self._due.pop(task, None)
            self._late.discard(task)

    def close(self) -> None:
        """Nothing waits any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        now = loop.time()
        while self._due:
            task, at = next(iter(self._due.items()))
            if at > now:
                self._timer = loop.call_at(at, self._expire)
                return
            del self._due[task]
            self._late.add(task)
            task.cancel()
