"""What is known about each target from its traffic: breaker, pauses that it asked for, calls in flight, its TTFT.

Knows no routes: a target that stands behind several names has one record.
"""

import math
from collections.abc import Callable, Iterator

from adapters.canonical.errors import GatewayError, StaleConnection, UpstreamConflict, UpstreamError
from gateway.routing.breaker import Breaker, BreakerRules, BreakerState
from gateway.routing.route import Target
from providers.base import ReadinessState

__all__ = ["MAX_TARGETS", "Health", "TargetHealth", "Ttft", "tells_against"]

MAX_TARGETS = 4096
"""Records that are kept; a client may make names up where a provider cannot list its models."""


_LEAST_WEIGHT = 0.1
_SOON_S = 3.16
"""An observation that follows so soon has the least weight, which the exponential would give it as well."""


def tells_against(error: GatewayError) -> bool:
    """Whether a failure is the target's own. What a request got wrong, or its client's limit, is not; nor is a pause
    that the target asks for, which it is given, nor a kept connection that had ended."""
    if not isinstance(error, UpstreamError) or isinstance(error, UpstreamConflict | StaleConnection):
        return False
    return error.retry_after_s is None


class Ttft:
    """A mean of times to first token, in seconds, in which what is older weighs less."""

    __slots__ = ("_at", "_mean")

    DECAY_S = 30.0
    """After so long an observation weighs 1/e of a new one."""
    FORGOTTEN_S = 300.0

    def __init__(self) -> None:
        self._mean: float | None = None
        self._at = 0.0

    def observe(self, seconds: float, now: float) -> None:
        mean, since = self._mean, now - self._at
        if mean is None or since >= self.FORGOTTEN_S:
            self._mean = seconds
        else:
            weight = _LEAST_WEIGHT if since <= _SOON_S else 1 - math.exp(-since / self.DECAY_S)
            self._mean = mean + weight * (seconds - mean)
        self._at = now

    def mean(self, now: float) -> float | None:
        """None: nothing is known, or it is too long ago."""
        return self._mean if now - self._at < self.FORGOTTEN_S else None


class TargetHealth:
    """Of one target. Times are those of the clock of `Health`."""

    __slots__ = ("breaker", "in_flight", "paused_until", "target", "ttft")

    def __init__(self, target: Target, rules: BreakerRules) -> None:
        self.target = target
        self.breaker = Breaker(rules)
        self.in_flight = 0
        self.paused_until = -math.inf
        self.ttft = (Ttft(), Ttft())
        """Of whole answers, and of streams: the index is `stream`."""

    def refusal(self, now: float) -> str | None:
        """Why no call should begin now, while another target is left. None: one may."""
        if now < self.paused_until:
            return f"it asked for a pause, of which {self.paused_until - now:.1f} s are left"
        readiness = self.target.provider.readiness(self.target.model)
        if readiness.state is not ReadinessState.READY:
            return readiness.reason or f"it is {readiness.state.value}"
        if not self.breaker.admits(now):
            left_s = self.breaker.left_s(now)
            return f"its breaker is open for {left_s:.1f} s" if left_s else "its breaker is half-open and being tried"
        return None

    def is_paused(self, now: float) -> bool:
        """Whether it asked for a pause that is not over."""
        return now < self.paused_until

    def pause_s(self, now: float) -> float:
        """Seconds until it may be asked again."""
        return max(self.paused_until - now, self.breaker.left_s(now), 0.0)


class Health:
    """The records, made when a target is first asked. `clock` gives seconds of any origin.

    `opened` are told of each breaker that opens.
    """

    def __init__(self, rules: BreakerRules, clock: Callable[[], float]) -> None:
        self._rules = rules
        self._clock = clock
        self.opened: list[Callable[[TargetHealth], None]] = []
        self._records: dict[tuple[str, str, str | None], TargetHealth] = {}

    def __iter__(self) -> Iterator[TargetHealth]:
        return iter(list(self._records.values()))

    def __len__(self) -> int:
        return len(self._records)

    def of(self, target: Target) -> TargetHealth:
        key = (target.provider.name, target.model, target.adapter)
        record = self._records.get(key)
        if record is None:
            if len(self._records) >= MAX_TARGETS:
                self._forget_one()
            record = self._records[key] = TargetHealth(target, self._rules)
        return record

    def answered(self, record: TargetHealth, now: float, seconds: float, *, stream: bool) -> None:
        """The first output comes now, so long after the call began."""
        record.ttft[stream].observe(seconds, now)
        record.breaker.succeeded()

    def failed(self, record: TargetHealth, error: GatewayError, who: object) -> None:
        """`who` is the call, as its breaker knows it."""
        now = self._clock()
        if isinstance(error, UpstreamError) and error.retry_after_s is not None:
            record.paused_until = max(record.paused_until, now + error.retry_after_s)
        if tells_against(error):
            if record.breaker.failed(now, who):
                for told in self.opened:
                    told(record)
        elif error.retryable or error.fails_over:
            record.breaker.released(who)
        else:
            record.breaker.succeeded()  # it is there, and says what is wrong with the request

    def _forget_one(self) -> None:
        """The oldest record that says nothing; otherwise the oldest."""
        now = self._clock()
        idle = (
            key
            for key, record in self._records.items()
            if not record.in_flight and record.breaker.state(now) is BreakerState.CLOSED
        )
        del self._records[next(idle, next(iter(self._records)))]
