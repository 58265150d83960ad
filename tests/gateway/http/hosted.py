"""The HTTP server with a small service behind it, on a real loopback socket, and a client that sends bytes as told."""

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import h11

from adapters.canonical.errors import GatewayError
from gateway.http.answer import Answer, Reply
from gateway.http.body import BrokenBody
from gateway.http.request import Request
from gateway.http.server import IDLE_S, Connections
from gateway.http.stream import Stream

HOST = b"Host: x\r\n"
PIECES = [b"one", b"", b"two" * 10, b"three"]


class Service:
    """Answers by path: /echo says what it was asked, /blind reads no body, /stream sends pieces, /wait waits for
    `release`, /endless sends until the client is gone, /large is an answer of many bytes, /fault has a fault."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.cancelled = 0
        self.faults: list[BaseException] = []
        self.waiting = asyncio.Event()
        self.release = asyncio.Event()
        self.running = 0

    async def handle(self, request: Request) -> Reply:
        self.requests.append(request)
        self.running += 1
        try:
            return await self._answer(request)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.running -= 1

    def refuse(self, error: GatewayError) -> Answer:
        return Answer(status=error.status, body=error.message.encode(), headers={"Server": "test"})

    def fail(self, fault: BaseException) -> Answer:
        self.faults.append(fault)
        return Answer(status=500, body=b"fault", headers={"Server": "test"})

    async def _answer(self, request: Request) -> Reply:
        match request.path:
            case "/blind":
                return Answer(status=401)
            case "/stream":
                return await self._stream(request)
            case "/endless":
                stream = Stream(request, headers={})
                while True:
                    stream.write(b"x" * 10_000)
                    self.waiting.set()
                    await stream.drained()
                    await asyncio.sleep(0)
            case "/large":
                return Answer(body=b"x" * 20_000_000)
            case "/wait":
                self.waiting.set()
                await self.release.wait()
                return Answer(body=b"waited")
            case "/fault":
                raise LookupError("a fault")
            case "/broken":
                Stream(request, headers={}).write(b"a beginning")
                raise LookupError("a fault")
            case "/empty":
                return Answer(status=204)
        try:
            body = await read(request)
        except BrokenBody as error:
            return Answer(status=400, body=str(error).encode())
        return Answer(body=said(request, body), headers={"Content-Type": "application/json"})

    async def _stream(self, request: Request) -> Reply:
        headers = {"Content-Length": str(len(b"".join(PIECES)))} if "sized" in request.query_string else {}
        stream = Stream(request, headers=headers)
        for piece in PIECES:
            stream.write(piece)
            await stream.drained()
        stream.end(b"end" if not headers else b"")
        return stream


async def read(request: Request) -> bytes:
    request.say_continue()
    if request.body.is_here:
        return request.body.take()
    pieces = []
    while piece := await request.body.read():
        pieces.append(piece)
    return b"".join(pieces)


def said(request: Request, body: bytes) -> bytes:
    """What /echo answers."""
    return json.dumps([request.method, request.target, request.headers, body.decode("latin-1")]).encode()


@dataclass
class Client:
    """A connection that sends what it is told."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    seen: bytes = field(default=b"")

    async def send(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.writer.write(piece)
            await self.writer.drain()

    async def answer(self, method: str = "GET") -> tuple[int, dict[str, str], bytes]:
        """The next answer, read by h11. `method` is that of its request."""
        oracle = h11.Connection(h11.CLIENT)
        oracle.send(h11.Request(method=method, target="/", headers=[("host", "x")]))
        oracle.send(h11.EndOfMessage())
        if self.seen:
            oracle.receive_data(self.seen)
        status, headers, body = 0, {}, b""
        while True:
            event = oracle.next_event()
            if event is h11.NEED_DATA:
                async with asyncio.timeout(20):
                    oracle.receive_data(await self.reader.read(65_536))
            elif isinstance(event, h11.InformationalResponse | h11.Response):
                status = event.status_code
                headers = {name.decode(): value.decode() for name, value in event.headers}
                if isinstance(event, h11.InformationalResponse):
                    self.seen = oracle.trailing_data[0]
                    return status, headers, body
            elif isinstance(event, h11.Data):
                body += event.data
            else:
                assert isinstance(event, h11.EndOfMessage)
                self.seen = oracle.trailing_data[0]
                return status, headers, body

    async def end(self) -> bytes:
        """What comes until the server closes."""
        async with asyncio.timeout(20):
            try:
                return self.seen + await self.reader.read()
            except ConnectionError:
                return self.seen

    def close(self) -> None:
        self.writer.close()

    def abort(self) -> None:
        self.writer.transport.abort()


@dataclass
class Hosted:
    service: Service
    connections: Connections
    port: int

    @asynccontextmanager
    async def client(self, tls: ssl.SSLContext | None = None) -> AsyncIterator[Client]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=tls, limit=1 << 24)
        try:
            yield Client(reader, writer)
        finally:
            writer.close()

    async def ask(self, *pieces: bytes, method: str = "GET") -> tuple[int, dict[str, str], bytes]:
        """The first answer on a connection of its own."""
        async with self.client() as client:
            await client.send(*pieces)
            return await client.answer(method)


@asynccontextmanager
async def hosted(
    *, head_s: float = 15.0, idle_s: float = IDLE_S, most: int = 1000, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Hosted]:
    """Serves until the block is left; nothing may be left then, and no fault have happened that was not looked at."""
    service = Service()
    connections = Connections(service, head_s=head_s, idle_s=idle_s, most=most)
    server = await connections.listen(socket.create_server(("127.0.0.1", 0)), tls)
    try:
        yield Hosted(service, connections, server.sockets[0].getsockname()[1])
    finally:
        server.close()
        await connections.shutdown(1)
        await until(lambda: not connections.connections and not service.running)
    assert not service.faults


async def until(condition: object, within_s: float = 5.0) -> None:
    """Lets the loop run until the condition holds."""
    assert callable(condition)
    async with asyncio.timeout(within_s):
        while not condition():  # noqa: ASYNC110  # what is watched belongs to the code under test
            await asyncio.sleep(0)


def post(path: str, body: bytes = b"", *lines: bytes) -> bytes:
    """A POST with its length."""
    head = b"POST %b HTTP/1.1\r\n%bContent-Length: %d\r\n" % (path.encode(), HOST, len(body))
    return head + b"".join(line + b"\r\n" for line in lines) + b"\r\n" + body


def get(path: str, *lines: bytes, version: bytes = b"1.1") -> bytes:
    head = b"GET %b HTTP/%b\r\n%b" % (path.encode(), version, HOST)
    return head + b"".join(line + b"\r\n" for line in lines) + b"\r\n"


def chunked(path: str, *chunks: bytes) -> bytes:
    """A POST in these chunks."""
    head = b"POST %b HTTP/1.1\r\n%bTransfer-Encoding: chunked\r\n\r\n" % (path.encode(), HOST)
    return head + b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in (*chunks, b""))
