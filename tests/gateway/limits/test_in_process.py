import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.canonical.errors import NotReady
from gateway.limits import in_process
from gateway.limits.in_process import InProcessLimiter
from gateway.limits.limiter import Grant, Limiter, Refusal
from gateway.limits.scope import NANO, Budget, Demand, Scope
from tests.gateway.limits.contract import NOON, LimiterContract, Time, taken

SCOPE = Scope(name="key:a", label="this key", rpm=5, tpm=50, parallel=3, budget=Budget(NANO, "hour"))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("reserve"), st.integers(0, 60), st.integers(0, 40)),
        st.tuples(st.just("settle"), st.integers(0, 5), st.integers(0, 100)),
        st.tuples(st.just("wait"), st.integers(0, 90), st.integers(0, 9)),
    ),
    max_size=60,
)


class TestInProcess(LimiterContract):
    def limiter(self, time: Time) -> AbstractAsyncContextManager[Limiter]:
        @asynccontextmanager
        async def made() -> AsyncIterator[Limiter]:
            yield InProcessLimiter(time, time)

        return made()

    async def settled(self, limiter: Limiter) -> None:
        """It counts at once."""


@settings(max_examples=200)
@given(STEPS)
def test_no_minute_ever_lets_in_more_than_the_limits_and_the_books_balance(steps: list[tuple[str, int, int]]) -> None:
    async def run() -> None:
        time = Time()
        limiter = InProcessLimiter(time, time)
        running: list[tuple[Grant, list[float]]] = []
        let_in: list[list[float]] = []  # when, and what counts of its reservation
        for kind, first, second in steps:
            if kind == "wait":
                time.unix += first + second / 10
            elif kind == "settle" and running:
                grant, counted = running.pop(first % len(running))
                counted[1] = min(counted[1], second)
                grant.settle(second, second)
                grant.settle(second, second)
            elif kind == "reserve":
                found = await limiter.reserve(Demand([SCOPE], first, second, second))
                if not isinstance(found, Refusal):
                    let_in.append([time.unix, min(first + second, 50)])
                    running.append((found, let_in[-1]))
            minute = [tokens for at, tokens in let_in if time.unix - at < 60]
            assert len(minute) <= 5
            assert sum(minute) <= 50
            assert limiter.running("key:a") == len(running) <= 3
        for grant, _ in running:
            grant.settle(0, 0)
        time.unix += 2 * 3600
        fresh = taken(await limiter.reserve(Demand([SCOPE], 0, 0, NANO))).standing
        assert (fresh.remaining_requests, fresh.remaining_tokens) == (4, 50)

    asyncio.run(run())


async def test_what_was_spent_before_the_start_counts() -> None:
    time = Time()
    asked: list[tuple[str, int]] = []

    async def spent_before(scope: Scope, since: int) -> int:
        asked.append((scope.name, since))
        await asyncio.sleep(0)
        return NANO - 5

    limiter = InProcessLimiter(time, time, spent_before)
    found = await asyncio.gather(*[limiter.reserve(Demand([SCOPE], nano_usd=5)) for _ in range(2)])
    assert [isinstance(each, Refusal) for each in found] == [False, True]
    assert asked == [("key:a", int(NOON))]


async def test_one_key_does_not_wait_for_what_another_has_spent() -> None:
    time, never = Time(), asyncio.Event()

    async def spent_before(scope: Scope, since: int) -> int:
        if scope is SCOPE:
            await never.wait()
        return 0

    limiter = InProcessLimiter(time, time, spent_before)
    waiting = asyncio.ensure_future(limiter.reserve(Demand([SCOPE])))
    await asyncio.sleep(0)
    async with asyncio.timeout(5):
        taken(await limiter.reserve(Demand([Scope(name="key:b", label="", budget=Budget(9, "day"))])))
    assert not waiting.done()
    never.set()
    taken(await waiting)


async def test_what_was_spent_in_a_period_that_ended_meanwhile_is_no_part_of_the_next() -> None:
    time = Time()

    async def spent_before(scope: Scope, since: int) -> int:
        time.unix += 3600
        return NANO

    limiter = InProcessLimiter(time, time, spent_before)
    taken(await limiter.reserve(Demand([SCOPE], nano_usd=NANO)))


async def test_a_budget_of_another_period_or_one_that_comes_back_knows_what_was_spent_meanwhile() -> None:
    time = Time()
    asked: list[int] = []

    async def spent_before(scope: Scope, since: int) -> int:
        asked.append(since)
        return 7

    limiter = InProcessLimiter(time, time, spent_before)

    async def is_let_in(budget: Budget | None) -> bool:
        found = await limiter.reserve(Demand((Scope(name="k", label="k", budget=budget, rpm=99),), nano_usd=1))
        return not isinstance(found, Refusal)

    assert await is_let_in(Budget(8, "day"))
    assert not await is_let_in(Budget(8, "day"))
    assert await is_let_in(Budget(8, "month"))  # of which others know 7
    assert await is_let_in(Budget(20, "month"))
    assert len(asked) == 2
    assert await is_let_in(None)
    assert await is_let_in(Budget(8, "month"))
    assert not await is_let_in(Budget(8, "month"))
    assert len(asked) == 3


async def test_without_the_database_nothing_is_let_in_on_a_budget_that_nobody_knows() -> None:
    time = Time()
    is_down = True

    async def spent_before(scope: Scope, since: int) -> int:
        if is_down:
            raise NotReady("the gateway's database can't be used now")
        return 0

    limiter = InProcessLimiter(time, time, spent_before)
    with pytest.raises(NotReady):
        await limiter.reserve(Demand([SCOPE]))
    is_down = False
    taken(await limiter.reserve(Demand([SCOPE])))


async def test_scopes_are_bounded_and_idle_ones_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_process, "MAX_SCOPES", 10)
    time = Time()
    limiter = InProcessLimiter(time, time)
    grants = [taken(await limiter.reserve(Demand([Scope(name=str(n), label="", rpm=1)]))) for n in range(10)]
    with pytest.raises(NotReady):
        await limiter.reserve(Demand([Scope(name="more", label="")]))
    for grant in grants[:5]:
        grant.settle(0, 0)
    time.unix += 61
    taken(await limiter.reserve(Demand([Scope(name="more", label="")])))
    assert limiter.num_scopes == 6
