"""The connections to one provider: bounded, in turn, none lost by a cancelled wait, none used that has ended."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from providers.remote.connection import Connection
from providers.remote.origin import Origin
from providers.remote.pool import AllInUse, Pool
from tests.providers.remote.wire_server import answering, asked, serving

pytestmark = pytest.mark.timeout(20)
REQUEST = b"POST /a HTTP/1.1\r\ncontent-length: 2\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


class Counted:
    """A server that answers when it is let to. `open` are its connections now, `most` the most at once."""

    def __init__(self) -> None:
        self.open = self.most = self.made = 0
        self.hang_up = False
        self.changed = asyncio.Condition()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        self.made += 1
        self.most = max(self.most, self.open)
        try:
            while await asked(reader):
                writer.write(OK)
                if self.hang_up:
                    return await writer.drain()
        finally:
            self.open -= 1
            async with self.changed:
                self.changed.notify_all()


@asynccontextmanager
async def pooled(
    max_connections: int = 2, *, turn_s: float = 5, keep_alive_s: float = 30
) -> AsyncIterator[tuple[Pool, Counted]]:
    server = Counted()
    async with serving(server) as base_url:
        port = int(base_url.split(":")[2].removesuffix("/v1"))
        pool = Pool(
            Origin("127.0.0.1", port, None),
            max_connections=max_connections,
            connect_s=5,
            turn_s=turn_s,
            keep_alive_s=keep_alive_s,
        )
        try:
            yield pool, server
        finally:
            await pool.aclose()


async def use(connection: Connection) -> bytes:
    """Asks, and gives the connection back with the end of the answer."""
    answer = connection.send(REQUEST, b"{}")
    await answer.head
    while not answer.ended:
        await answer.arrive()
    return answer.take()


async def ended_of(connection: Connection) -> None:
    """Returns in the very turn of the loop after the one in which the connection was given back."""
    answer = connection.send(REQUEST, b"{}")
    for _ in range(10_000):
        await asyncio.sleep(0)
        if answer.ended:
            return
    raise AssertionError("no answer came")


async def left_by_all(server: "Counted") -> None:
    """Returns when no connection is open there."""
    async with server.changed, asyncio.timeout(5):
        await server.changed.wait_for(lambda: server.open == 0)


async def test_one_connection_serves_one_request_after_another_and_the_last_used_comes_first() -> None:
    async with pooled() as (pool, server):
        first, second = await pool.connect(), await pool.connect()
        assert await use(second) == await use(first) == b"ok"
        assert pool.idle() is first
        assert pool.idle() is second
        assert pool.idle() is None
        assert server.made == 2


async def test_no_more_than_the_bound_are_open_and_everyone_has_a_turn_in_order() -> None:
    served: list[int] = []
    async with pooled(3) as (pool, server):

        async def one(number: int) -> None:
            assert await use(await pool.connect()) == b"ok"
            served.append(number)

        await asyncio.gather(*[one(number) for number in range(50)])
        assert server.most == server.made == 3
    assert sorted(served) == list(range(50))
    assert all(abs(place - number) <= 3 for place, number in enumerate(served))


async def test_a_wait_for_a_turn_ends_at_its_limit_and_takes_nothing_with_it() -> None:
    async with pooled(1, turn_s=0.05) as (pool, server):
        only = await pool.connect()
        with pytest.raises(AllInUse):
            await pool.connect()
        await use(only)
        assert await use(await pool.connect()) == b"ok"
        assert server.made == 1


@pytest.mark.parametrize("ended", [True, False], ids=["room for a new one", "a connection"])
async def test_a_wait_that_is_cancelled_when_its_turn_came_passes_it_on(ended: bool) -> None:
    async with pooled(1) as (pool, _):
        only = await pool.connect()
        first = asyncio.ensure_future(pool.connect())
        second = asyncio.ensure_future(pool.connect())
        await asyncio.sleep(0)
        if ended:
            only.abort()
        else:
            await ended_of(only)
        first.cancel()  # its turn is there, and it has not run since
        assert await use(await second) == b"ok"
        with pytest.raises(asyncio.CancelledError):
            await first


async def test_a_wait_that_is_cancelled_before_its_turn_leaves_the_order_as_it_was() -> None:
    async with pooled(1) as (pool, _):
        only = await pool.connect()
        waits = [asyncio.ensure_future(pool.connect()) for _ in range(3)]
        await asyncio.sleep(0)
        waits[1].cancel()
        await use(only)
        assert await waits[0] is only
        await use(only)
        assert await waits[2] is only


async def test_a_connection_that_ends_on_its_way_to_the_next_one_is_replaced() -> None:
    async with pooled(1) as (pool, server):
        only = await pool.connect()
        next_one = asyncio.ensure_future(pool.connect())
        await asyncio.sleep(0)
        await ended_of(only)
        only.abort()
        assert await use(await next_one) == b"ok"
        assert server.made == 2


async def test_a_dial_that_is_cancelled_or_fails_makes_its_room_again() -> None:
    async with pooled(1) as (pool, _):
        dial = asyncio.ensure_future(pool.connect())
        await asyncio.sleep(0)
        dial.cancel()
        with pytest.raises(asyncio.CancelledError):
            await dial
        assert await use(await pool.connect()) == b"ok"
    refused = Pool(Origin("127.0.0.1", 9, None), max_connections=1, connect_s=5, turn_s=5)
    for _ in range(3):
        with pytest.raises(ConnectionRefusedError):
            await refused.connect()
    await refused.aclose()


class Way:
    """Opens connections over a transport that tells nothing of its end, as uvloop's does where a dial is cancelled."""

    is_secured = False

    def __init__(self, end: Callable[[Connection], None]) -> None:
        self._end = end

    async def open(self, make: Callable[[], Connection]) -> Connection:
        connection = make()
        connection.connection_made(Mute())
        self._end(connection)
        return connection

    def keep_session(self, transport: asyncio.BaseTransport | None) -> None: ...


class Mute(asyncio.Transport):
    def abort(self) -> None: ...


async def test_a_dial_that_is_cancelled_once_it_is_open_holds_up_no_closing() -> None:
    def cancel(connection: Connection) -> None:
        raise asyncio.CancelledError

    pool = Pool(Way(cancel), max_connections=1, connect_s=5, turn_s=5)
    for _ in range(2):
        with pytest.raises(asyncio.CancelledError):
            await pool.connect()
    async with asyncio.timeout(5):
        await pool.aclose()


async def test_a_connection_that_ends_as_it_opens_is_none() -> None:
    pool = Pool(Way(lambda connection: connection.connection_lost(None)), max_connections=1, connect_s=5, turn_s=5)
    for _ in range(2):
        with pytest.raises(ConnectionResetError):
            await pool.connect()
    async with asyncio.timeout(5):
        await pool.aclose()


async def test_a_connection_that_its_peer_closed_while_it_was_idle_is_never_used() -> None:
    async with pooled(1) as (pool, server):
        server.hang_up = True
        for _ in range(3):
            assert await use(await pool.connect()) == b"ok"
            await left_by_all(server)
            await asyncio.sleep(0)
            assert pool.idle() is None
        assert server.made == 3


async def test_an_idle_connection_is_closed_when_it_was_kept_long_enough() -> None:
    async with pooled(keep_alive_s=0.05) as (pool, server):
        await use(await pool.connect())
        assert server.open == 1
        await left_by_all(server)
        assert pool.idle() is None


async def test_an_idle_connection_that_is_too_old_is_not_used_before_it_is_closed() -> None:
    async with pooled(keep_alive_s=0) as (pool, server):
        await use(await pool.connect())
        assert pool.idle() is None
        await use(await pool.connect())
        assert server.made == 2


async def test_closing_ends_what_is_used_what_is_idle_and_who_waits_and_lets_nobody_in() -> None:
    async with pooled(2) as (pool, server):
        used, idle = await pool.connect(), await pool.connect()
        await use(idle)
        assert pool.idle() is idle
        waiting = asyncio.ensure_future(pool.connect())
        await asyncio.sleep(0)
        answer = used.send(REQUEST[:-2], b"")
        await pool.aclose()
        assert isinstance(answer.failure, ConnectionError)
        with pytest.raises(ConnectionError):
            await waiting
        with pytest.raises(ConnectionError):
            await pool.connect()
        await left_by_all(server)


async def test_a_dial_that_ends_after_the_pool_was_closed_leaves_no_socket() -> None:
    async with serving(answering(OK)) as base_url:
        port = int(base_url.split(":")[2].removesuffix("/v1"))
        pool = Pool(Origin("127.0.0.1", port, None), max_connections=1, connect_s=5, turn_s=5)
        dial = asyncio.ensure_future(pool.connect())
        await asyncio.sleep(0)
        await pool.aclose()
        with pytest.raises(ConnectionError):
            await dial
        await pool.aclose()


async def test_those_that_are_idle_can_be_dropped_which_makes_their_room_again() -> None:
    async with pooled(1) as (pool, server):
        old = await pool.connect()
        await use(old)
        pool.drop_idle()
        assert not old.usable
        new = await pool.connect()
        assert await use(new) == b"ok"
        assert pool.idle() is new
    assert server.made == 2
