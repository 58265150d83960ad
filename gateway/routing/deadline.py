"""One deadline around many waits, and one timer for all requests; `asyncio.timeout` would cost one for each wait."""

import asyncio

__all__ = ["Deadline", "Deadlines"]


class Deadline:
    """Ends waits at `at` (loop time) by cancelling its task, but only while `armed` is set.

    A generator sets `armed` before it waits for its own source and clears it before it yields, so that what its reader
    does is never interrupted. Close it when done.
    """

    __slots__ = ("_others", "_task", "armed", "at", "passed")

    def __init__(self, at: float, others: "dict[Deadline, None]", task: "asyncio.Task[object] | None") -> None:
        self.at = at
        self.passed = False
        self.armed = False
        self._task = task
        self._others = others

    @property
    def remaining_s(self) -> float:
        return max(0.0, self.at - asyncio.get_running_loop().time())

    def close(self) -> None:
        self.armed = False
        self._others.pop(self, None)

    def took(self) -> bool:
        """For the handler of a CancelledError: whether the cancellation was this deadline's, and nobody else's.

        As in asyncio.timeout: a cancellation that also came from outside stays one.
        """
        return self.passed and self._task is not None and self._task.uncancel() == 0

    def expire(self) -> None:
        self.passed = True
        if self.armed and self._task is not None:
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

    def start(self, task: "asyncio.Task[object] | None" = None) -> Deadline:
        """`task` is the one that waits, None: the current one (which takes time to ask for)."""
        loop = asyncio.get_running_loop() if task is None else task.get_loop()
        deadline = Deadline(loop.time() + self.after_s, self._running, task or asyncio.current_task())
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
