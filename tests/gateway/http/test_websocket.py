"""WebSockets, seen by aiohttp's client and as bytes."""

import asyncio
import base64
import ssl
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from adapters.canonical.errors import GatewayError
from gateway.http.answer import Answer, Reply
from gateway.http.request import Request
from gateway.http.server import Connections
from gateway.http.websocket import CloseCode, WebSocket, open_websocket
from tests.certificates import certificate
from tests.gateway.http.hosted import HOST, get, hosted, until

KEY = base64.b64encode(b"0123456789abcdef")
LINES = (b"Connection: Upgrade", b"Upgrade: websocket", b"Sec-WebSocket-Version: 13", b"Sec-WebSocket-Key: " + KEY)


class Sockets:
    """Sends back what it gets, in capitals; `leave` closes, `flood` sends without an end."""

    def __init__(self, heartbeat_s: float = 30.0) -> None:
        self.heartbeat_s = heartbeat_s
        self.open: list[WebSocket] = []
        self.ended = 0
        self.got: list[bytes] = []
        self.hold = asyncio.Event()
        self.hold.set()

    async def handle(self, request: Request) -> Reply:
        found = open_websocket(request, max_bytes=100_000, heartbeat_s=self.heartbeat_s, close_s=0.2)
        if found is None:
            return Answer(status=405)
        self.open.append(found)
        try:
            async for message in found:
                self.got.append(message)
                await self.hold.wait()
                if message == b"leave":
                    break
                while message == b"flood":
                    await found.send(b"x" * 10_000)
                await found.send(message.upper())
            await found.close(CloseCode.GOING_AWAY)
        except ConnectionError:
            await found.close()
        finally:
            self.ended += 1
        return found

    def refuse(self, error: GatewayError) -> Answer:
        return Answer(status=error.status)

    def fail(self, fault: BaseException) -> Answer:
        raise fault


@asynccontextmanager
async def served(service: Sockets, tls: ssl.SSLContext | None = None) -> AsyncIterator[tuple[Connections, int]]:
    connections = Connections(service)
    server = await asyncio.get_running_loop().create_server(connections, "127.0.0.1", 0, ssl=tls)
    try:
        yield connections, server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await connections.shutdown(1)
        await until(lambda: service.ended == len(service.open))


@asynccontextmanager
async def opened(port: int, *, compress: int = 0) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(f"http://127.0.0.1:{port}/", compress=compress) as socket,
    ):
        yield socket


@asynccontextmanager
async def raw(
    port: int, tls: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A WebSocket as bytes, once it is open."""
    name = None if tls is None else "127.0.0.1"
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls, server_hostname=name)
    writer.write(get("/", *LINES))
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
    try:
        yield reader, writer
    finally:
        writer.close()


def frame(opcode: int, data: bytes, *, last: bool = True) -> bytes:
    """Of a client, masked with zeros."""
    size = bytes([0x80 | len(data)]) if len(data) < 126 else b"\xfe" + struct.pack("!H", len(data))
    return bytes([opcode | (0x80 if last else 0)]) + size + bytes(4) + data


@pytest.mark.parametrize("compress", [0, 15])
async def test_messages_go_both_ways_whole(compress: int) -> None:
    service = Sockets()
    async with served(service) as (_, port), opened(port, compress=compress) as socket:
        for text in ("hi", "ä" * 10_000, ""):
            await socket.send_str(text)
            assert (await socket.receive_str()) == text.encode().upper().decode()
        await socket.send_bytes(b"bytes")
        assert (await socket.receive_str()) == "BYTES"


async def test_fragments_are_one_message_and_a_ping_between_them_is_answered() -> None:
    service = Sockets()
    async with served(service) as (_, port), raw(port) as (reader, writer):
        writer.write(frame(1, b"a", last=False) + frame(9, b"?") + frame(0, b"b", last=False) + frame(0, b"c"))
        assert await reader.readexactly(8) == b"\x8a\x01?\x81\x03ABC"


async def test_what_comes_with_the_question_is_heard() -> None:
    async with served(Sockets()) as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(get("/", *LINES) + frame(1, b"early"))
        await reader.readuntil(b"\r\n\r\n")
        assert await reader.readexactly(7) == b"\x81\x05EARLY"
        writer.close()


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (frame(1, b"\xff"), CloseCode.INVALID_DATA),
        (frame(1, b"x" * 60_000, last=False) + frame(0, b"x" * 60_000), CloseCode.MESSAGE_TOO_BIG),
        (frame(0, b"x"), CloseCode.PROTOCOL_ERROR),
        (b"\x81\x01x", CloseCode.PROTOCOL_ERROR),
        (frame(3, b"x"), CloseCode.PROTOCOL_ERROR),
    ],
    ids=["no text", "too large", "no beginning", "not masked", "no such frame"],
)
async def test_a_client_that_breaks_the_rules_is_told_and_closed(sent: bytes, code: CloseCode) -> None:
    service = Sockets()
    async with served(service) as (connections, port), raw(port) as (reader, writer):
        writer.write(sent)
        assert (await reader.readexactly(4))[2:] == struct.pack("!H", code)
        async with asyncio.timeout(2):
            await reader.read()
        writer.close()
        await until(lambda: service.ended == 1 and not connections.connections)


async def test_both_sides_may_close() -> None:
    service = Sockets()
    async with served(service) as (connections, port):
        async with opened(port) as socket:
            await socket.send_str("leave")
            message = await socket.receive()
            assert (message.type, message.data) == (aiohttp.WSMsgType.CLOSE, aiohttp.WSCloseCode.GOING_AWAY)
        async with opened(port) as socket:
            await socket.close()
        async with raw(port) as (_, writer):
            writer.transport.abort()
            await until(lambda: service.ended == 3)
        await until(lambda: not connections.connections)


async def test_a_client_that_does_not_close_in_its_turn_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.http.connection.LINGER_S", 0.05)
    service = Sockets()
    async with served(service) as (connections, port), raw(port) as (reader, writer):
        writer.write(frame(1, b"leave"))
        assert await reader.readexactly(4) == b"\x88\x02" + struct.pack("!H", CloseCode.GOING_AWAY)
        await until(lambda: not connections.connections)


async def test_a_client_that_has_closed_and_waits_for_the_end_gets_it_at_once_also_over_tls(tmp_path: Path) -> None:
    """TLS cannot close one half alone."""
    cert, key = certificate(tmp_path)
    tls, trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context(cafile=str(cert))
    tls.load_cert_chain(cert, key)
    service = Sockets()
    async with served(service, tls) as (connections, port), raw(port, trusting) as (reader, writer):
        writer.write(frame(8, b""))
        assert await asyncio.wait_for(reader.read(), 1) == b"\x88\x00"
        writer.close()
        await until(lambda: not connections.connections)


async def test_a_client_without_a_sign_of_life_is_cut_off() -> None:
    service = Sockets(heartbeat_s=0.05)
    async with served(service) as (connections, port), opened(port) as alive, raw(port) as (reader, _):
        waiting = asyncio.ensure_future(alive.receive())  # which answers pings
        assert await reader.readexactly(2) == b"\x89\x00"
        await until(lambda: service.ended == 1)
        assert not waiting.done()
        assert len(connections.connections) == 1
        waiting.cancel()


@pytest.mark.parametrize("size", [60_000, 0])
async def test_messages_that_nobody_reads_wait_with_their_client(size: int) -> None:
    service = Sockets()
    async with served(service) as (connections, port), raw(port) as (_, writer):
        service.hold.clear()
        writer.write(frame(1, b"x" * size) * (24_000_000 // (size + 8)))
        await until(lambda: bool(service.open))
        (connection,) = connections.connections
        await until(lambda: not connection._is_reading)
        assert service.open[0]._held < 2_000_000
        writer.transport.abort()
        service.hold.set()


async def test_a_client_that_does_not_read_is_waited_for_and_may_leave() -> None:
    service = Sockets()
    async with served(service) as (connections, port), raw(port) as (_, writer):
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(frame(1, b"flood"))
        await until(lambda: any(connection.outflow.is_full for connection in connections.connections))
        writer.transport.abort()
        await until(lambda: service.ended == 1)


@pytest.mark.parametrize("without", range(len(LINES)))
async def test_a_get_that_asks_for_no_socket_is_answered_as_such(without: int) -> None:
    lines = [line for number, line in enumerate(LINES) if number != without]
    async with served(Sockets()) as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(get("/", *lines))
        assert (await reader.readline()).startswith(b"HTTP/1.1 405 ")
        writer.close()


async def test_a_question_for_a_socket_where_there_is_none_is_answered_and_closed() -> None:
    async with hosted() as at, at.client() as client:
        await client.send(get("/echo", *LINES) + frame(1, b"early"))
        status, headers, _ = await client.answer()
        assert (status, headers["connection"]) == (200, "close")
        assert await client.end() == b""


@pytest.mark.parametrize("line", [b"POST / HTTP/1.1\r\n", b"GET / HTTP/1.0\r\n"])
async def test_a_socket_is_asked_for_by_a_get_of_http_1_1(line: bytes) -> None:
    async with served(Sockets()) as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(line + HOST + b"\r\n".join(LINES) + b"\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 405 ")
        writer.close()
