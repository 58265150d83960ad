"""One call of one target, as metrics, usage rows, spans and logs see it."""

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Protocol

from msgspec import Struct

from adapters.canonical.errors import GatewayError
from adapters.canonical.usage import Usage
from gateway.routing.guard import FinishGuard
from gateway.routing.health import TargetHealth
from gateway.routing.progress import Progress
from gateway.routing.route import Target

__all__ = ["Attempt", "AttemptKind", "AttemptObserver", "AttemptObservers", "Outcome"]


class AttemptKind(StrEnum):
    __hash__ = str.__hash__  # Enum's own is a call of Python

    FIRST = "first"
    AGAIN = "again"
    """The same target once more."""
    FAILOVER = "failover"
    HEDGE = "hedge"
    """Beside one that is slow."""
    SHADOW = "shadow"
    """A copy, whose answer goes nowhere."""


class Outcome(StrEnum):
    __hash__ = str.__hash__  # Enum's own is a call of Python

    RUNNING = "running"
    ANSWERED = "answered"
    FAILED = "failed"
    CANCELLED = "cancelled"
    """The client left, or another attempt was faster."""
    LACKING = "lacking"
    """The target has not the ability that was asked for, so it was not called."""


class Attempt(Struct, eq=False):
    """Times are seconds of the router's clock. `error` is why it failed, `first_output` None where nothing came.

    `progress` is that of the client's request, also for a shadow.
    """

    progress: Progress
    target: Target
    kind: AttemptKind
    began: float
    record: TargetHealth
    outcome: Outcome = Outcome.RUNNING
    first_output: float | None = None
    ended: float | None = None
    error: GatewayError | None = None
    guard: FinishGuard | None = None
    """Of a stream of events."""
    estimate: Usage | None = None
    """What it must have used where the target did not say all of it, once it is over."""
    cost_nano_usd: int | None = None
    """Billionths of a dollar, once it is over; None: no price is known."""

    @property
    def usage(self) -> Usage | None:
        """What was reported until now; also an attempt that failed may have spent tokens."""
        if self.estimate is not None:
            return self.estimate
        return self.guard.usage if self.guard is not None else self.progress.counted


class AttemptObserver(Protocol):
    """Sees every attempt of every request, shadows too. Called on the hot path: must be quick, and not raise."""

    def began(self, attempt: Attempt) -> None: ...

    def ended(self, attempt: Attempt) -> None:
        """Exactly once for each that began, on every way out."""
        ...


class AttemptObservers:
    """Several as one: what each wants to hear of."""

    def __init__(
        self, *, began: Sequence[Callable[[Attempt], None]], ended: Sequence[Callable[[Attempt], None]]
    ) -> None:
        self._began = began
        self._ended = ended

    def began(self, attempt: Attempt) -> None:
        for hear in self._began:
            hear(attempt)

    def ended(self, attempt: Attempt) -> None:
        for hear in self._ended:
            hear(attempt)
