"""One connection: its requests in turn, a task each, and how it ends."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol, cast

from adapters.canonical.errors import GatewayError
from gateway.http.answer import CLOSES, Answer, Reply, connection_line, render_answer
from gateway.http.outflow import STALLED_S, Outflow
from gateway.http.patience import Patience
from gateway.http.reader import RequestReader
from gateway.http.request import Request, Upgraded

__all__ = ["Connection", "Host", "Serves"]

LINGER_S = 3.0
"""How long the rest of a refused body is read, so that the client gets to see the answer."""
_MOST_WAITING = 64
"""So many requests of one connection wait for their turn, and those that came with the last of them."""
_TOGETHER = 65_536
"""So many bytes wait at most for the end of a turn of the event loop."""
_AT_ONCE = 16_384
"""Bytes that are read at once where heads may be among them: this bounds how many requests one read can bring."""


class Serves(Protocol):
    """What answers requests."""

    def handle(self, request: Request) -> Awaitable[Reply]:
        """Raises nothing but CancelledError. Cancelled when the client leaves."""
        ...

    def refuse(self, error: GatewayError) -> Answer:
        """The answer to what is no request."""
        ...

    def fail(self, fault: BaseException) -> Answer:
        """The answer where `handle` raised something."""
        ...


class Host(Protocol):
    """What a connection belongs to."""

    service: Serves
    head_s: float
    """The first head of a connection has to arrive in this time."""
    idle_s: float
    """An idle connection is closed after this; later heads that do not arrive whole in this time are not waited for."""

    def opened(self, connection: "Connection") -> None: ...

    def at_turn_end(self, write: Callable[[], None]) -> None:
        """Calls it before the event loop waits."""
        ...

    def closed(self, connection: "Connection") -> None: ...


class Connection(asyncio.Protocol):
    """Satisfies `gateway.http.request.Wire`."""

    __slots__ = (
        "_halts",
        "_host",
        "_is_closing",
        "_is_lost",
        "_is_reading",
        "_is_stopping",
        "_loop",
        "_outgoing",
        "_outgoing_bytes",
        "_patience",
        "_queue",
        "_reader",
        "_request",
        "_transport",
        "_unread",
        "_upgraded",
        "_was_asked",
        "outflow",
        "peer",
        "task",
    )

    def __init__(self, host: Host) -> None:
        self._host = host
        self._loop = asyncio.get_running_loop()
        self._reader = RequestReader(self, self._began, self._ended, self.throttle)
        self._request: Request | None = None
        """The one that is served, or whose body is still read after its answer."""
        self.task: asyncio.Task[None] | None = None
        """Serves a request."""
        self.peer: str | None = None
        self._outgoing: list[bytes] = []
        """What waits for the end of this turn of the event loop."""
        self._outgoing_bytes = 0
        self._queue: list[Request | GatewayError] = []
        self._unread = b""
        self._halts = 0
        """For so many reasons nothing is read."""
        self._is_reading = True
        self._upgraded: Upgraded | None = None
        self._patience = Patience(self._overdue)
        self._is_closing = False
        self._is_stopping = False
        self._is_lost = False
        self._was_asked = False

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.outflow = Outflow(self._transport, self.abort)
        address = transport.get_extra_info("peername")
        if isinstance(address, tuple):
            self.peer = address[0].removeprefix("::ffff:")  # IPv4, on a socket of both
        self._host.opened(self)
        self._patience.last(self._host.head_s)

    def data_received(self, data: bytes) -> None:
        if self._is_closing:
            return
        if self._upgraded is not None:
            self._upgraded.received(data)
            return
        if self._unread or (len(data) > _AT_ONCE and self._reader.body_left < len(data)):
            self._unread += data
            self._read_on()
            return
        self._feed(data)
        if self._queue and len(self._queue) >= _MOST_WAITING:
            self._read_on()

    def eof_received(self) -> None:
        """A client that sends no more is taken for one that left: which it is cannot be seen. The transport closes."""
        self.flush()

    def pause_writing(self) -> None:
        self.outflow.paused()
        if self._upgraded is not None:  # what it answers by itself must not pile up
            self.throttle(True)

    def resume_writing(self) -> None:
        self.outflow.resumed()
        if self._upgraded is not None:
            self.throttle(False)

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_lost = self._is_closing = True
        self._outgoing.clear()
        self._patience.stop()
        self._queue.clear()
        self._unread = b""
        request, self._request = self._request, None
        if request is not None:
            request.body.fail(ConnectionResetError("the client is gone"))
        if self.task is not None:
            self.task.cancel()
        if self._upgraded is not None:
            self._upgraded.lost()
        self.outflow.over()
        self._host.closed(self)

    # What serves a request calls.

    @property
    def is_lost(self) -> bool:
        """The client is gone."""
        return self._is_lost or self._transport.is_closing()

    def write(self, data: bytes) -> None:
        """Raises ConnectionError when the client is gone."""
        if self.is_lost:
            raise ConnectionResetError("the client is gone")
        if not self._outgoing:
            self._host.at_turn_end(self.flush)
        self._outgoing.append(data)
        self._outgoing_bytes += len(data)
        if self._outgoing_bytes > _TOGETHER:
            self.flush()

    def flush(self) -> None:
        """Hands what was written to the transport."""
        outgoing = self._outgoing
        if outgoing and not self.is_lost:
            data = outgoing[0] if len(outgoing) == 1 else b"".join(outgoing)
            self._outgoing = []
            self._outgoing_bytes = 0
            self._transport.write(data)

    def abort(self) -> None:
        """Ends it at once."""
        self._is_closing = True
        self.flush()
        self._transport.abort()

    def upgrade(self, upgraded: Upgraded) -> bytes:
        """From now on this hears what the client sends. Gives what has come already, behind the request."""
        self._upgraded = upgraded
        tail, self._reader.tail = self._reader.tail or b"", None
        self.throttle(False)
        return tail

    def close(self, *, has_more: bool) -> None:
        """Ends it once what was written is taken. `has_more`: the client may still be sending. A socket that is closed
        then may take the answer back, so what comes is read until the client closes as well, for a while."""
        if self._is_closing:
            return
        self._queue.clear()
        self._unread = b""
        self.flush()
        if not has_more:
            self._close()
            return
        self._is_closing = True
        self._halts = 0
        self._set_reading()
        if self._transport.can_write_eof():
            self._transport.write_eof()
        self._patience.last(LINGER_S)

    # What its owner calls.

    def end_if_idle(self) -> None:
        """Closes it where it waits for another request. The first one of a connection may be on its way."""
        if self._was_asked and self._request is None and not self._is_closing:
            self._close()

    def stop(self) -> None:
        """Closes it, after the answer that is under way."""
        self._is_stopping = True
        if self._request is None:
            self._close()

    # The requests.

    def _began(self, request: Request) -> None:
        if self._request is None:
            self._start(request)
        else:
            self._queue.append(request)

    def _ended(self, request: Request) -> None:
        """Its body has arrived, or is broken."""
        if self._reader.tail is not None:
            self.throttle(True)
        if request is self._request and self.task is None:
            self._after(request, closes=not request.body.has_ended)

    def _start(self, request: Request) -> None:
        self._request = request
        self._was_asked = True
        self.task = self._loop.create_task(self._serve(request))

    async def _serve(self, request: Request) -> None:
        service = self._host.service
        try:
            try:
                reply = await service.handle(request)
            except Exception as fault:
                if isinstance(fault, ConnectionError) and self.is_lost:
                    raise
                reply = service.fail(fault)
                reply.closes = True
            if type(reply) is Answer:
                if request.is_answered:
                    raise ConnectionAbortedError("an answer has begun to go out")
                body = request.body
                closes = reply.closes or self._is_stopping or body.is_awaited or body.is_broken
                self.write(render_answer(reply, request.method, connection_line(request, closes)))
                if self.outflow.is_full:
                    await self.outflow.drained()
            else:
                closes = reply.closes or self._is_stopping
                if not reply.ended:
                    self.abort()
        except ConnectionError:
            self.abort()
            return
        except BaseException:
            self.abort()
            raise
        finally:
            self.task = None
        self._after(request, closes=closes)
        if not self._is_reading:
            self._read_on()

    def _after(self, request: Request, *, closes: bool) -> None:
        """Its answer is given."""
        if self._is_closing:
            return
        if closes or not request.keeps_alive or request.body.is_broken:
            self.close(has_more=not request.body.has_ended)
        elif not request.body.has_ended:
            request.body.discard()
            self._patience.last(LINGER_S)
        else:
            self._request = None
            self._next()

    def _next(self) -> None:
        if self._queue:
            waiting = self._queue.pop(0)
            if isinstance(waiting, Request):
                self._start(waiting)
            else:
                self._tell(self._host.service.refuse(waiting))
        elif self._is_stopping:
            self._close()
        else:
            self._patience.last(self._host.idle_s)

    # Reading.

    def _feed(self, data: bytes) -> None:
        try:
            self._reader.feed(data)
        except GatewayError as error:
            if self._request is None:
                self._tell(self._host.service.refuse(error))
            else:
                self._queue.append(error)
        except Exception as fault:
            self._tell(self._host.service.fail(fault))

    def _read_on(self) -> None:
        """Reads as much as may wait for its turn; the client is not heard while there is more."""
        while self._unread and len(self._queue) < _MOST_WAITING and not self._is_closing:
            size = max(_AT_ONCE, self._reader.body_left)
            data, self._unread = self._unread[:size], self._unread[size:]
            self._feed(data)
        self._set_reading()

    def throttle(self, halts: bool) -> None:
        """True: nothing is read until a False for it comes."""
        self._halts += 1 if halts else -1
        self._set_reading()

    def _set_reading(self) -> None:
        wanted = not self._unread and self._halts <= 0 and len(self._queue) < _MOST_WAITING
        if wanted is self._is_reading or self._transport.is_closing():
            return
        self._is_reading = wanted
        if wanted:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    # The end.

    def _tell(self, answer: Answer) -> None:
        """Answers what is no request, and closes."""
        if self._is_closing:
            return
        try:
            self.write(render_answer(answer, "", CLOSES))
        except ConnectionError:
            return
        self.close(has_more=True)

    def _close(self) -> None:
        """What was written is still sent, which a client that takes it gets a while for."""
        self._is_closing = True
        self.flush()
        self._transport.close()
        self._patience.last(STALLED_S)

    def _overdue(self) -> None:
        if self.task is not None and not self._is_closing:
            self._patience.last(self._host.idle_s)
        elif self._is_closing:
            self.abort()
        else:
            self._close()
