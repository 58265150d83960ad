"""Answers in Redis: found by another process, and a Redis that is away is an empty cache."""

import asyncio
from collections.abc import Mapping

from gateway.cache.redis_store import RedisStore
from tests.gateway.limits.redis_server import REDIS_URL, needs_redis


@needs_redis
async def test_what_one_process_puts_in_another_finds() -> None:
    logged: list[str] = []
    stores = [RedisStore(REDIS_URL, 60, clock=lambda: 0.0, log=lambda event, _: logged.append(event)) for _ in range(2)]
    await stores[0].put(b"key", b"data\x00\xff")
    assert await stores[1].get(b"key") == b"data\x00\xff"
    assert await stores[1].get(b"other") is None
    assert logged == []
    for store in stores:
        await store.aclose()


@needs_redis
async def test_a_burst_of_requests_finds_its_answers_over_one_connection() -> None:
    logged: list[str] = []
    store = RedisStore(REDIS_URL, 60, clock=lambda: 0.0, log=lambda event, _: logged.append(event))
    await store.put(b"key", b"data")
    left = asyncio.ensure_future(store.get(b"key"))
    await asyncio.sleep(0)
    left.cancel()
    assert await asyncio.gather(*[store.get(b"key") for _ in range(100)]) == [b"data"] * 100
    assert len(store._pipe._redis.connection_pool._available_connections) == 1
    assert logged == []
    await store.aclose()


async def test_a_redis_that_is_away_is_an_empty_cache_and_one_line() -> None:
    logged: list[str] = []

    def log(event: str, fields: Mapping[str, object]) -> None:
        logged.append(event)

    store = RedisStore("redis://127.0.0.1:9", 60, clock=lambda: 1.0, log=log)
    await store.put(b"key", b"data")
    assert await store.get(b"key") is None
    assert logged == ["cache_unreachable"]
    await store.aclose()


async def test_a_redis_that_is_silent_is_waited_for_once_and_left_alone_for_a_while() -> None:
    asked = 0
    now = 1.0

    async def be_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        asked += 1
        await reader.read(-1)
        writer.close()

    server = await asyncio.start_server(be_silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    store = RedisStore(f"redis://127.0.0.1:{port}", 60, clock=lambda: now, log=lambda event, _: None)
    for _ in range(3):
        assert await store.get(b"key") is None
        await store.put(b"key", b"data")
    assert asked == 1
    now += 1.0
    assert await store.get(b"key") is None
    assert asked == 2
    await store.aclose()
    server.close()
    await server.wait_closed()
