"""Connections that bring nothing are not kept, and what was refused is not unpacked."""

import asyncio
import gzip

import pytest
from aiohttp import StreamReader, web

from gateway.server.connections import Connections
from providers.testing.scripted import ScriptedProvider
from tests.gateway.server.running import HELLO, running


async def test_headers_that_do_not_arrive_whole_are_not_waited_for() -> None:
    async with running(ScriptedProvider("fake", HELLO)) as gateway:
        hasty = Connections(gateway.app.service, head_s=0.05)
        server = await asyncio.get_running_loop().create_server(hasty, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        try:
            for sent in (b"", b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nx-slow: "):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(sent)
                async with asyncio.timeout(5):
                    assert await reader.read() == b""
                writer.close()
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
            writer.close()
        finally:
            server.close()
            await hasty.shutdown(1)


class Refusing:
    """Refuses every request without a look at its body."""

    def __init__(self) -> None:
        self.bodies: list[StreamReader] = []

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        self.bodies.append(request.content)
        return web.Response(status=401)

    def refuse(self, request: web.BaseRequest, status: int, fault: BaseException | None) -> web.StreamResponse:
        return web.Response(status=status)


@pytest.mark.parametrize("packed", [True, False])
async def test_the_rest_of_a_refused_body_is_read_unless_it_is_compressed(packed: bool) -> None:
    size = 64_000_000 if packed else 4_000_000
    body = gzip.compress(b" " * size) if packed else b" " * size
    coding = "content-encoding: gzip\r\n" if packed else ""
    service = Refusing()
    connections = Connections(service)
    server = await asyncio.get_running_loop().create_server(connections, "127.0.0.1", 0)
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.sockets[0].getsockname()[1])
        writer.write(f"POST / HTTP/1.1\r\nHost: x\r\n{coding}content-length: {len(body)}\r\n\r\n".encode() + body)
        async with asyncio.timeout(10):
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 401")
            if packed:
                await reader.read()  # closed, so nothing more is unpacked
            else:
                writer.write(b"POST / HTTP/1.1\r\nHost: x\r\ncontent-length: 0\r\n\r\n")
                await reader.readuntil(b"HTTP/1.1 401")
        writer.close()
    finally:
        server.close()
        await connections.shutdown(1)
    unpacked = service.bodies[0].total_bytes
    assert unpacked < 4_000_000 if packed else unpacked == size
