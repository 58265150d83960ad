"""Kept connections that end at the upstream at the very time when they are used again."""

import asyncio
import socket
import struct
from collections.abc import Callable

import pytest

from adapters.canonical.errors import UpstreamUnreachable
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
async def test_a_kept_connection_that_ends_unanswered_is_replaced_by_a_new_one(end: End, stream: bool) -> None:
    server = Ending(end)
    async with serving(server) as base_url, client_of(base_url) as client:
        for _ in range(4):
            assert await post(client, stream=stream) == b"ok"
    assert (server.connections, server.requests) == (4, 7)


async def test_many_that_end_together_cost_no_request_its_answer() -> None:
    server = Ending(closed)
    async with serving(server) as base_url, client_of(base_url, max_connections=8) as client:
        for _ in range(3):
            assert await asyncio.gather(*[post(client) for _ in range(8)]) == [b"ok"] * 8


async def test_a_new_connection_that_ends_unanswered_is_the_failure_of_its_request() -> None:
    server = Ending(closed, good=0)
    async with serving(server) as base_url, client_of(base_url) as client:
        with pytest.raises(UpstreamUnreachable) as caught:
            await post(client)
    assert server.requests == 1
    assert caught.value.retryable


async def test_a_request_goes_out_twice_at_most() -> None:
    answers = iter((True, False, False))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await asked(reader):
            if not next(answers):
                return
            writer.write(OK)

    async with serving(serve) as base_url, client_of(base_url) as client:
        assert await post(client) == b"ok"
        with pytest.raises(UpstreamUnreachable):
            await post(client)
    assert next(answers, None) is None


@pytest.mark.parametrize(
    "server", [Ending(begun), Ending(closed, after_s=1.1)], ids=["an answer that has begun", "work that took a while"]
)
async def test_an_upstream_that_took_the_request_is_not_asked_twice(server: Serve) -> None:
    assert isinstance(server, Ending)
    async with serving(server) as base_url, client_of(base_url) as client:
        assert await post(client) == b"ok"
        with pytest.raises(UpstreamUnreachable):
            await post(client)
    assert server.requests == 2
