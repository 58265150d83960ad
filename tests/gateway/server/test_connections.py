"""Connections that bring nothing are not kept."""

import asyncio

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
