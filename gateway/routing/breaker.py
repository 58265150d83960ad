"""Leaves a failing target alone for a while, then lets one request try it. Pure: time is passed in, in seconds.

closed ──── enough failures ────▶ open ──── open_s ────▶ half-open ──── the probe answers ────▶ closed
                                   ▲                         │
                                   └──── the probe fails ────┘
"""

from collections import deque
from dataclasses import dataclass
from enum import Enum

__all__ = ["Breaker", "BreakerRules", "BreakerState"]


class BreakerState(Enum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerRules:
    """It opens after `failures` within `window_s`, if no more answers than these came between; for `open_s`."""

    failures: int = 5
    window_s: float = 30.0
    open_s: float = 15.0


class Breaker:
    """Of one target. `who` is any object that stands for one call; its end is told once.

    A count alone would open it for a busy target that fails once in a thousand calls: so answers count as well.
    """

    __slots__ = ("_answers", "_failures", "_probe", "_rules", "_until")

    def __init__(self, rules: BreakerRules) -> None:
        self._rules = rules
        self._answers = 0
        self._failures: deque[tuple[float, int]] = deque(maxlen=rules.failures)
        """Of each of the last ones: when it was, and how many answers had come before it."""
        self._until: float | None = None  # None: closed
        self._probe: object = None

    def state(self, now: float) -> BreakerState:
        if self._until is None:
            return BreakerState.CLOSED
        return BreakerState.OPEN if now < self._until else BreakerState.HALF_OPEN

    def left_s(self, now: float) -> float:
        """Seconds until it is half-open; 0 where it lets a call through."""
        return 0.0 if self._until is None else max(0.0, self._until - now)

    def admits(self, now: float) -> bool:
        """Whether a call may begin: any while it is closed, the first one while it is half-open."""
        return self._until is None or (now >= self._until and self._probe is None)

    def begin(self, now: float, who: object) -> None:
        """A call begins. The one that a half-open breaker admits is the probe: until it ends, no other is admitted."""
        if self._until is not None and self.admits(now):
            self._probe = who

    def succeeded(self) -> None:
        """A call was answered, which closes it in whichever state."""
        self._answers += 1
        if self._until is not None:
            self._until = self._probe = None
            self._failures.clear()

    def failed(self, now: float, who: object) -> bool:
        """A call failed. Gives whether this opened it."""
        if self._until is not None:
            if self._probe is not who and (self._probe is not None or now < self._until):
                return False  # an older call; what the probe says counts
            self._probe = None
            self._until = now + self._rules.open_s
            return True
        self._failures.append((now, self._answers))
        since, answers = self._failures[0]
        if (
            len(self._failures) < self._rules.failures
            or now - since > self._rules.window_s
            or self._answers - answers > self._rules.failures
        ):
            return False
        self._failures.clear()
        self._until = now + self._rules.open_s
        return True

    def released(self, who: object) -> None:
        """A call ended without telling anything about the target: its client left."""
        if self._probe is who:
            self._probe = None

    def trip(self, now: float) -> None:
        """It is known without a call that the target is gone."""
        if self._until is None:
            self._failures.clear()
            self._until = now + self._rules.open_s

    def stay_open(self, now: float) -> None:
        """It is known without a call that the target is still gone."""
        if self._until is not None and self._probe is None:
            self._until = now + self._rules.open_s
