"""Who is asked next, after which pause, and when no more: the one walk over a route's targets for everything asked.

Owns tries, failover and the verdict after the last failure. Knows neither what is asked nor how it is answered.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from adapters.canonical.errors import GatewayError, UpstreamError, UpstreamTimeout
from gateway.routing.deadline import Deadline
from gateway.routing.retries import Tries
from gateway.routing.route import Target

__all__ = ["Attempts", "RoutingRules"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingRules:
    """`attempts`: tries of one target in all. `total_s`: for the whole request, all tries and waits together."""

    attempts: int = 2
    max_wait_s: float = 20.0
    total_s: float = 600.0
    completions_as_chat: bool = False


class Attempts:
    """Of one request. `failures` gets the last error of each target that is given up."""

    __slots__ = ("_deadline", "_failures", "_place", "_random", "_rules", "_targets", "_tries", "_wait_s")

    def __init__(
        self,
        targets: Sequence[Target],
        rules: RoutingRules,
        random: Callable[[], float],
        *,
        deadline: Deadline,
        failures: list[GatewayError],
    ) -> None:
        self._targets = targets
        self._rules = rules
        self._random = random
        self._deadline = deadline
        self._failures = failures
        self._place = -1
        self._tries: Tries | None = None
        self._wait_s: float | None = None  # until the same target is asked again; None: the next one is due

    async def next(self) -> Target | None:
        """The target to ask now, after the pause that its failure calls for. None: no more.

        One that did not fail is not asked again. Raises UpstreamTimeout once the deadline has passed.
        """
        wait_s, self._wait_s = self._wait_s, None
        if wait_s is None:
            self._place += 1
            self._tries = None
            if self._place == len(self._targets):
                return None
        elif wait_s:
            self._deadline.armed = True
            await asyncio.sleep(wait_s)
            self._deadline.armed = False
        if self._deadline.passed:
            raise self.too_late()
        return self._targets[self._place]

    def failed(self, error: GatewayError) -> None:
        """The target's answer is this error. Raises it where asking again, anywhere, would not mend it."""
        if not error.retryable and not error.fails_over:
            raise error
        is_last = self._place == len(self._targets) - 1
        if error.retryable and (error.retry_after_s is None or is_last):
            self._tries = self._tries or Tries(self._rules.attempts, self._rules.max_wait_s, self._random)
            self._wait_s = self._tries.wait_s(error, self._deadline.remaining_s)
        # else: an upstream that asks for a pause gets it while another one answers
        if self._wait_s is None:
            self._failures.append(error)

    def again(self) -> None:
        """The same target is asked something else at once, which is no second try."""
        self._wait_s = 0.0

    def verdict(self) -> GatewayError:
        """What the client is told after all targets failed: the last one that an upstream said, with the smallest
        wait."""
        failures = self._failures
        said = [error for error in failures if isinstance(error, UpstreamError) and error.upstream_status is not None]
        error = (said or failures)[-1]
        waits = [failure.retry_after_s for failure in failures if failure.retry_after_s is not None]
        if waits:
            error.retry_after_s = min(waits)
        return error

    def too_late(self) -> UpstreamTimeout:
        return UpstreamTimeout(f"the answer was not complete within {self._rules.total_s:g} s")
