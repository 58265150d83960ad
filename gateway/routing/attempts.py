"""Who is asked next, after which pause, and when no more: the one walk over a route's targets for everything asked.

Owns tries, failover and the verdict after the last failure, and tells health and observer of every attempt. Knows
neither what is asked nor how it is answered.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from adapters.canonical.errors import (
    GatewayError,
    StaleConnection,
    UnsupportedParameter,
    UpstreamAuth,
    UpstreamError,
    UpstreamQuota,
    UpstreamRateLimited,
    UpstreamTimeout,
)
from gateway.routing.attempt import Attempt, AttemptKind, AttemptObserver, Outcome
from gateway.routing.breaker import BreakerRules
from gateway.routing.deadline import Deadline
from gateway.routing.health import Health
from gateway.routing.progress import Progress
from gateway.routing.retries import Tries
from gateway.routing.route import Detours, Target
from providers.client_key import CLIENT_KEY

__all__ = ["Attempts", "RoutingRules", "Walking"]

# Python 3.11 asks the class's __getattr__ for a member: ten times the cost of a name.
_FIRST, _ANSWERED = AttemptKind.FIRST, Outcome.ANSWERED
_OF_ACCOUNTS = (UpstreamAuth, UpstreamQuota, UpstreamRateLimited)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingRules:
    """`attempts`: tries of one target in all. `total_s`: for the whole request, all tries and waits together."""

    attempts: int = 2
    max_wait_s: float = 20.0
    total_s: float = 600.0
    completions_as_chat: bool = False
    breaker: BreakerRules = field(default_factory=BreakerRules)


@dataclass(frozen=True, slots=True)
class Walking:
    """What all walks of a router share. `clock` gives seconds of any origin."""

    rules: RoutingRules
    health: Health
    clock: Callable[[], float]
    random: Callable[[], float]
    observer: AttemptObserver | None = None

    def begin(self, progress: Progress, target: Target, kind: AttemptKind) -> Attempt:
        """The target is about to be called."""
        record = self.health.of(target)
        now = self.clock()
        attempt = Attempt(progress, target, kind, now, record)
        record.in_flight += 1
        record.breaker.begin(now, attempt)
        if self.observer is not None:
            self.observer.began(attempt)
        return attempt

    def answered(self, attempt: Attempt) -> None:
        """Its first output came."""
        attempt.first_output = now = self.clock()
        self.health.answered(attempt.record, now, now - attempt.began, stream=attempt.progress.stream)

    def end(self, attempt: Attempt, outcome: Outcome, error: GatewayError | None = None) -> None:
        """It is over. What was over before stays as it was."""
        if attempt.ended is not None:
            return
        attempt.outcome, attempt.error, attempt.ended = outcome, error, self.clock()
        if error is not None:
            error.forget_frames()
        record = attempt.record
        record.in_flight -= 1
        if error is not None and not _is_of_own_account(error):
            self.health.failed(record, error, attempt)
        elif outcome is not _ANSWERED:
            record.breaker.released(attempt)
        if self.observer is not None:
            self.observer.ended(attempt)


def _is_of_own_account(error: GatewayError) -> bool:
    """Whether it is about the account of a client that came with a key of its own: other clients have another one."""
    return isinstance(error, _OF_ACCOUNTS) and CLIENT_KEY.get() is not None


class Attempts:
    """Of one request. A target that its health speaks against is passed over while another one is left.

    Where none is left, the one that may be asked soonest is asked all the same, once: a breaker steers requests, it
    does not refuse them.
    """

    __slots__ = (
        "_begun",
        "_detours",
        "_kind",
        "_lacking",
        "_once",
        "_place",
        "_refused",
        "_renewed",
        "_target",
        "_targets",
        "_tries",
        "_wait_s",
        "_walking",
        "deadline",
        "progress",
    )

    def __init__(
        self,
        targets: Sequence[Target],
        walking: Walking,
        *,
        deadline: Deadline,
        progress: Progress,
        detours: Detours | None = None,
    ) -> None:
        self._targets = targets
        self._walking = walking
        self.deadline = deadline
        self.progress = progress
        self._detours = detours
        self._place = -1
        self._target: Target | None = None
        self._kind = _FIRST
        self._tries: Tries | None = None
        self._wait_s: float | None = None  # until the same target is asked again; None: the next one is due
        self._once = False
        self._renewed = False
        self._refused: list[Target] = []
        self._lacking: UnsupportedParameter | None = None
        self._begun: list[Attempt] = []
        """Every attempt of this walk; most are over."""

    def __enter__(self) -> Self:
        """The walk ends with the block: then nothing runs any more, and the deadline is off."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Raises UpstreamTimeout in place of a cancellation that was the deadline's."""
        late = self.too_late() if kind is asyncio.CancelledError and self.deadline.took() else None
        for attempt in self._begun:
            if attempt.ended is None:
                self._walking.end(attempt, Outcome.CANCELLED)
        self.deadline.close()
        if late is not None:
            raise late from None

    async def next(self) -> Target | None:
        """The target to ask now, after the pause that its failure calls for. None: no more.

        One that did not fail is not asked again. Raises UpstreamTimeout once the deadline has passed.
        """
        wait_s, self._wait_s = self._wait_s, None
        if wait_s is None:
            self._kind = AttemptKind.FAILOVER if self._begun else _FIRST
            self._target = self._advance()
        else:
            self._kind = AttemptKind.AGAIN
            if wait_s:
                self.deadline.armed = True
                await asyncio.sleep(wait_s)
                self.deadline.armed = False
        if self._target is not None and self.deadline.passed:
            raise self.too_late()
        return self._target

    def begin(self, target: Target, kind: AttemptKind | None = None) -> Attempt:
        """The target is called. `kind` None: it is the one that `next` gave."""
        progress = self.progress
        progress.target = target
        progress.attempts += 1
        attempt = self._walking.begin(progress, target, kind or self._kind)
        self._begun.append(attempt)
        return attempt

    def spare(self) -> Target | None:
        """The next target, to be asked beside the one that is running. It is then no longer among the others."""
        place = self._place_of_another()
        if place is None:
            return None
        target = self._targets[place]
        self._targets = [*self._targets[:place], *self._targets[place + 1 :]]
        return target

    def answered(self, attempt: Attempt) -> None:
        """Its first output came: it is the one that answers."""
        self._walking.answered(attempt)
        self.progress.target = attempt.target
        self.progress.called = attempt.began

    def finished(self, attempt: Attempt) -> None:
        self._walking.end(attempt, _ANSWERED)

    def cancelled(self, attempt: Attempt) -> None:
        self._walking.end(attempt, Outcome.CANCELLED)

    def broke(self, attempt: Attempt, error: GatewayError) -> None:
        """It failed after its first output, so nothing follows."""
        self._walking.end(attempt, Outcome.FAILED, error)

    def gave_up(self, attempt: Attempt, error: GatewayError) -> None:
        """It failed while another one runs, so it is not asked again."""
        self._walking.end(attempt, Outcome.FAILED, error)
        self.progress.failures.append(error)

    def failed(self, attempt: Attempt, error: GatewayError) -> None:
        """The target's answer is this error. Raises it where asking again, anywhere, would not mend it."""
        self._walking.end(attempt, Outcome.FAILED, error)
        if isinstance(error, StaleConnection) and not self._renewed:
            self._renewed = True
            self._wait_s = 0.0  # the same target at once, on a new connection, which is no second try
            return
        if self._turn_off(error):
            return
        retryable = error.retryable if error.should_retry is None else error.should_retry
        if not retryable and not error.fails_over:
            raise error
        if retryable and not self._once and (error.retry_after_s is None or self._place_of_another() is None):
            # An upstream that asks for a pause gets it while another one answers.
            rules = self._walking.rules
            self._tries = self._tries or Tries(rules.attempts, rules.max_wait_s, self._walking.random)
            if attempt.record.breaker.admits(self._walking.clock()):
                self._wait_s = self._tries.wait_s(error, self.deadline.remaining_s)
        if self._wait_s is None:
            if not error.fails_over:
                raise error
            self.progress.failures.append(error)

    def lacks(self, attempt: Attempt, error: UnsupportedParameter) -> None:
        """The target turned out to lack what is asked for."""
        self._walking.end(attempt, Outcome.LACKING)
        self.pass_over(attempt.target, error)

    def pass_over(self, target: Target, error: UnsupportedParameter) -> None:
        """The target cannot do what the request needs."""
        self._lacking = self._lacking or error
        self.progress.passed_over.append((target, error.message))

    def again(self, attempt: Attempt, error: GatewayError) -> None:
        """The same target is asked something else at once, which is no second try."""
        self._walking.end(attempt, Outcome.FAILED, error)
        self._wait_s = 0.0

    def verdict(self) -> GatewayError:
        """What the client is told after all targets failed: the last one that an upstream said, with the smallest
        wait. Where none was asked, what the first one lacks."""
        failures = self.progress.failures
        if not failures and self._lacking is not None:
            return self._lacking
        said = [error for error in failures if isinstance(error, UpstreamError) and error.upstream_status is not None]
        error = (said or failures)[-1]
        waits = [failure.retry_after_s for failure in failures if failure.retry_after_s is not None]
        if waits:
            error.retry_after_s = min(waits)
        return error

    def too_late(self, unhurried: Attempt | None = None) -> UpstreamTimeout:
        """The error of the deadline, which is also that of the attempts that it ends; but not of the one that was held
        up by its reader."""
        if unhurried is not None:
            self.cancelled(unhurried)
        error = UpstreamTimeout(f"the answer was not complete within {self._walking.rules.total_s:g} s")
        for attempt in self._begun:
            self._walking.end(attempt, Outcome.FAILED, error)
        return error

    def has_detour(self, kind: type[GatewayError]) -> bool:
        """Whether a request that fails in this way goes on elsewhere."""
        return self._detours is not None and bool(self._detours.get(kind))

    def _place_of_another(self) -> int | None:
        """Where the next target stands that may be asked now."""
        now = self._walking.clock()
        for place in range(self._place + 1, len(self._targets)):
            if self._walking.health.of(self._targets[place]).refusal(now) is None:
                return place
        return None

    def _turn_off(self, error: GatewayError) -> bool:
        """Turns to the targets for this error, where there are some; once."""
        if not self.has_detour(type(error)):
            return False
        detours = dict(self._detours or {})
        self._targets = detours.pop(type(error))
        self._detours = detours
        self._place = -1
        self._once = False
        self._refused = []
        self.progress.failures.append(error)
        return True

    def _advance(self) -> Target | None:
        self._tries = None
        if self._once:
            return None
        walking = self._walking
        if len(self._targets) == 1 and self._place < 0:
            self._place = 0
            target = self._targets[0]
            self._once = not walking.health.of(target).breaker.admits(walking.clock())
            return target
        while self._place + 1 < len(self._targets):
            self._place += 1
            target = self._targets[self._place]
            why = walking.health.of(target).refusal(walking.clock())
            if why is None:
                return target
            self._refused.append(target)
            self.progress.passed_over.append((target, why))
        return self._last_resort()

    def _last_resort(self) -> Target | None:
        """Of those passed over for their health, the one that may be asked soonest. A pause that was asked for is
        kept to where anything else was asked."""
        walking, now = self._walking, self._walking.clock()
        of = walking.health.of
        left = [each for each in self._refused if not (self._begun and of(each).is_paused(now))]
        self._refused = []
        if not left:
            return None
        self._once = True
        target = min(left, key=lambda each: of(each).pause_s(now))
        self.progress.passed_over = [each for each in self.progress.passed_over if each[0] is not target]
        return target
