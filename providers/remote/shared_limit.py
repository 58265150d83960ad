"""One limit for waits that all last as long at most, with one timer for all of them.

`asyncio.timeout` makes a timer for each wait, which costs a request that does not stream 3% of its CPU.
"""

import asyncio

__all__ = ["SharedLimit"]


class SharedLimit:
    """Waits end in the order in which they began, so the one timer looks at the oldest that is left."""

    __slots__ = ("_due", "_timer", "limit_s")

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self._due: dict[asyncio.Future[None], float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, wait: asyncio.Future[None]) -> float:
        """Fails it with TimeoutError when its time is over, which this gives, by the loop's clock. `forget` it then."""
        loop = wait.get_loop()
        self._due[wait] = at = loop.time() + self.limit_s
        if self._timer is None:
            self._timer = loop.call_at(at, self._expire)
        return at

    def forget(self, wait: asyncio.Future[None]) -> None:
        self._due.pop(wait, None)

    def close(self) -> None:
        """Nothing is watched any more."""
        self._due.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        now = loop.time()
        while self._due:
            wait, at = next(iter(self._due.items()))
            if at > now:
                self._timer = loop.call_at(at, self._expire)
                return
            del self._due[wait]
            if not wait.done():
                wait.set_exception(TimeoutError())
