"""The limiter of several replicas: their counts stand in one Redis, and each step there is one script.

While Redis answers it is as exact as the limiter of one process, but for two things that only make it stricter: a
replica that dies leaves its reservations of money and tokens behind, and its places among the parallel ones until their
lease is over; of a correction that is lost with its connection only the place that it frees is told again.

What was spent in a period stands in the database as well: Redis is told it at the first request of the period, and when
it has lost it.

While Redis does not answer, every replica limits by itself, from nothing: then a limit is passed at most as many times
as there are replicas. No request fails for it, and none waits longer than TIMEOUT_S for a Redis that is silent; one log
line tells when that begins, and one when it ends.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from adapters.canonical.errors import NotReady
from gateway.limits.in_process import InProcessLimiter
from gateway.limits.limiter import BUSY_S, Grant, Obstacle, Refusal, Standing, tokens_needed
from gateway.limits.redis_scripts import RESERVE, SETTLE
from gateway.limits.scope import Demand, Scope, period_at
from gateway.limits.spending import Spending, SpentBefore
from gateway.redis_pipe import RedisAway, RedisPipe, RedisScript

__all__ = ["AGAIN_S", "MAX_PENDING", "TIMEOUT_S", "RedisLimiter"]

TIMEOUT_S = 0.25
"""The longest silence of Redis, connecting included."""
AGAIN_S = 1.0
"""After a failure Redis is left alone for so long."""
MAX_PENDING = 100_000
"""Corrections that wait for Redis; more are dropped."""
_CORRECT_EVERY_S = 0.02
_GROUP = 256
_KEPT_S = 86_400
"""So long after its end the spending of a period is kept: replicas' clocks may differ."""
_UNKNOWN = b"unknown"
_TAG = "{llm-gateway}"


class RedisLimiter:
    """`clock` gives seconds of any origin, `now` Unix seconds, `token` names for grants, unique over all replicas.

    `lease_s` is longer than any request lasts. `log` takes an event and its fields. `server_clock`: minutes are those
    of Redis's own clock; else of `now`. `spent_before` is what the database knows; None: nothing. Raises ValueError on
    an address that is none.
    """

    def __init__(
        self,
        url: str,
        *,
        clock: Callable[[], float],
        now: Callable[[], float],
        token: Callable[[], str],
        lease_s: float,
        log: Callable[[str, dict[str, object]], None],
        server_clock: bool = True,
        timeout_s: float = TIMEOUT_S,
        spent_before: SpentBefore | None = None,
    ) -> None:
        self._pipe = RedisPipe(url, timeout_s=timeout_s)
        self._corrections = RedisPipe(url, timeout_s=timeout_s * 4)
        self._reserve = RedisScript(self._pipe, RESERVE)
        self._settle = RedisScript(self._corrections, SETTLE)
        self._alone = InProcessLimiter(clock, now)
        self._clock = clock
        self._now = now
        self._token = token
        self._lease_s = int(lease_s) + 1
        self._log = log
        self._server_clock = server_clock
        self._spending = None if spent_before is None else Spending(spent_before)
        self._closing = False
        self._failed_at: float | None = None
        self._pending: list[tuple[list[str], list[str | int | float]]] = []
        self._correcting: asyncio.Task[None] | None = None

    async def reserve(self, demand: Demand) -> Grant | Refusal:
        """See `Limiter`."""
        if self._failed_at is not None and self._clock() - self._failed_at < AGAIN_S:
            return await self._alone.reserve(demand)
        now, name = self._now(), self._token()
        ends = [period_at(scope.budget.per, now)[1] if scope.budget is not None else 0 for scope in demand.scopes]
        keys = [key for scope, end in zip(demand.scopes, ends, strict=True) for key in _keys(scope, end)]
        arguments: list[str | int | float] = [self._sent_time(), name, self._lease_s]
        for scope, end in zip(demand.scopes, ends, strict=True):
            arguments += [
                -1 if scope.rpm is None else scope.rpm,
                -1 if scope.tpm is None else scope.tpm,
                tokens_needed(scope, demand),
                demand.prompt_tokens,
                -1 if scope.parallel is None else scope.parallel,
                -1 if scope.budget is None else scope.budget.nano_usd,
                demand.nano_usd,
                end,
            ]
        asked = asyncio.ensure_future(self._reserve(keys, arguments))
        try:
            answer = await asyncio.shield(asked)
        except RedisAway as error:
            self._fell_silent(str(error))
            self._correct_later(keys, _freed([*arguments[:2], 0], keys))  # it may have heard, and answer too late
            return await self._alone.reserve(demand)
        except asyncio.CancelledError:
            asked.add_done_callback(partial(self._give_back, demand, ends, keys, name))
            raise
        self._answered()
        is_taken, second, place, obstacle, wait_ms, *counts = answer
        if obstacle == _UNKNOWN:
            is_told = await self._tell_spent(demand.scopes[int(place) - 1], now)
            return await (self if is_told else self._alone).reserve(demand)
        standing = _standing(demand.scopes, counts)
        if is_taken:
            return _Grant(self, demand, (name, int(second)), ends, standing)
        scope = demand.scopes[int(place) - 1]
        kind = Obstacle(obstacle.decode())
        wait_s = BUSY_S if kind is Obstacle.PARALLEL else int(wait_ms) / 1000
        return Refusal(kind, scope, None if kind is Obstacle.PROMPT else wait_s, standing)

    def _give_back(
        self, demand: Demand, ends: Sequence[int], keys: list[str], name: str, asked: "asyncio.Future[Any]"
    ) -> None:
        """What was asked for by a request that has gone since."""
        if asked.exception() is not None:
            self._correct_later(keys, _freed([self._sent_time(), name, 0], keys))
        elif asked.result()[0]:
            self.settle(_Grant(self, demand, (name, int(asked.result()[1])), ends, Standing()), 0, 0)

    def settle(self, grant: "_Grant", tokens: int, nano_usd: int) -> None:
        """Sends the correction soon, together with others."""
        name, second = grant.place
        keys: list[str] = []
        arguments: list[str | int | float] = [self._sent_time(), name, second]
        now = self._now()
        for scope, end in zip(grant.demand.scopes, grant.ends, strict=True):
            change = 0
            if scope.budget is not None:
                change = nano_usd - grant.demand.nano_usd
                if now >= end:  # a new period has begun: it takes what was more, and gets nothing back
                    end, change = period_at(scope.budget.per, now)[1], max(0, change)
            keys += _keys(scope, end)
            arguments += [0 if scope.tpm is None else tokens - tokens_needed(scope, grant.demand), change]
        self._correct_later(keys, arguments)

    async def settled(self) -> None:
        """Waits until every correction was sent."""
        while self._correcting is not None and not self._correcting.done():
            await asyncio.wait([self._correcting])

    async def aclose(self) -> None:
        self._closing = True
        await self._pipe.aclose()
        await self.settled()
        await self._corrections.aclose()

    def _sent_time(self) -> float:
        return 0 if self._server_clock else self._now()

    async def _tell_spent(self, scope: Scope, now: float) -> bool:
        """Lets Redis know what the scope has spent in this period. False: that can't be told now."""
        assert scope.budget is not None
        start, end = period_at(scope.budget.per, now)
        try:
            spent = 0 if self._spending is None else await self._spending(scope, start)
            key = _keys(scope, end)[-1]
            await self._pipe.send("SET", key, spent, "NX", "EX", int(end - now) + _KEPT_S)
        except NotReady:
            return False
        except RedisAway as error:
            self._fell_silent(str(error))
            return False
        return True

    def _correct_later(self, keys: list[str], arguments: list[str | int | float]) -> None:
        if len(self._pending) < MAX_PENDING:
            self._pending.append((keys, arguments))
        if self._correcting is None or self._correcting.done():
            self._correcting = asyncio.get_running_loop().create_task(self._correct())

    async def _correct(self) -> None:
        while self._pending:
            await asyncio.sleep(_CORRECT_EVERY_S)
            group, self._pending = self._pending[:_GROUP], self._pending[_GROUP:]
            told = await asyncio.gather(*[self._settle(*each) for each in group], return_exceptions=True)
            lost = [(each, answer) for each, answer in zip(group, told, strict=True) if isinstance(answer, RedisAway)]
            if lost:
                # Money and tokens that were reserved stay taken, which is the safe side.
                self._fell_silent(str(lost[0][1]))
                if self._closing:
                    return
                self._pending += [(keys, _freed(arguments, keys)) for (keys, arguments), _ in lost]
                await asyncio.sleep(AGAIN_S)

    def _fell_silent(self, why: str) -> None:
        if self._failed_at is None:
            self._log("shared_limits_lost", {"error": why})
        self._failed_at = self._clock()

    def _answered(self) -> None:
        if self._failed_at is not None:
            self._failed_at = None
            self._log("shared_limits_back", {})


class _Grant:
    __slots__ = ("_limiter", "_settled", "demand", "ends", "place", "standing")

    def __init__(
        self, limiter: RedisLimiter, demand: Demand, place: tuple[str, int], ends: Sequence[int], standing: Standing
    ) -> None:
        self._limiter = limiter
        self._settled = False
        self.demand = demand
        self.place = place  # its name, and the second in which it was taken
        self.ends = ends
        self.standing = standing

    def settle(self, tokens: int, nano_usd: int) -> None:
        if not self._settled:
            self._settled = True
            self._limiter.settle(self, tokens, nano_usd)


def _keys(scope: Scope, period_end: int) -> list[str]:
    start = f"{_TAG}:limits:{scope.name}"
    per = None if scope.budget is None else scope.budget.per  # a month ends with its last day
    return [f"{start}:requests", f"{start}:tokens", f"{start}:running", f"{start}:spent:{per}:{period_end}"]


def _freed(arguments: Sequence[str | int | float], keys: Sequence[str]) -> list[str | int | float]:
    """A correction that only gives up the places among those that run: that may be done twice."""
    return [*arguments[:3], *[0] * (len(keys) // 2)]


def _standing(scopes: Sequence[Scope], counts: Sequence[int]) -> Standing:
    """`counts` are requests and tokens of the minute, for each scope."""
    requests = [(max(0, s.rpm - int(counts[2 * i])), s.rpm) for i, s in enumerate(scopes) if s.rpm is not None]
    tokens = [(max(0, s.tpm - int(counts[2 * i + 1])), s.tpm) for i, s in enumerate(scopes) if s.tpm is not None]
    left_requests, rpm = min(requests) if requests else (None, None)
    left_tokens, tpm = min(tokens) if tokens else (None, None)
    return Standing(rpm, left_requests, tpm, left_tokens)
