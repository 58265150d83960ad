"""HTTP connections: aiohttp's low-level server with this gateway's limits and its words for broken requests."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

from aiohttp import StreamReader, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_parser import RawRequestMessage
from aiohttp.web_protocol import RequestHandler

__all__ = ["Connections", "Serves"]

_KEEPALIVE_S = 75.0
"""An idle connection is closed after this; later headers that do not arrive whole in this time are not waited for."""
_HEAD_S = 15.0
"""The same for the first headers of a connection."""
_LINGER_S = 3.0
"""How long the rest of a refused body is read, so that the client gets to see the answer; not of a compressed one."""
_MAX_LINE = 8190
_MAX_FIELD = 16_384
_MAX_HEADERS = 100
_silent = logging.getLogger("gateway.http")
_silent.addHandler(logging.NullHandler())
_silent.propagate = False  # aiohttp would log requests and tracebacks in full; the service logs them its own way


class _Connection(RequestHandler):
    """One connection. What cannot be read as HTTP gets an error body like any other."""

    __slots__ = ("_head_s", "_refuse")

    def __init__(
        self,
        manager: web.Server,
        refuse: Callable[[web.BaseRequest, int, BaseException | None], web.StreamResponse],
        head_s: float,
    ) -> None:
        super().__init__(
            manager,
            loop=manager._loop,
            keepalive_timeout=_KEEPALIVE_S,
            lingering_time=_LINGER_S,
            logger=_silent,
            access_log=None,  # type: ignore[arg-type]  # aiohttp takes None for: no access log
            max_line_size=_MAX_LINE,
            max_field_size=_MAX_FIELD,
            max_headers=_MAX_HEADERS,
        )
        self._refuse = refuse
        self._head_s = head_s

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The first headers have less time than an idle connection."""
        super().connection_made(transport)
        handle = self._keepalive_handle
        if handle is not None:
            handle.cancel()
            self._next_keepalive_close_time = self._loop.time() + self._head_s
            self._keepalive_handle = self._loop.call_at(self._next_keepalive_close_time, self._process_keepalive)

    def resume_reading(self, resume_parser: bool = True) -> None:
        """Only of what was paused: aiohttp's streams call this after every read, and five calls do nothing then."""
        if self._reading_paused:
            super().resume_reading(resume_parser)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        if request.writer.output_size > 0:
            raise ConnectionError("an answer has begun, so there is no room for another one")
        return self._refuse(request, status, exc)


def _request(
    message: RawRequestMessage,
    payload: StreamReader,
    connection: RequestHandler,
    writer: AbstractStreamWriter,
    task: "asyncio.Task[None]",
) -> web.BaseRequest:
    """A compressed body that was refused is not read on: a few bytes of it would keep this process unpacking, without a
    key and without a pause in which others are served."""
    connection._lingering_time = 0.0 if message.compression else _LINGER_S
    return web.BaseRequest(message, payload, connection, writer, task, asyncio.get_running_loop())


class Serves(Protocol):
    """What answers requests (`gateway.server.service.Service`)."""

    def handle(self, request: web.BaseRequest) -> Awaitable[web.StreamResponse]: ...

    def refuse(self, request: web.BaseRequest, status: int, fault: BaseException | None) -> web.StreamResponse: ...


class Connections(web.Server):
    """A protocol factory for `loop.create_server` and its kin. A client that leaves cancels its request."""

    def __init__(self, service: Serves, *, head_s: float = _HEAD_S) -> None:
        super().__init__(service.handle, request_factory=_request, handler_cancellation=True)
        self._refuse = service.refuse
        self._head_s = head_s

    def __call__(self) -> RequestHandler:
        return _Connection(self, self._refuse, self._head_s)
