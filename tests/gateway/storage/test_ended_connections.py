"""A PostgreSQL that ends the connections of the pool, as one does that is restarted."""

import asyncio

import pytest
from sqlalchemy import Connection, text

from adapters.canonical.errors import NotReady
from gateway.storage.database import Database
from tests.gateway.storage.postgresql import empty_postgresql

_OTHERS = "from pg_stat_activity where pid <> pg_backend_pid() and datname = current_database()"


def ask(connection: Connection) -> int:
    return int(connection.execute(text("select 1")).scalar_one())


def wait(connection: Connection) -> None:
    connection.execute(text("select pg_sleep(60)"))


def some_wait(connection: Connection) -> bool:
    waiting = text(f"select count(*) {_OTHERS} and wait_event = 'PgSleep'")
    return bool(connection.execute(waiting).scalar_one())


def end_others(connection: Connection) -> None:
    connection.execute(text(f"select pg_terminate_backend(pid) {_OTHERS}"))


async def test_idle_connections_are_replaced_and_what_was_under_way_fails_once() -> None:
    place = await empty_postgresql()
    database, other = await Database.open(place), await Database.open(place)
    assert await asyncio.gather(*[database.read(ask) for _ in range(20)]) == [1] * 20
    await other.write(end_others)
    assert await asyncio.gather(*[database.write(ask) for _ in range(20)]) == [1] * 20
    async with asyncio.timeout(20):
        waiting = asyncio.ensure_future(database.write(wait))
        while not await other.read(some_wait):
            pass
        await other.write(end_others)
        with pytest.raises(NotReady):
            await waiting
    assert await database.write(ask) == 1
    await asyncio.gather(database.aclose(), other.aclose())
