"""Transports for the HTTP client that the installed openai package stands on, whose connections lead to an embedded
gateway. That client is httpx2 from openai 3 on, httpx before; both have the same shape.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

import openai

from gateway.client.embedded import EmbeddedGateway

if TYPE_CHECKING:
    import httpcore2 as core
    import httpx2 as http
else:
    _NUMBER = "2" if int(openai.__version__.partition(".")[0]) >= 3 else ""
    http = import_module(f"httpx{_NUMBER}")
    core = import_module(f"httpcore{_NUMBER}")

__all__ = ["AsyncPipeTransport", "PipeTransport", "http"]


class PipeTransport(http.BaseTransport):
    """Owns the embedded gateway: closing the transport closes it."""

    def __init__(self, gateway: EmbeddedGateway) -> None:
        self._gateway = gateway
        self._pool = core.ConnectionPool(network_backend=_Backend(gateway), max_connections=None)

    def handle_request(self, request: http.Request) -> http.Response:
        with _translated():
            answer = self._pool.handle_request(_core_request(request))
        body = _Body(answer.stream)
        return http.Response(answer.status, headers=answer.headers, stream=body, extensions=answer.extensions)

    def close(self) -> None:
        self._pool.close()
        self._gateway.close()


class AsyncPipeTransport(http.AsyncBaseTransport):
    """The same for asyncio. The gateway's loop is another one, in its own thread."""

    def __init__(self, gateway: EmbeddedGateway) -> None:
        self._gateway = gateway
        self._pool = core.AsyncConnectionPool(network_backend=_AsyncBackend(gateway), max_connections=None)

    async def handle_async_request(self, request: http.Request) -> http.Response:
        with _translated():
            answer = await self._pool.handle_async_request(_core_request(request))
        body = _AsyncBody(answer.stream)
        return http.Response(answer.status, headers=answer.headers, stream=body, extensions=answer.extensions)

    async def aclose(self) -> None:
        await self._pool.aclose()
        await asyncio.to_thread(self._gateway.close)


class _Body(http.SyncByteStream):
    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __iter__(self) -> Iterator[bytes]:
        with _translated():
            yield from self._stream

    def close(self) -> None:
        self._stream.close()


class _AsyncBody(http.AsyncByteStream):
    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with _translated():
            async for piece in self._stream:
                yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()


class _Backend(core.NetworkBackend):
    """Every address is the embedded gateway."""

    def __init__(self, gateway: EmbeddedGateway) -> None:
        self._gateway = gateway

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> core.NetworkStream:
        with _socket_errors(core.ConnectError, core.ConnectTimeout):
            return _Pipe(self._gateway.connect())


class _AsyncBackend(core.AsyncNetworkBackend):
    def __init__(self, gateway: EmbeddedGateway) -> None:
        self._gateway = gateway

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> core.AsyncNetworkStream:
        with _socket_errors(core.ConnectError, core.ConnectTimeout):
            return _AsyncPipe(self._gateway.connect())


class _Pipe(core.NetworkStream):
    def __init__(self, end: socket.socket) -> None:
        self._end = end

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        with _socket_errors(core.ReadError, core.ReadTimeout):
            self._end.settimeout(timeout)
            return self._end.recv(max_bytes)

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        with _socket_errors(core.WriteError, core.WriteTimeout):
            self._end.settimeout(timeout)
            self._end.sendall(buffer)

    def close(self) -> None:
        self._end.close()

    def get_extra_info(self, info: str) -> Any:
        return _extra_info(self._end, info)


class _AsyncPipe(core.AsyncNetworkStream):
    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self._end = end

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        with _socket_errors(core.ReadError, core.ReadTimeout):
            async with asyncio.timeout(timeout):
                return await asyncio.get_running_loop().sock_recv(self._end, max_bytes)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        with _socket_errors(core.WriteError, core.WriteTimeout):
            async with asyncio.timeout(timeout):
                await asyncio.get_running_loop().sock_sendall(self._end, buffer)

    async def aclose(self) -> None:
        self._end.close()

    def get_extra_info(self, info: str) -> Any:
        return _extra_info(self._end, info)


def _extra_info(end: socket.socket, info: str) -> object:
    """`is_readable` tells the pool that an idle connection was closed by the other side."""
    match info:
        case "is_readable":
            return _has_data(end)
        case "socket":
            return end
        case _:
            return None


def _has_data(end: socket.socket) -> bool:
    end.setblocking(False)
    try:
        end.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    return True


def _core_request(request: http.Request) -> core.Request:
    url = request.url
    return core.Request(
        method=request.method,
        url=core.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
        headers=request.headers.raw,
        content=cast("Any", request.stream),
        extensions=request.extensions,
    )


@contextmanager
def _socket_errors(broken: type[Exception], late: type[Exception]) -> Iterator[None]:
    try:
        yield
    except TimeoutError as error:
        raise late(str(error)) from error
    except OSError as error:
        raise broken(str(error)) from error


@contextmanager
def _translated() -> Iterator[None]:
    """The pool's exceptions as the HTTP client's: both have the same names."""
    try:
        yield
    except (core.TimeoutException, core.NetworkError, core.ProtocolError, core.UnsupportedProtocol) as error:
        translated: type[Exception] = getattr(http, type(error).__name__)
        raise translated(str(error)) from error
