"""A PostgreSQL that hears everything and answers nothing, as one whose machine or disk has stopped."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import pytest
from sqlalchemy import Connection, text

from adapters.canonical.errors import NotReady
from gateway.storage import database as module
from gateway.storage.database import Database
from gateway.storage.place import ServerPlace
from tests.gateway.storage.postgresql import empty_postgresql


class Relay:
    """Before a PostgreSQL; its answers wait while `goes_on` is not set."""

    def __init__(self) -> None:
        self.goes_on = asyncio.Event()
        self.goes_on.set()
        self._tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def before(self, place: ServerPlace) -> AsyncIterator[ServerPlace]:
        self._to = urlsplit(place.url)
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        here = f"{self._to.username}@127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield ServerPlace(self._to._replace(netloc=here).geturl())
        server.close()
        await asyncio.gather(*self._tasks)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = await asyncio.open_connection(self._to.hostname, self._to.port)
        for task in (self._pass(reader, asked[1], always=True), self._pass(asked[0], writer, always=False)):
            self._tasks.add(asyncio.ensure_future(task))

    async def _pass(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, always: bool) -> None:
        while piece := await source.read(65_536):
            if not always:
                await self.goes_on.wait()
            sink.write(piece)
        sink.close()


def ask(connection: Connection) -> int:
    return int(connection.execute(text("select 1")).scalar_one())


async def test_requests_fail_after_a_while_and_work_again_once_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    place = await empty_postgresql()
    assert isinstance(place, ServerPlace)
    relay, told = Relay(), list[str]()
    async with relay.before(place) as frozen:
        database = await Database.open(frozen, told.append)
        relay.goes_on.clear()
        async with asyncio.timeout(10):
            with monkeypatch.context() as patch:
                patch.setattr(module, "_ANSWER_S", 0.2)
                for way in (database.write, database.read):
                    answers = await asyncio.gather(*[way(ask) for _ in range(20)], return_exceptions=True)
                    assert [type(answer) for answer in answers] == [NotReady] * 20
        assert set(told) == {"TimeoutError"}
        waits = asyncio.ensure_future(database.write(ask, gives_up=False))
        relay.goes_on.set()
        assert await waits == 1
        assert await asyncio.gather(*[database.write(ask) for _ in range(20)]) == [1] * 20
        await database.aclose()


async def test_closing_does_not_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LAST_S", 0.2)
    place = await empty_postgresql()
    assert isinstance(place, ServerPlace)
    relay = Relay()
    async with relay.before(place) as frozen:
        database = await Database.open(frozen)
        relay.goes_on.clear()
        writing = asyncio.ensure_future(database.write(ask, gives_up=False))
        await asyncio.sleep(0)
        async with asyncio.timeout(10):
            await database.aclose()
        assert not writing.done()
        relay.goes_on.set()
        assert await writing == 1
