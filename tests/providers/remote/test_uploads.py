"""Bodies that are sent while they arrive, over the connections of all other calls."""

import asyncio
from collections.abc import AsyncGenerator

import pytest

from adapters.canonical.errors import NotReady, StaleConnection, UpstreamUnreachable
from providers.base import Limits
from tests.providers.remote.wire_server import answering, client_of, serving, small_socket

pytestmark = pytest.mark.timeout(20)
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
REFUSED = b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\nno"


async def of(*pieces: bytes) -> AsyncGenerator[bytes, None]:
    for piece in pieces:
        yield piece


async def endless() -> AsyncGenerator[bytes, None]:
    while True:
        yield bytes(65536)


async def test_between_the_pieces_of_a_body_the_upstream_is_heard() -> None:
    """So that what it says ahead of hanging up is read before a piece meets the closed connection."""
    turns = 0
    sent_at: list[int] = []

    async def turn() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def pieces() -> AsyncGenerator[bytes, None]:
        for _ in range(20):
            sent_at.append(turns)
            yield b"x" * 1000

    turning = asyncio.ensure_future(turn())
    async with serving(answering(OK)) as base_url, client_of(base_url) as client:
        with await client.forward("POST", "/a", {}, pieces(), length=20_000) as answer:
            assert await answer.body() == b"ok"
    turning.cancel()
    assert len(set(sent_at)) == 20


async def test_with_and_without_a_length_it_arrives_whole_over_one_connection() -> None:
    bodies: list[bytes] = []
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        while head := await reader.readuntil(b"\r\n\r\n"):
            if b"content-length: 6" in head:
                bodies.append(await reader.readexactly(6))
            elif b"chunked" in head:
                bodies.append(await reader.readuntil(b"\r\n0\r\n\r\n"))
            else:
                assert head.startswith(b"GET ") or b"content-length: 0\r\n" in head
                bodies.append(b"")
            writer.write(OK)

    async with serving(serve) as base_url, client_of(base_url) as client:
        for method, body, length in (
            ("POST", of(b"abc", b"", b"def"), 6),
            ("POST", of(b"abc", b"", b"def"), None),
            ("POST", of(), 0),
            ("POST", None, None),
            ("GET", None, None),
        ):
            with await client.forward(method, "/a", {}, body, length=length) as answer:
                assert await answer.body() == b"ok"
    assert bodies == [b"abcdef", b"3\r\nabc\r\n3\r\ndef\r\n0\r\n\r\n", b"", b"", b""]
    assert connections == 1


@pytest.mark.parametrize("answer", [REFUSED, OK])
async def test_an_answer_that_is_there_before_the_body_ends_it(answer: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await asyncio.Event().wait()

    async with serving(serve, small_socket(), limit_bytes=1024) as base_url, client_of(base_url) as client:
        for _ in range(2):  # the connection is not used again: a rest of the body would be taken for a request
            with await client.forward("POST", "/a", {}, endless(), length=None) as found:
                assert found.status == int(answer[9:12])
                assert await found.body() == answer[-2:]


async def test_a_good_answer_that_begins_before_the_body_is_sent_lets_it_go_on() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        body = await reader.readexactly(6)
        writer.write(b"6\r\n" + body + b"\r\n0\r\n\r\n")

    gate = asyncio.Event()

    async def pieces() -> AsyncGenerator[bytes, None]:
        yield b"abc"
        asyncio.get_running_loop().call_later(0.05, gate.set)
        await gate.wait()
        yield b"def"

    async with serving(serve) as base_url, client_of(base_url) as client:
        with await client.forward("POST", "/a", {}, pieces(), length=6) as answer:
            assert await answer.body() == b"abcdef"


@pytest.mark.parametrize("length", [3, 5])
async def test_a_body_of_another_length_than_it_said_goes_to_nobody_else(length: int) -> None:
    async with serving(answering(OK)) as base_url, client_of(base_url) as client:
        with pytest.raises(UpstreamUnreachable):
            await client.forward("POST", "/a", {}, of(b"ab", b"cd"), length=length)
        with await client.forward("POST", "/a", {}, of(b"abcd"), length=4) as answer:
            assert await answer.body() == b"ok"


async def test_what_breaks_the_body_is_told_and_ends_the_connection() -> None:
    class Broken(Exception):
        pass

    async def pieces() -> AsyncGenerator[bytes, None]:
        yield b"ab"
        raise Broken

    left = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        left.set()

    async with serving(serve) as base_url, client_of(base_url) as client:
        with pytest.raises(Broken):
            await client.forward("POST", "/a", {}, pieces(), length=6)
        await asyncio.wait_for(left.wait(), 5)


async def test_who_leaves_while_the_peer_takes_nothing_makes_room_for_another_call() -> None:
    begun = asyncio.Semaphore(0)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        begun.release()
        await asyncio.Event().wait()

    listening = small_socket()
    async with (
        serving(serve, listening, limit_bytes=1024) as base_url,
        client_of(base_url, max_connections=1) as client,
    ):
        for _ in range(2):
            asking = asyncio.ensure_future(client.forward("POST", "/a", {}, endless(), length=None))
            await begun.acquire()
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking


async def test_uploads_count_among_the_connections_of_their_provider() -> None:
    async def pieces() -> AsyncGenerator[bytes, None]:
        with pytest.raises(NotReady, match="all its connections are in use"):
            await client.post("/a", b"{}", stream=False)
        yield b"ab"

    limits = Limits(first_token_s=0.05)
    async with serving(answering(OK)) as base_url, client_of(base_url, max_connections=1, limits=limits) as client:
        with await client.forward("POST", "/a", {}, pieces(), length=2) as answer:
            assert await answer.body() == b"ok"


async def test_a_kept_connection_that_had_ended_is_told_as_such() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(1)
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK)
        await reader.readexactly(1)

    async with serving(serve) as base_url, client_of(base_url) as client:
        with await client.forward("GET", "/a", {}, None, length=None) as answer:
            assert await answer.body() == b"ok"
        with pytest.raises(StaleConnection):
            await client.forward("POST", "/a", {}, of(b"ab"), length=2)
