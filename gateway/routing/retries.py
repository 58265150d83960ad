"""How long to wait before a target is asked again, and when no more. Built on tenacity's wait and stop objects."""

from collections.abc import Callable

from tenacity import AsyncRetrying, RetryCallState
from tenacity.stop import stop_after_attempt
from tenacity.wait import wait_base, wait_exponential

from adapters.canonical.errors import GatewayError

__all__ = ["Tries", "WaitAsTold"]


class WaitAsTold(wait_base):
    """What the upstream's Retry-After says, otherwise exponential up to `max_s`, less up to half of it at random."""

    def __init__(self, random: Callable[[], float], max_s: float) -> None:
        self._random = random
        self._backoff = wait_exponential(multiplier=min(0.25, max_s), max=min(8, max_s))

    def __call__(self, retry_state: RetryCallState) -> float:
        error = retry_state.outcome.exception() if retry_state.outcome is not None else None
        if isinstance(error, GatewayError) and error.retry_after_s is not None:
            return error.retry_after_s
        return self._backoff(retry_state) * (1 - self._random() / 2)


class Tries:
    """The tries of one target. `attempts` counts the first one; waits longer than `max_wait_s` are not taken."""

    __slots__ = ("_max_wait_s", "_rules", "_state")

    def __init__(self, attempts: int, max_wait_s: float, random: Callable[[], float]) -> None:
        self._max_wait_s = max_wait_s
        self._rules = AsyncRetrying(stop=stop_after_attempt(attempts), wait=WaitAsTold(random, max_wait_s))
        self._state = RetryCallState(self._rules, None, (), {})

    def wait_s(self, error: GatewayError, remaining_s: float) -> float | None:
        """Seconds until the next try after this failure, None: no more."""
        self._state.set_exception((type(error), error, error.__traceback__))
        wait_s = None if self._rules.stop(self._state) else self._rules.wait(self._state)
        self._state.prepare_for_next_attempt()
        return wait_s if wait_s is not None and wait_s <= self._max_wait_s and wait_s < remaining_s else None
