"""Kept connections that end at the upstream at the very time when they are used again."""

import asyncio
import socket
import struct
from collections.abc import Callable

import pytest

from adapters.canonical.errors import StaleConnection, UpstreamUnreachable
from providers.remote.http import HttpClient
from tests.providers.remote.wire_server import Serve, asked, client_of, serving

pytestmark = pytest.mark.timeout(20)
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
End = Callable[[asyncio.StreamWriter], None]


def closed(writer: asyncio.StreamWriter) -> None:
    writer.close()


def reset(writer: asyncio.StreamWriter) -> None:
    linger = struct.pack("ii", 1, 0)
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    writer.transport.abort()


def begun(writer: asyncio.StreamWriter) -> None:
    writer.write(OK[:5])
    writer.close()


async def post(client: HttpClient, *, stream: bool = False) -> bytes:
    with await client.post("/a", b"{}", stream=stream) as answer:
        return await answer.body()


class Ending:
    """A server that answers the first requests of a connection, `good` of them, and ends it at the next one."""

    def __init__(self, end: End, *, good: int = 1, after_s: float = 0) -> None:
        self._end = end
        self._good = good
        self._after_s = after_s
        self.connections = self.requests = 0

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        number = 0
        while await asked(reader):
            number += 1
            self.requests += 1
            if number > self._good:
                if self._after_s:
                    await _elapsed(self._after_s)
                self._end(writer)
                return
            writer.write(OK)


async def _elapsed(seconds: float) -> None:
    loop = asyncio.get_running_loop()
    elapsed = loop.create_future()
    loop.call_later(seconds, elapsed.set_result, None)
    await elapsed


@pytest.mark.parametrize("end", [closed, reset])
@pytest.mark.parametrize("stream", [True, False])
async def test_a_kept_connection_that_ends_unanswered_is_told_apart_and_the_next_call_has_a_new_one(
    end: End, stream: bool
) -> None:
    server = Ending(end)
    async with serving(server) as base_url, client_of(base_url) as client:
        for _ in range(3):
            assert await post(client, stream=stream) == b"ok"
            with pytest.raises(StaleConnection):
                await post(client, stream=stream)
    assert (server.connections, server.requests) == (3, 6)


async def test_one_that_was_waited_for_may_have_been_kept_as_well() -> None:
    server = Ending(closed)
    async with serving(server) as base_url, client_of(base_url, max_connections=1) as client:
        first, second = await asyncio.gather(post(client), post(client), return_exceptions=True)
    assert (first, type(second)) == (b"ok", StaleConnection)


async def test_with_one_that_ended_those_that_were_kept_for_longer_go_as_well() -> None:
    server = Ending(closed)
    async with serving(server) as base_url, client_of(base_url, max_connections=8) as client:
        await asyncio.gather(*[post(client) for _ in range(8)])
        with pytest.raises(StaleConnection):
            await post(client)
        assert await asyncio.gather(*[post(client) for _ in range(8)]) == [b"ok"] * 8


async def test_a_get_is_sent_again_at_once() -> None:
    server = Ending(closed)
    async with serving(server) as base_url, client_of(base_url) as client:
        for _ in range(2):
            with await client.get("/models") as answer:
                assert await answer.body() == b"ok"
    assert (server.connections, server.requests) == (2, 3)


async def test_a_new_connection_that_ends_unanswered_is_the_failure_of_its_request() -> None:
    server = Ending(closed, good=0)
    async with serving(server) as base_url, client_of(base_url) as client:
        with pytest.raises(UpstreamUnreachable) as caught:
            await post(client)
    assert server.requests == 1
    assert type(caught.value) is UpstreamUnreachable


@pytest.mark.parametrize(
    "server", [Ending(begun), Ending(closed, after_s=1.1)], ids=["an answer that has begun", "work that took a while"]
)
async def test_what_an_upstream_took_before_it_ended_is_its_failure(server: Serve) -> None:
    assert isinstance(server, Ending)
    async with serving(server) as base_url, client_of(base_url) as client:
        assert await post(client) == b"ok"
        with pytest.raises(UpstreamUnreachable) as caught:
            await post(client)
    assert type(caught.value) is UpstreamUnreachable
    assert server.requests == 2
