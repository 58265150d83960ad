"""What every limiter does: takes a request's demand in one step or refuses it, and corrects it once at its end.

Both implementations keep the same windows. A minute is the last sixty seconds, in whole ones: what was taken in a
second counts until a minute after the end of that second. So in no sixty seconds is more let in than the limit, and
what was taken is free again at most one second late.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from msgspec import Struct

from gateway.limits.scope import Demand, Scope

__all__ = ["BUSY_S", "WINDOW_S", "Grant", "Limiter", "Obstacle", "Refusal", "Standing", "tokens_needed"]

WINDOW_S = 61
"""The seconds that count: sixty whole ones, and the one that has begun."""


BUSY_S = 1.0
"""A request that would run beside too many others is told to come again after this."""


class Standing(Struct, frozen=True, gc=False):
    """Limit and rest of the minute, of the scope where least is left; None where there is no limit."""

    limit_requests: int | None = None
    remaining_requests: int | None = None
    limit_tokens: int | None = None
    remaining_tokens: int | None = None


class Obstacle(Enum):
    REQUESTS = "requests"
    TOKENS = "tokens"
    PROMPT = "prompt"
    """The prompt alone has more tokens than a minute may have."""
    PARALLEL = "parallel"
    BUDGET = "budget"


@dataclass(frozen=True, slots=True)
class Refusal:
    """`retry_after_s` None: waiting does not help."""

    obstacle: Obstacle
    scope: Scope
    retry_after_s: float | None
    standing: Standing


class Grant(Protocol):
    """What was taken. It belongs to the limiter that gave it."""

    @property
    def standing(self) -> Standing:
        """After it was taken."""
        ...

    def settle(self, tokens: int, nano_usd: int) -> None:
        """The request is over, and this is what it used. Frees its place. A second time does nothing."""
        ...


class Limiter(Protocol):
    async def reserve(self, demand: Demand) -> Grant | Refusal:
        """Takes all of the demand from every scope, or nothing.

        At most a scope's whole minute is taken for a request that may write more than that; what it did write is
        counted at its end, also beyond the limit.
        """
        ...

    async def aclose(self) -> None: ...


def tokens_needed(scope: Scope, demand: Demand) -> int:
    """What the demand takes of the scope's minute."""
    wanted = demand.prompt_tokens + demand.output_tokens
    return wanted if scope.tpm is None or wanted <= scope.tpm else scope.tpm
