"""Servers whose every byte and moment the test decides, for the tests of connections."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from providers.remote.http import HttpClient
from tests.providers.remote.calls import settings

__all__ = ["Serve", "answering", "asked", "client_of", "serving", "small_socket"]

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def serving(
    serve: Serve,
    listening: socket.socket | None = None,
    tls: ssl.SSLContext | None = None,
    *,
    limit_bytes: int = 1 << 22,
) -> AsyncIterator[str]:
    """The base URL of a server that hands every connection to `serve`; so much of what it does not read may wait."""
    connections: set[asyncio.Task[None]] = set()

    async def connected_to(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        connections.add(task)
        try:
            await serve(reader, writer)
        except (asyncio.CancelledError, ConnectionError, asyncio.IncompleteReadError):
            pass  # the test is over, or the client left
        finally:
            writer.transport.abort()

    listening = listening or socket.create_server(("127.0.0.1", 0))
    server = await asyncio.start_server(connected_to, sock=listening, limit=limit_bytes, ssl=tls)
    try:
        yield f"{'http' if tls is None else 'https'}://127.0.0.1:{listening.getsockname()[1]}/v1"
    finally:
        server.close()
        for task in connections:
            task.cancel()
        await asyncio.gather(*connections)


@asynccontextmanager
async def client_of(base_url: str, **changes: object) -> AsyncIterator[HttpClient]:
    client = HttpClient(settings(base_url, **changes), base_url)
    try:
        yield client
    finally:
        await client.aclose()


async def asked(reader: asyncio.StreamReader) -> bytes:
    """A whole request, its body with it."""
    head = await reader.readuntil(b"\r\n\r\n")
    lengths = [line.split(b":")[1] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    return head + (await reader.readexactly(int(lengths[0])) if lengths else b"")


def answering(answer: bytes, *, then_close: bool = False) -> Serve:
    """Sends the same bytes for every request."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await asked(reader):
            writer.write(answer)
            if then_close:
                await writer.drain()
                writer.close()
                return

    return serve


def small_socket() -> socket.socket:
    """One that holds little of what is sent, so that the rest stays with the sender."""
    small = socket.socket()
    small.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2048)
    small.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    small.bind(("127.0.0.1", 0))
    small.listen()
    return small
