"""One deadline around many waits: a single timer a request, where `asyncio.timeout` would cost one for each wait."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

__all__ = ["Deadline", "DeadlinePassed"]

T = TypeVar("T")


class DeadlinePassed(Exception):
    """The deadline passed during a wait, or before it."""


class Deadline:
    """Ends waits at `after_s` from now. It interrupts nothing between waits, so a generator may yield there.

    All waits belong to the task that made it. Call `cancel` when done.
    """

    __slots__ = ("_loop", "_passed", "_task", "_timer", "_waiting", "at")

    def __init__(self, after_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self.at = self._loop.time() + after_s
        self._passed = False
        self._waiting = False
        self._task = asyncio.current_task()
        self._timer = self._loop.call_at(self.at, self._pass)

    @property
    def remaining_s(self) -> float:
        return max(0.0, self.at - self._loop.time())

    async def wait(self, awaitable: Awaitable[T]) -> T:
        """What the awaitable gives. Raises DeadlinePassed."""
        if self._timer_fired():
            raise DeadlinePassed
        self._waiting = True
        try:
            return await awaitable
        except asyncio.CancelledError:
            # As in asyncio.timeout: only our own cancel becomes a timeout; one that also came from outside stays.
            if self._timer_fired() and self._task is not None and self._task.uncancel() == 0:
                raise DeadlinePassed from None
            raise
        finally:
            self._waiting = False

    def _timer_fired(self) -> bool:
        return self._passed

    def cancel(self) -> None:
        self._timer.cancel()

    def _pass(self) -> None:
        self._passed = True
        if self._waiting and self._task is not None:
            self._task.cancel()
