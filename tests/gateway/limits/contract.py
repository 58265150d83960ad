"""What every limiter has to do. A subclass gives one, whose time is in `self.time`."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace

import pytest

from gateway.limits.limiter import Grant, Limiter, Obstacle, Refusal, Standing
from gateway.limits.scope import NANO, Budget, Demand, Scope

__all__ = ["NOON", "LimiterContract", "Time", "refused", "taken"]

NOON = 1_800_014_400.0
"""A Friday, twelve o'clock UTC."""
KEY = Scope(name="key:a", label="this key")


class Time:
    """A clock that stands until it is told to go on."""

    def __init__(self) -> None:
        self.unix = NOON

    def __call__(self) -> float:
        return self.unix


def taken(found: Grant | Refusal) -> Grant:
    assert not isinstance(found, Refusal), found
    return found


def refused(found: Grant | Refusal) -> Refusal:
    assert isinstance(found, Refusal)
    return found


def demand(*scopes: Scope, prompt: int = 0, output: int = 0, usd: float = 0) -> Demand:
    return Demand(scopes, prompt, output, int(usd * NANO))


class LimiterContract(ABC):
    @abstractmethod
    def limiter(self, time: Time) -> AbstractAsyncContextManager[Limiter]:
        """One that knows nothing yet."""

    @abstractmethod
    async def settled(self, limiter: Limiter) -> None:
        """Waits until what was settled counts."""

    @asynccontextmanager
    async def begun(self) -> AsyncIterator[tuple[Limiter, Time]]:
        time = Time()
        async with self.limiter(time) as limiter:
            yield limiter, time

    async def test_so_many_requests_a_minute_are_let_in_and_no_more(self) -> None:
        scope = replace(KEY, rpm=3)
        async with self.begun() as (limiter, time):
            for left in (2, 1, 0):
                grant = taken(await limiter.reserve(demand(scope)))
                assert (grant.standing.limit_requests, grant.standing.remaining_requests) == (3, left)
            refusal = refused(await limiter.reserve(demand(scope)))
            assert refusal.obstacle is Obstacle.REQUESTS
            assert refusal.retry_after_s is not None
            assert 60 <= refusal.retry_after_s <= 61
            time.unix += refusal.retry_after_s
            taken(await limiter.reserve(demand(scope)))

    async def test_requests_become_free_one_after_another(self) -> None:
        scope = replace(KEY, rpm=2)
        async with self.begun() as (limiter, time):
            taken(await limiter.reserve(demand(scope)))
            time.unix += 30
            taken(await limiter.reserve(demand(scope)))
            refusal = refused(await limiter.reserve(demand(scope)))
            assert refusal.retry_after_s is not None
            assert 30 <= refusal.retry_after_s <= 31
            time.unix += 31
            taken(await limiter.reserve(demand(scope)))
            refused(await limiter.reserve(demand(scope)))

    async def test_tokens_are_taken_before_and_corrected_after(self) -> None:
        scope = replace(KEY, tpm=100)
        async with self.begun() as (limiter, _):
            grant = taken(await limiter.reserve(demand(scope, prompt=20, output=60)))
            assert (grant.standing.limit_tokens, grant.standing.remaining_tokens) == (100, 20)
            assert refused(await limiter.reserve(demand(scope, prompt=30))).obstacle is Obstacle.TOKENS
            grant.settle(25, 0)
            await self.settled(limiter)
            assert taken(await limiter.reserve(demand(scope, prompt=30))).standing.remaining_tokens == 45

    async def test_tokens_beyond_the_limit_are_owed(self) -> None:
        scope = replace(KEY, tpm=100)
        async with self.begun() as (limiter, time):
            grant = taken(await limiter.reserve(demand(scope, prompt=10, output=5000)))
            assert grant.standing.remaining_tokens == 0
            time.unix += 90
            grant.settle(300, 0)
            await self.settled(limiter)
            refusal = refused(await limiter.reserve(demand(scope, prompt=1)))
            assert refusal.standing.remaining_tokens == 0
            time.unix += refusal.retry_after_s or 0
            taken(await limiter.reserve(demand(scope, prompt=1)))

    async def test_a_prompt_that_never_fits_is_refused_for_good(self) -> None:
        async with self.begun() as (limiter, _):
            refusal = refused(await limiter.reserve(demand(replace(KEY, tpm=100), prompt=101)))
            assert (refusal.obstacle, refusal.retry_after_s) == (Obstacle.PROMPT, None)

    async def test_so_many_requests_run_beside_each_other(self) -> None:
        scope = replace(KEY, parallel=2)
        async with self.begun() as (limiter, _):
            first = taken(await limiter.reserve(demand(scope)))
            taken(await limiter.reserve(demand(scope)))
            assert refused(await limiter.reserve(demand(scope))).obstacle is Obstacle.PARALLEL
            first.settle(0, 0)
            first.settle(0, 0)
            await self.settled(limiter)
            taken(await limiter.reserve(demand(scope)))
            refused(await limiter.reserve(demand(scope)))

    async def test_two_budgets_both_allow_or_nothing_is_taken_of_either(self) -> None:
        key = replace(KEY, budget=Budget(NANO, "day"))
        team = Scope(name="team:a", label="this key's team", team="a", budget=Budget(2 * NANO, "month"))
        async with self.begun() as (limiter, _):
            first = taken(await limiter.reserve(demand(key, team, usd=1)))
            assert refused(await limiter.reserve(demand(key, team, usd=0.25))).scope == key
            taken(await limiter.reserve(demand(team, usd=0.5)))
            assert refused(await limiter.reserve(demand(replace(key, name="key:b"), team, usd=0.75))).scope == team
            taken(await limiter.reserve(demand(replace(key, name="key:b"), usd=1)))
            first.settle(0, NANO // 2)
            await self.settled(limiter)
            taken(await limiter.reserve(demand(key, team, usd=0.5)))

    async def test_money_is_taken_before_and_corrected_after(self) -> None:
        scope = replace(KEY, budget=Budget(NANO, "day"))
        async with self.begun() as (limiter, _):
            grant = taken(await limiter.reserve(demand(scope, usd=0.75)))
            refusal = refused(await limiter.reserve(demand(scope, usd=0.5)))
            assert refusal.obstacle is Obstacle.BUDGET
            assert refusal.retry_after_s == 12 * 3600
            grant.settle(0, int(0.25 * NANO))
            await self.settled(limiter)
            taken(await limiter.reserve(demand(scope, usd=0.75)))
            refused(await limiter.reserve(demand(scope, usd=0.000000001)))

    async def test_a_budget_is_whole_again_in_the_next_period(self) -> None:
        scope = replace(KEY, budget=Budget(NANO, "day"))
        async with self.begun() as (limiter, time):
            late = taken(await limiter.reserve(demand(scope, usd=1)))
            refused(await limiter.reserve(demand(scope, usd=1)))
            time.unix += 12 * 3600
            late.settle(0, int(0.5 * NANO))  # what was not needed of yesterday is not today's
            await self.settled(limiter)
            taken(await limiter.reserve(demand(scope, usd=1)))
            refused(await limiter.reserve(demand(scope, usd=0.1)))

    async def test_a_budget_for_ever_is_never_whole_again(self) -> None:
        scope = replace(KEY, budget=Budget(NANO, "ever"))
        async with self.begun() as (limiter, time):
            taken(await limiter.reserve(demand(scope, usd=0.6)))
            time.unix += 1e9
            refused(await limiter.reserve(demand(scope, usd=0.6)))
            taken(await limiter.reserve(demand(scope, usd=0.4)))

    async def test_a_refused_request_takes_nothing_anywhere(self) -> None:
        wide, narrow = replace(KEY, rpm=2, tpm=100), Scope(name="model:m", label="m", rpm=1)
        async with self.begun() as (limiter, _):
            taken(await limiter.reserve(demand(wide, narrow, prompt=10)))
            for _ in range(5):
                refusal = refused(await limiter.reserve(demand(wide, narrow, prompt=10)))
                assert refusal.scope is narrow
            grant = taken(await limiter.reserve(demand(wide, prompt=10)))
            assert (grant.standing.remaining_requests, grant.standing.remaining_tokens) == (0, 80)

    async def test_the_scope_with_the_least_left_is_told(self) -> None:
        scopes = (replace(KEY, rpm=10, tpm=50), Scope(name="model:m", label="m", rpm=5, tpm=1000))
        async with self.begun() as (limiter, _):
            standing = taken(await limiter.reserve(demand(*scopes, prompt=10))).standing
            assert standing == Standing(5, 4, 50, 40)

    async def test_requests_that_come_together_get_no_more_than_the_limit(self) -> None:
        scope = replace(KEY, rpm=40, tpm=1000, parallel=7)
        async with self.begun() as (limiter, _):
            found = await asyncio.gather(*[limiter.reserve(demand(scope, prompt=10)) for _ in range(60)])
            assert sum(not isinstance(each, Refusal) for each in found) == 7

    @pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
    async def test_the_order_of_ends_does_not_matter(self, order: Sequence[int]) -> None:
        scope = replace(KEY, tpm=100, parallel=3, budget=Budget(NANO, "month"))
        async with self.begun() as (limiter, _):
            grants = [taken(await limiter.reserve(demand(scope, prompt=20, usd=0.1))) for _ in range(3)]
            for place in order:
                grants[place].settle(10 * place, 0)
            await self.settled(limiter)
            grant = taken(await limiter.reserve(demand(scope, usd=1)))
            assert grant.standing.remaining_tokens == 70
