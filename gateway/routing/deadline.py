"""One deadline around many waits. All of a router share one timer; `asyncio.timeout` would cost one for each wait."""

import asyncio

from providers.shared_limit import SharedLimit

__all__ = ["Deadline"]


class Deadline:
    """Ends waits at `at` (loop time) by cancelling its task, but only while `armed` is set.

    A generator sets `armed` before it waits for its own source and clears it before it yields, so that what its reader
    does is never interrupted. Close it when done.
    """

    __slots__ = ("_limit", "_task", "armed", "at", "passed")

    def __init__(self, limit: SharedLimit["Deadline"], task: "asyncio.Task[object] | None" = None) -> None:
        """`limit` calls `expire`. `task` is the one that waits, None: the current one (which takes time to ask for)."""
        loop = asyncio.get_running_loop() if task is None else task.get_loop()
        self.passed = False
        self.armed = False
        self._task = task or asyncio.current_task()
        self._limit = limit
        self.at = limit.watch(self, loop)

    @property
    def remaining_s(self) -> float:
        return max(0.0, self.at - asyncio.get_running_loop().time())

    def close(self) -> None:
        self.armed = False
        self._limit.forget(self)

    def took(self) -> bool:
        """For the handler of a CancelledError: whether the cancellation was this deadline's, and nobody else's.

        As in asyncio.timeout: a cancellation that also came from outside stays one.
        """
        return self.passed and self._task is not None and self._task.uncancel() == 0

    def expire(self) -> None:
        self.passed = True
        if self.armed and self._task is not None:
            self._task.cancel()
