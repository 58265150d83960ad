"""The limiter of one process: exact, since nothing can come between its look and its step."""

import asyncio
from collections.abc import Awaitable, Callable

from adapters.canonical.errors import NotReady
from gateway.limits.limiter import BUSY_S, WINDOW_S, Grant, Obstacle, Refusal, Standing, tokens_needed
from gateway.limits.scope import Demand, Period, Scope, period_at

__all__ = ["MAX_SCOPES", "InProcessLimiter", "SpentBefore"]

MAX_SCOPES = 50_000
"""Scopes that are remembered. Idle ones are forgotten first; more than these at work are refused."""
_SWEEP_S = 1.0

SpentBefore = Callable[[Scope, int], Awaitable[int]]
"""What a scope has spent since a time in Unix seconds, as the database knows it. Raises NotReady."""


class InProcessLimiter:
    """`clock` gives seconds of any origin, `now` Unix seconds.

    `spent_before` is asked once for each scope with a budget, when it is first seen; None: nothing was spent before.
    """

    def __init__(
        self, clock: Callable[[], float], now: Callable[[], float], spent_before: SpentBefore | None = None
    ) -> None:
        self._clock = clock
        self._now = now
        self._spent_before = spent_before
        self._loading = asyncio.Lock()
        self._counts: dict[str, _Counts] = {}
        self._swept = -_SWEEP_S

    def ask_for_spent(self, spent_before: SpentBefore) -> None:
        """From now on, this is asked what was spent before."""
        self._spent_before = spent_before

    async def reserve(self, demand: Demand) -> Grant | Refusal:
        """See `Limiter`. Raises NotReady where too many scopes are at work, or it can't be told what was spent."""
        for scope in demand.scopes:
            if scope.budget is not None and self._spent_before is not None:
                counts = self._counts.get(scope.name)
                if counts is None or not counts.is_loaded:
                    await self._load(scope, self._spent_before)
        clock, now = self._clock(), self._now()
        second = int(clock)
        taken: list[_Taken] = []
        for scope in demand.scopes:
            counts = self._counts.get(scope.name) or self._new(scope.name, second)
            if second != counts.second or scope.budget is not None:
                counts.advance(scope, second, now)
            taken.append((scope, counts, tokens_needed(scope, demand), counts.period_end))
        for scope, counts, tokens, period_end in taken:
            obstacle = counts.obstacle(scope, demand, tokens)
            if obstacle is not None:
                wait_s = (
                    period_end - now if obstacle is Obstacle.BUDGET else counts.wait_s(obstacle, scope, tokens, clock)
                )
                return Refusal(obstacle, scope, wait_s, _standing(taken))
        for scope, counts, tokens, _ in taken:
            counts.running += 1
            if scope.rpm is not None:
                counts.requests.add(1)
            if scope.tpm is not None:
                counts.tokens.add(tokens)
            if scope.budget is not None:
                counts.spent += demand.nano_usd
        return _Grant(self, taken, second, demand.nano_usd)

    def settle(self, grant: "_Grant", tokens: int, nano_usd: int) -> None:
        second = int(self._clock())
        for scope, counts, reserved, period_end in grant.taken:
            counts.running -= 1
            if scope.tpm is not None:
                counts.tokens.advance(second)
                if tokens < reserved:
                    counts.tokens.give_back(grant.second, reserved - tokens)
                else:  # more than was reserved counts from now on
                    counts.tokens.add(tokens - reserved)
            if scope.budget is not None:
                change = nano_usd - grant.nano_usd
                counts.spent += change if counts.period_end == period_end else max(0, change)

    async def aclose(self) -> None:
        """Nothing is open."""

    @property
    def num_scopes(self) -> int:
        return len(self._counts)

    def running(self, name: str) -> int:
        """Requests of a scope that are not settled yet."""
        counts = self._counts.get(name)
        return 0 if counts is None else counts.running

    async def _load(self, scope: Scope, spent_before: SpentBefore) -> None:
        """What the scope had spent before this process saw it."""
        assert scope.budget is not None
        async with self._loading:
            second, now = int(self._clock()), self._now()
            counts = self._counts.get(scope.name) or self._new(scope.name, second)
            if counts.is_loaded:
                return
            counts.advance(scope, second, now)
            counts.spent += await spent_before(scope, period_at(scope.budget.per, now)[0])
            counts.is_loaded = True

    def _new(self, name: str, second: int) -> "_Counts":
        if len(self._counts) >= MAX_SCOPES:
            self._sweep(second)
        if len(self._counts) >= MAX_SCOPES:
            raise NotReady("too many keys are in use at once, try again soon", code="overloaded", retry_after_s=1)
        counts = self._counts[name] = _Counts()
        return counts

    def _sweep(self, second: int) -> None:
        """Forgets what tells nothing any more. Looks at all of them at most once a second."""
        now = self._now()
        if second - self._swept < _SWEEP_S:
            return
        self._swept = second
        for name in [name for name, counts in self._counts.items() if counts.is_idle(second, now)]:
            del self._counts[name]


class _Grant:
    __slots__ = ("_limiter", "nano_usd", "second", "settled", "standing", "taken")

    def __init__(self, limiter: InProcessLimiter, taken: "list[_Taken]", second: int, nano_usd: int) -> None:
        self._limiter = limiter
        self.taken = taken
        self.second = second
        self.nano_usd = nano_usd
        self.standing = _standing(taken)
        self.settled = False

    def settle(self, tokens: int, nano_usd: int) -> None:
        if not self.settled:
            self.settled = True
            self._limiter.settle(self, tokens, nano_usd)


class _Window:
    """What was taken in each of the last seconds, and the sum of it. A second's amount is never below zero."""

    __slots__ = ("_amounts", "_second", "total")

    def __init__(self) -> None:
        self._amounts = [0] * WINDOW_S  # a second's place is its rest by WINDOW_S
        self._second = -1  # the newest one
        self.total = 0

    def advance(self, second: int) -> None:
        """Leaves behind what counts no more."""
        passed = second - self._second
        if passed <= 0:
            return
        if passed >= WINDOW_S or not self.total:
            self._amounts = [0] * WINDOW_S
            self.total = 0
        else:
            for old in range(self._second + 1, second + 1):
                place = old % WINDOW_S
                self.total -= self._amounts[place]
                self._amounts[place] = 0
        self._second = second

    def add(self, amount: int) -> None:
        """In the newest second."""
        self._amounts[self._second % WINDOW_S] += amount
        self.total += amount

    def give_back(self, taken: int, amount: int) -> None:
        """Of what was taken in a second, if that counts still."""
        if self._second - taken < WINDOW_S:
            self._amounts[taken % WINDOW_S] -= amount
            self.total -= amount

    def wait_s(self, amount: int, limit: int, clock: float) -> float:
        """Until so much can be taken again."""
        total = self.total
        for second in range(self._second - WINDOW_S + 1, self._second + 1):
            part = self._amounts[second % WINDOW_S]
            total -= part
            if part and total + amount <= limit:
                return second + WINDOW_S - clock
        return 0.0


class _Counts:
    """Of one scope."""

    __slots__ = ("_per", "is_loaded", "period_end", "requests", "running", "second", "spent", "tokens")

    def __init__(self) -> None:
        self.requests = _Window()
        self.tokens = _Window()
        self.running = 0
        self.second = -1  # in which the windows were brought up to date
        self.period_end = 0
        self.spent = 0  # in the period, reservations included
        self.is_loaded = False
        """Whether `spent` holds what was spent before this process began."""
        self._per: Period | None = None

    def advance(self, scope: Scope, second: int, now: float) -> None:
        """Leaves behind what is over. A clock that goes back begins no period anew."""
        if second != self.second:
            self.second = second
            self.requests.advance(second)
            self.tokens.advance(second)
        budget = scope.budget
        if budget is not None and (now >= self.period_end or budget.per != self._per):
            self._per = budget.per
            self.period_end = period_at(budget.per, now)[1]
            self.spent = 0

    def is_idle(self, second: int, now: float) -> bool:
        self.requests.advance(second)
        self.tokens.advance(second)
        return not (self.running or self.requests.total or self.tokens.total or (self.spent and now < self.period_end))

    def obstacle(self, scope: Scope, demand: Demand, tokens: int) -> Obstacle | None:
        """What stands in the way."""
        if scope.rpm is not None and self.requests.total >= scope.rpm:
            return Obstacle.REQUESTS
        if scope.tpm is not None:
            if demand.prompt_tokens > scope.tpm:
                return Obstacle.PROMPT
            if self.tokens.total + tokens > scope.tpm:
                return Obstacle.TOKENS
        if scope.budget is not None and self.spent + demand.nano_usd > scope.budget.nano_usd:
            return Obstacle.BUDGET
        if scope.parallel is not None and self.running >= scope.parallel:
            return Obstacle.PARALLEL
        return None

    def wait_s(self, obstacle: Obstacle, scope: Scope, tokens: int, clock: float) -> float | None:
        """Until it may be out of the way; None: never."""
        if obstacle is Obstacle.REQUESTS:
            return self.requests.wait_s(1, scope.rpm or 0, clock)
        if obstacle is Obstacle.TOKENS:
            return self.tokens.wait_s(tokens, scope.tpm or 0, clock)
        return BUSY_S if obstacle is Obstacle.PARALLEL else None


_Taken = tuple[Scope, _Counts, int, int]
"""A scope, its counts, the tokens taken of it, and the end of the period that it was charged in."""


def _standing(taken: "list[_Taken]") -> Standing:
    if len(taken) == 1:
        scope, counts, _, _ = taken[0]
        rpm, tpm = scope.rpm, scope.tpm
        return Standing(
            rpm,
            None if rpm is None else max(0, rpm - counts.requests.total),
            tpm,
            None if tpm is None else max(0, tpm - counts.tokens.total),
        )
    requests: tuple[int, int] | None = None
    tokens: tuple[int, int] | None = None
    for scope, counts, _, _ in taken:
        if scope.rpm is not None:
            left = max(0, scope.rpm - counts.requests.total)
            if requests is None or left < requests[0]:
                requests = left, scope.rpm
        if scope.tpm is not None:
            left = max(0, scope.tpm - counts.tokens.total)
            if tokens is None or left < tokens[0]:
                tokens = left, scope.tpm
    left_requests, least_rpm = requests or (None, None)
    left_tokens, least_tpm = tokens or (None, None)
    return Standing(least_rpm, left_requests, least_tpm, left_tokens)
