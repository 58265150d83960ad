"""The limiter of one process: exact, since nothing can come between its look and its step."""

from collections.abc import Callable

from adapters.canonical.errors import NotReady
from gateway.limits.limiter import BUSY_S, WINDOW_S, Grant, Obstacle, Refusal, Standing, tokens_needed
from gateway.limits.scope import Demand, Period, Scope, period_at
from gateway.limits.spending import Spending, SpentBefore

__all__ = ["MAX_SCOPES", "InProcessLimiter"]

MAX_SCOPES = 50_000
"""Scopes that are remembered. Idle ones are forgotten first; more than these at work are refused."""
_WRITTEN_S = 60
"""What a scope has spent is in the database by then."""
_SWEEP_S = 1.0


class InProcessLimiter:
    """`clock` gives seconds of any origin, `now` Unix seconds.

    `spent_before` is asked once for each scope with a budget, when it is first seen; None: nothing was spent before.
    """

    def __init__(
        self, clock: Callable[[], float], now: Callable[[], float], spent_before: SpentBefore | None = None
    ) -> None:
        self._clock = clock
        self._now = now
        self._spending = None if spent_before is None else Spending(spent_before)
        self._counts: dict[str, _Counts] = {}
        self._swept = -_SWEEP_S

    def ask_for_spent(self, spent_before: SpentBefore) -> None:
        """From now on, this is asked what was spent before."""
        self._spending = Spending(spent_before)

    async def reserve(self, demand: Demand) -> Grant | Refusal:
        """See `Limiter`. Raises NotReady where too many scopes are at work, or it can't be told what was spent."""
        clock, now = self._clock(), self._now()
        second = int(clock)
        taken: list[_Taken] = []
        for scope in demand.scopes:
            counts = self._counts.get(scope.name) or self._new(scope.name, second)
            if second != counts.second:
                counts.advance(second)
            budget = scope.budget
            if budget is not None:
                if not counts.is_loaded and self._spending is not None:
                    await self._load(scope, self._spending)
                    return await self.reserve(demand)  # time has passed
                if now >= counts.period_end or budget.per != counts.per:
                    counts.begin_period(budget.per, now)
                    if not counts.is_loaded and self._spending is not None:
                        return await self.reserve(demand)  # what was spent of the new period is not known yet
            elif counts.is_loaded:
                counts.leave_budget()
            taken.append((scope, counts, tokens_needed(scope, demand), counts.period_end))
        for scope, counts, tokens, period_end in taken:
            obstacle = counts.obstacle(scope, demand, tokens)
            if obstacle is not None:
                wait_s = (
                    period_end - now if obstacle is Obstacle.BUDGET else counts.wait_s(obstacle, scope, tokens, clock)
                )
                return Refusal(obstacle, scope, wait_s, _standing(taken))
        place = second % WINDOW_S
        for scope, counts, tokens, _ in taken:
            counts.running += 1
            if scope.rpm is not None:
                counts.requests_of[place] += 1
                counts.requests += 1
            if scope.tpm is not None:
                counts.tokens_of[place] += tokens
                counts.tokens += tokens
            if scope.budget is not None:
                counts.spent += demand.nano_usd
        return _Grant(self._clock, taken, second, demand.nano_usd)

    async def aclose(self) -> None:
        """Nothing is open."""

    @property
    def num_scopes(self) -> int:
        return len(self._counts)

    def running(self, name: str) -> int:
        """Requests of a scope that are not settled yet."""
        counts = self._counts.get(name)
        return 0 if counts is None else counts.running

    async def _load(self, scope: Scope, spending: Spending) -> None:
        """What the scope had spent before this process saw it."""
        assert scope.budget is not None
        start, end = period_at(scope.budget.per, self._now())
        spent = await spending(scope, start)
        second, now = int(self._clock()), self._now()
        counts = self._counts.get(scope.name) or self._new(scope.name, second)
        if counts.is_loaded:
            return
        counts.advance(second)
        if now >= counts.period_end or scope.budget.per != counts.per:
            counts.begin_period(scope.budget.per, now)
        if now < end:  # else another one began meanwhile
            counts.spent += spent
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
    __slots__ = ("_clock", "_nano_usd", "_second", "_settled", "_taken", "standing")

    def __init__(self, clock: Callable[[], float], taken: "list[_Taken]", second: int, nano_usd: int) -> None:
        self._clock = clock
        self._taken = taken
        self._second = second
        self._nano_usd = nano_usd
        self._settled = False
        self.standing = _standing(taken)

    def settle(self, tokens: int, nano_usd: int) -> None:
        if self._settled:
            return
        self._settled = True
        second = int(self._clock())
        for scope, counts, reserved, period_end in self._taken:
            counts.running -= 1
            if scope.tpm is not None:
                if second != counts.second:
                    counts.advance(second)
                # What was not needed is given back where it was taken; what was more counts from now on.
                at = self._second if tokens < reserved else counts.second
                if counts.second - at < WINDOW_S:
                    counts.tokens_of[at % WINDOW_S] += tokens - reserved
                    counts.tokens += tokens - reserved
            if scope.budget is not None:
                change = nano_usd - self._nano_usd
                if change > 0 or counts.period_end == period_end:  # a new period gets nothing back
                    counts.spent += change


class _Counts:
    """Of one scope: what was taken in each of the last seconds, and what runs and was spent.

    `requests_of[second % WINDOW_S]` is of that second, `requests` the sum of all; the same for tokens. Never below 0.
    """

    __slots__ = (
        "is_loaded",
        "per",
        "period_end",
        "requests",
        "requests_of",
        "running",
        "second",
        "spent",
        "tokens",
        "tokens_of",
    )

    def __init__(self) -> None:
        self.second = -1  # the newest one
        self.requests_of = [0] * WINDOW_S
        self.requests = 0
        self.tokens_of = [0] * WINDOW_S
        self.tokens = 0
        self.running = 0
        self.per: Period | None = None
        self.period_end = 0
        self.spent = 0  # in the period, reservations included
        self.is_loaded = False
        """Whether `spent` holds what was spent before this process began."""

    def advance(self, second: int) -> None:
        """Leaves behind what counts no more."""
        if self.requests or self.tokens:
            for old in range(max(self.second, second - WINDOW_S) + 1, second + 1):
                place = old % WINDOW_S
                self.requests -= self.requests_of[place]
                self.tokens -= self.tokens_of[place]
                self.requests_of[place] = self.tokens_of[place] = 0
        self.second = max(self.second, second)

    def begin_period(self, per: Period, now: float) -> None:
        """A clock that goes back begins none anew. What was spent in one of another kind, others know."""
        if self.per is not None and per != self.per:
            self.is_loaded = False
        self.per = per
        self.period_end = period_at(per, now)[1]
        self.spent = 0

    def leave_budget(self) -> None:
        """The scope has none any more: what is spent from now on is not counted here."""
        self.per = None
        self.period_end = self.spent = 0
        self.is_loaded = False

    def is_idle(self, second: int, now: float) -> bool:
        if self.requests or self.tokens:
            self.advance(second)
        if self.running or self.requests or self.tokens:
            return False
        is_known = self.is_loaded and second - self.second > _WRITTEN_S  # and will be asked for
        return not self.spent or now >= self.period_end or is_known

    def obstacle(self, scope: Scope, demand: Demand, tokens: int) -> Obstacle | None:
        """What stands in the way."""
        if scope.rpm is not None and self.requests >= scope.rpm:
            return Obstacle.REQUESTS
        if scope.tpm is not None:
            if demand.prompt_tokens > scope.tpm:
                return Obstacle.PROMPT
            if self.tokens + tokens > scope.tpm:
                return Obstacle.TOKENS
        if scope.budget is not None and self.spent + demand.nano_usd > scope.budget.nano_usd:
            return Obstacle.BUDGET
        if scope.parallel is not None and self.running >= scope.parallel:
            return Obstacle.PARALLEL
        return None

    def wait_s(self, obstacle: Obstacle, scope: Scope, tokens: int, clock: float) -> float | None:
        """Until it may be out of the way; None: never."""
        if obstacle is Obstacle.REQUESTS:
            return self._until(self.requests_of, self.requests + 1 - (scope.rpm or 0), clock)
        if obstacle is Obstacle.TOKENS:
            return self._until(self.tokens_of, self.tokens + tokens - (scope.tpm or 0), clock)
        return BUSY_S if obstacle is Obstacle.PARALLEL else None

    def _until(self, amounts: list[int], excess: int, clock: float) -> float:
        """Seconds until the excess counts no more."""
        for second in range(self.second - WINDOW_S + 1, self.second + 1):
            part = amounts[second % WINDOW_S]
            excess -= part
            if part and excess <= 0:
                return second + WINDOW_S - clock
        return 0.0


_Taken = tuple[Scope, _Counts, int, int]
"""A scope, its counts, the tokens taken of it, and the end of the period that it was charged in."""


def _standing(taken: "list[_Taken]") -> Standing:
    """Of the scope where least is left."""
    rpm = left_requests = tpm = left_tokens = None
    for scope, counts, _, _ in taken:
        if scope.rpm is not None:
            left = scope.rpm - counts.requests
            if left_requests is None or left < left_requests:
                rpm, left_requests = scope.rpm, left if left > 0 else 0
        if scope.tpm is not None:
            left = scope.tpm - counts.tokens
            if left_tokens is None or left < left_tokens:
                tpm, left_tokens = scope.tpm, left if left > 0 else 0
    return Standing(rpm, left_requests, tpm, left_tokens)
