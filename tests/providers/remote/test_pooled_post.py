"""Small and large bodies go out on two ways of aiohttp: both must look the same to the upstream and to the caller."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import aiohttp
import pytest
from multidict import CIMultiDict
from yarl import URL

from adapters.canonical.errors import BadUpstreamResponse, UpstreamUnreachable
from providers.remote.http import HttpClient
from providers.remote.pooled_post import MAX_SMALL_BYTES, PooledPost
from tests.mock_upstream import Answer, MockUpstream
from tests.providers.remote.calls import BODY, connected, settings

pytestmark = pytest.mark.timeout(20)
SIZES = [0, 2, MAX_SMALL_BYTES, MAX_SMALL_BYTES + 1, 1 << 20, (1 << 20) + 1]


@pytest.mark.parametrize("size", SIZES)
async def test_a_body_of_any_size_arrives_whole_with_the_same_headers(size: int) -> None:
    async with connected(Answer.json(BODY)) as (upstream, client):
        for body in (b"{}", b"x" * size):
            with await client.post("/a", body, stream=False, request_id="r") as answer:
                assert (answer.status, await answer.body()) == (200, BODY)
        first, second = upstream.requests
        assert second.body == b"x" * size
        assert (second.method, second.path) == ("POST", "/v1/a")
        assert {**second.headers, "content-length": "2"} == first.headers
        assert upstream.connections == 1


async def test_a_host_header_from_run_yaml_goes_out_once() -> None:
    async with connected(Answer.json(BODY), headers={"Host": "other.example"}) as (upstream, client):
        for size in SIZES:
            with await client.post("/a", b"x" * size, stream=False) as answer:
                await answer.body()
    for request in upstream.requests:
        assert request.headers["host"] == "other.example"
        assert request.raw_head.lower().count(b"\r\nhost:") == 1


@pytest.mark.parametrize("size", SIZES[1:4])
async def test_a_compressed_body_is_unpacked(size: int) -> None:
    async with connected(Answer.json(BODY).gzipped()) as (_, client):
        with await client.post("/a", b"x" * size, stream=False) as answer:
            assert await answer.body() == BODY


async def test_a_body_that_came_at_once_has_the_limit_of_any_body() -> None:
    async with connected(Answer.json(b"x" * 11)) as (_, client):
        with await client.post("/a", b"{}", stream=False) as answer, pytest.raises(BadUpstreamResponse, match="larger"):
            await answer.body(10)


Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def serving(serve: Serve, listening: socket.socket | None = None) -> AsyncIterator[str]:
    """The base URL of a server that hands every connection to `serve`."""
    connections: set[asyncio.Task[None]] = set()

    async def connected_to(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        connections.add(task)
        try:
            await serve(reader, writer)
        except asyncio.CancelledError:
            pass  # the test is over
        finally:
            writer.transport.abort()

    listening = listening or socket.create_server(("127.0.0.1", 0))
    server = await asyncio.start_server(connected_to, sock=listening, limit=1)
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
    finally:
        server.close()
        for task in connections:
            task.cancel()
        await asyncio.gather(*connections)


def answering(answer: bytes) -> Serve:
    """Sends the same bytes whenever something comes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(1 << 16):
            writer.write(answer)

    return serve


async def test_early_hints_are_no_answer() -> None:
    hints = b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n"
    async with serving(answering(hints + b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")) as base_url:
        client = HttpClient(settings(base_url), base_url, {})
        with await client.post("/a", b"{}", stream=False) as answer:
            assert (answer.status, await answer.body()) == (200, b"ok")
        await client.aclose()


async def test_a_body_without_a_length_ends_with_the_connection() -> None:
    answer_without_length = Answer(headers={"content-type": "application/json"}, pieces=[BODY], framing="none")
    async with connected(answer_without_length) as (upstream, client):
        for _ in range(2):
            with await client.post("/a", b"{}", stream=False) as answer:
                assert await answer.body() == BODY
        assert upstream.connections == 2


async def test_what_is_no_http_is_a_bad_answer() -> None:
    async with serving(answering(b"220 mail.example ESMTP\r\n\r\n")) as base_url:
        client = HttpClient(settings(base_url), base_url, {})
        with pytest.raises(BadUpstreamResponse, match="not HTTP"):
            await client.post("/a", b"{}", stream=False)
        await client.aclose()


async def test_a_closed_answer_cannot_be_read() -> None:
    async with MockUpstream(Answer.sse([b"data: 1\n\n"], then="hang")) as upstream:
        async with aiohttp.ClientSession() as session:
            post = PooledPost(session, URL(upstream.base_url), connect_s=1, read_bufsize=1 << 16)
            answer = await post.send(CIMultiDict({"host": "h", "content-length": "2"}), b"{}")
            await answer.content.readany()
            answer.close()
            answer.close()
            with pytest.raises(aiohttp.ClientConnectionError):
                await answer.content.readany()
        await upstream.idle()


async def test_a_refused_connection_is_unreachable() -> None:
    client = HttpClient(settings(), "http://127.0.0.1:9/v1", {})
    with pytest.raises(UpstreamUnreachable):
        await client.post("/a", b"{}", stream=False)
    await client.aclose()


async def test_a_connection_whose_request_was_answered_before_it_was_sent_is_not_used_again() -> None:
    """What is left of the first request must not be taken for the second one."""
    connections = 0

    async def answer_without_reading(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
        await asyncio.Event().wait()

    listening = _small_socket()
    listening.bind(("127.0.0.1", 0))
    connector = aiohttp.TCPConnector(socket_factory=lambda _: _small_socket())
    async with (
        serving(answer_without_reading, listening) as base_url,
        aiohttp.ClientSession(connector=connector) as session,
    ):
        post = PooledPost(session, URL(base_url), connect_s=1, read_bufsize=1 << 16)
        for _ in range(2):
            headers = CIMultiDict({"host": "h", "content-length": str(MAX_SMALL_BYTES)})
            answer = await post.send(headers, b"x" * MAX_SMALL_BYTES)
            assert await answer.content.readany() == b"ok"
            answer.close()
    assert connections == 2


def _small_socket() -> socket.socket:
    """One that holds little of what is sent, so that the rest stays in the transport."""
    small = socket.socket()
    small.setblocking(False)
    small.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2048)
    small.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    return small
