import asyncio
import itertools
import socket
import time as wall
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from urllib.parse import urlsplit

import pytest
from redis.asyncio import Redis

from adapters.canonical.errors import NotReady
from gateway.limits import redis_limiter as module
from gateway.limits.limiter import Limiter, Obstacle, Refusal
from gateway.limits.redis_limiter import AGAIN_S, TIMEOUT_S, RedisLimiter
from gateway.limits.scope import NANO, Budget, Demand, Scope, period_at
from gateway.limits.spending import SpentBefore
from tests.gateway.limits.contract import NOON, LimiterContract, Time, refused, taken
from tests.gateway.limits.redis_server import REDIS_URL, needs_redis

SCOPE = Scope(name="key:a", label="this key", rpm=50, tpm=500, parallel=20, budget=Budget(NANO, "day"))
_names = itertools.count()


def made(
    time: Callable[[], float],
    url: str = REDIS_URL,
    lines: list[str] | None = None,
    timeout_s: float = 10,
    spent_before: SpentBefore | None = None,
) -> RedisLimiter:
    def log(event: str, _: dict[str, object]) -> None:
        if lines is not None:
            lines.append(event)

    return RedisLimiter(
        url,
        clock=time,
        now=time,
        token=lambda: f"g{next(_names)}",
        lease_s=600,
        log=log,
        server_clock=False,
        timeout_s=timeout_s,
        spent_before=spent_before,
    )


class Relay:
    """Between a limiter and Redis; while it is `deaf` Redis hears everything, and nothing comes back."""

    def __init__(self) -> None:
        self.deaf = False
        self.connections = 0
        self._tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[str]:
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        yield f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}{urlsplit(REDIS_URL).path}"
        server.close()
        await asyncio.gather(*self._tasks)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        address = urlsplit(REDIS_URL)
        redis = await asyncio.open_connection(address.hostname, address.port)
        for task in (self._pass(reader, redis[1]), self._pass(redis[0], writer, answers=True)):
            self._tasks.add(asyncio.ensure_future(task))

    async def _pass(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, answers: bool = False) -> None:
        with suppress(ConnectionResetError):
            while piece := await source.read(65536):
                if not (answers and self.deaf):
                    sink.write(piece)
        sink.close()


@asynccontextmanager
async def emptied() -> AsyncIterator[None]:
    redis = Redis.from_url(REDIS_URL)
    await redis.flushdb()
    await redis.script_flush()
    await redis.aclose()
    yield


@needs_redis
class TestRedis(LimiterContract):
    def limiter(self, time: Time) -> AbstractAsyncContextManager[Limiter]:
        @asynccontextmanager
        async def opened() -> AsyncIterator[Limiter]:
            async with emptied():
                limiter = made(time)
                yield limiter
                await limiter.aclose()

        return opened()

    async def settled(self, limiter: Limiter) -> None:
        assert isinstance(limiter, RedisLimiter)
        await limiter.settled()


@needs_redis
async def test_replicas_together_let_in_no_more_than_the_limit() -> None:
    async with emptied():
        replicas = [made(Time()) for _ in range(4)]
        for limit, scope in (
            (50, Scope(name="r", label="", rpm=50)),
            (20, Scope(name="p", label="", parallel=20)),
            (25, Scope(name="t", label="", tpm=250)),
            (10, Scope(name="b", label="", budget=Budget(100, "day"))),
        ):
            asked = [replica.reserve(Demand([scope], 10, 0, 10)) for replica in replicas for _ in range(20)]
            found = await asyncio.gather(*asked)
            assert sum(not isinstance(each, Refusal) for each in found) == limit
        for replica in replicas:
            await replica.aclose()


@needs_redis
async def test_a_replica_that_died_gives_its_places_back_after_its_lease() -> None:
    time = Time()
    async with emptied():
        dead, alive = made(time), made(time)
        scope = Scope(name="key:a", label="", parallel=1)
        taken(await dead.reserve(Demand([scope])))
        assert refused(await alive.reserve(Demand([scope]))).obstacle is Obstacle.PARALLEL
        time.unix += 602
        taken(await alive.reserve(Demand([scope])))
        await dead.aclose()
        await alive.aclose()


@needs_redis
async def test_the_minutes_are_those_of_the_servers_clock() -> None:
    async with emptied():
        limiter = RedisLimiter(
            REDIS_URL, clock=lambda: 0.0, now=lambda: 0.0, token=lambda: "a", lease_s=9, log=lambda *_: None
        )
        scope = Scope(name="key:a", label="", rpm=1)
        taken(await limiter.reserve(Demand([scope])))
        refusal = refused(await limiter.reserve(Demand([scope])))
        assert refusal.retry_after_s is not None
        assert 59 <= refusal.retry_after_s <= 61
        await limiter.aclose()


async def test_without_redis_each_replica_limits_by_itself_and_says_so_once() -> None:
    with socket.socket() as closed:  # bound, but nobody listens
        closed.bind(("127.0.0.1", 0))
        url = f"redis://127.0.0.1:{closed.getsockname()[1]}/0"
        lines: list[str] = []
        time = Time()
        limiter = made(time, url, lines)
        scope = Scope(name="key:a", label="", rpm=2)
        first = taken(await limiter.reserve(Demand([scope])))
        time.unix += AGAIN_S
        taken(await limiter.reserve(Demand([scope])))
        refused(await limiter.reserve(Demand([scope])))
        first.settle(0, 0)
        await limiter.aclose()
    assert lines == ["shared_limits_lost"]


async def test_a_redis_that_hangs_holds_no_request_for_long() -> None:
    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(hang, "127.0.0.1", 0)
    limiter = made(Time(), f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}/0", timeout_s=TIMEOUT_S)
    began = wall.monotonic()
    taken(await limiter.reserve(Demand([Scope(name="key:a", label="", rpm=2)])))
    assert wall.monotonic() - began < TIMEOUT_S * 10
    await limiter.aclose()
    server.close()
    await server.wait_closed()


@needs_redis
async def test_a_thousand_requests_at_once_need_one_connection_and_all_count() -> None:
    lines: list[str] = []
    relay = Relay()
    async with emptied(), relay.opened() as url:
        limiter = made(Time(), url, lines)
        scope = Scope(name="key:a", label="", rpm=600)
        found = await asyncio.gather(*[limiter.reserve(Demand([scope])) for _ in range(1000)])
        await limiter.aclose()
    assert sum(not isinstance(each, Refusal) for each in found) == 600
    assert relay.connections == 1
    assert lines == []


@needs_redis
async def test_what_a_client_that_left_had_asked_for_is_given_back() -> None:
    scope = Scope(name="key:a", label="", parallel=1, tpm=10, budget=Budget(10, "day"))
    demand = Demand([scope], 10, nano_usd=10)
    async with emptied():
        limiter = made(Time())
        taken(await limiter.reserve(demand)).settle(0, 0)
        await limiter.settled()
        left = asyncio.ensure_future(limiter.reserve(demand))
        await asyncio.sleep(0)
        left.cancel()
        refused(await limiter.reserve(demand))
        await limiter.settled()
        taken(await limiter.reserve(demand))
        await limiter.aclose()


@needs_redis
async def test_a_redis_that_comes_back_is_used_again_and_said_once() -> None:
    lines: list[str] = []
    time = Time()
    async with emptied():
        limiter = made(time, lines=lines)
        limiter._fell_silent("gone")
        scope = Scope(name="key:a", label="", rpm=1)
        taken(await limiter.reserve(Demand([scope])))
        time.unix += AGAIN_S
        taken(await limiter.reserve(Demand([scope])))
        refused(await limiter.reserve(Demand([scope])))
        await limiter.aclose()
    assert lines == ["shared_limits_lost", "shared_limits_back"]


@needs_redis
async def test_places_are_given_back_though_redis_was_silent_when_they_were_taken_or_freed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "AGAIN_S", 0.02)
    scope = Scope(name="key:a", label="", parallel=3, tpm=100)
    time, relay = Time(), Relay()
    async with emptied(), relay.opened() as url:
        limiter, other = made(time, url, timeout_s=0.2), made(time)
        grants = [taken(await limiter.reserve(Demand([scope], 10))) for _ in range(2)]
        relay.deaf = True
        for grant in grants:
            grant.settle(5, 0)
        taken(await limiter.reserve(Demand([scope], 10)))  # by itself; Redis has taken a place as well
        relay.deaf = False
        await limiter.settled()
        found = [await other.reserve(Demand([scope], 10)) for _ in range(4)]
        assert [isinstance(each, Refusal) for each in found] == [False, False, False, True]
        left = taken(found[0]).standing.remaining_tokens
        assert left is not None
        assert left <= 70  # nothing is given back twice
        await limiter.aclose()
        await other.aclose()


@needs_redis
async def test_a_budget_goes_on_from_what_the_database_knows_where_redis_does_not() -> None:
    scope = Scope(name="key:a", label="", budget=Budget(100, "month"))
    asked: list[tuple[str, int]] = []
    lines: list[str] = []

    async def spent_before(scope: Scope, since: int) -> int:
        asked.append((scope.name, since))
        return 70

    limiter = made(Time(), lines=lines, spent_before=spent_before)
    for _ in range(2):  # at the first request, and after Redis has lost everything
        async with emptied():
            grant = taken(await limiter.reserve(Demand([scope], nano_usd=20)))
            assert refused(await limiter.reserve(Demand([scope], nano_usd=20))).obstacle is Obstacle.BUDGET
    grant.settle(0, 10)
    await limiter.settled()
    taken(await limiter.reserve(Demand([scope], nano_usd=20)))
    assert asked == [("key:a", period_at("month", NOON)[0])] * 2
    await limiter.aclose()
    assert lines == []


@needs_redis
@pytest.mark.parametrize("limit", ["budget", "tpm"])
async def test_what_was_reserved_before_redis_lost_everything_is_not_given_back(limit: str) -> None:
    budget = Budget(100, "month") if limit == "budget" else None
    scope = Scope(name="key:a", label="", budget=budget, tpm=100 if limit == "tpm" else None)

    def wanted(amount: int) -> Demand:
        return Demand([scope], output_tokens=amount, nano_usd=amount)

    limiter = made(Time())
    async with emptied():
        lost = taken(await limiter.reserve(wanted(80)))
    async with emptied():
        taken(await limiter.reserve(wanted(10)))
        lost.settle(0, 0)
        await limiter.settled()
        taken(await limiter.reserve(wanted(100)))
        refused(await limiter.reserve(wanted(1)))
        await limiter.aclose()


@needs_redis
async def test_a_budget_of_another_period_that_ends_at_the_same_time_is_asked_for() -> None:
    async def spent_before(scope: Scope, since: int) -> int:
        return 0 if since == period_at("day", time.unix)[0] else 70

    time = Time()
    time.unix = period_at("month", NOON)[1] - 60.0
    async with emptied():
        limiter = made(time, spent_before=spent_before)
        taken(await limiter.reserve(Demand([Scope(name="k", label="", budget=Budget(100, "day"))], nano_usd=60)))
        month = Demand([Scope(name="k", label="", budget=Budget(100, "month"))], nano_usd=40)
        assert refused(await limiter.reserve(month)).obstacle is Obstacle.BUDGET
        taken(await limiter.reserve(Demand([Scope(name="k", label="", budget=Budget(100, "month"))], nano_usd=30)))
        await limiter.aclose()


@needs_redis
async def test_where_the_database_cannot_tell_a_budget_each_replica_counts_by_itself() -> None:
    async def spent_before(scope: Scope, since: int) -> int:
        raise NotReady("away")

    scope = Scope(name="key:a", label="", budget=Budget(100, "month"))
    async with emptied():
        limiter = made(Time(), spent_before=spent_before)
        taken(await limiter.reserve(Demand([scope], nano_usd=60)))
        refused(await limiter.reserve(Demand([scope], nano_usd=60)))
        await limiter.aclose()


def test_an_address_that_is_none_is_a_fault_at_once() -> None:
    with pytest.raises(ValueError):
        made(Time(), "http://127.0.0.1")
