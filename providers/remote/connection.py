"""One HTTP/1.1 connection to an upstream, one exchange at a time: bytes out, an answer in.

llhttp parses (httptools); this owns what may follow what, how large a head may be, and when the connection may carry
another request. Knows no pool, no limits on time and no dialect. Closing is at once: what was not sent is lost.
"""

import asyncio
from collections.abc import AsyncIterable, Callable, Mapping
from typing import Protocol, cast

import httptools

from providers.remote.wire_answer import BrokenOff, Unanswered, WireAnswer

__all__ = ["Connection", "NotHttp", "Owner"]

_MAX_HEAD_BYTES = 64 * 1024
_MAX_FIELDS = 128
_PIECE_BYTES = 256 * 1024
"""Of a request's body, written at once; the rest follows as the peer takes it."""
_BODILESS = (204, 304)


class NotHttp(Exception):
    """The peer sent what is no HTTP answer, or one that could be read in two ways."""


class Owner(Protocol):
    """Whoever keeps connections. Each is told of as `dropped` once, and as `gone` where its socket was open."""

    def release(self, connection: "Connection") -> None:
        """It may carry another request."""
        ...

    def at_turn_end(self, write: Callable[[], None]) -> None:
        """Calls it before the event loop waits."""
        ...

    def dropped(self, connection: "Connection") -> None:
        """It carries no more requests."""
        ...

    def gone(self, connection: "Connection") -> None:
        """Its socket is closed."""
        ...


class Connection(asyncio.Protocol):
    """Made by `create_connection`; `send` only when it is new, or after it was given back."""

    __slots__ = (
        "_answer",
        "_complete",
        "_dropped",
        "_fed",
        "_fields",
        "_loop",
        "_more",
        "_overhead",
        "_owner",
        "_parser",
        "_pieces",
        "_reusable",
        "_room",
        "_status",
        "_unsent",
        "_until_close",
        "_writable",
        "on_body",
        "transport",
        "was_used",
    )

    def __init__(self, owner: Owner, loop: asyncio.AbstractEventLoop) -> None:
        self._owner = owner
        self._loop = loop
        self.transport: asyncio.Transport | None = None
        self.was_used = False
        """It has carried a request, so its peer may end it as another one leaves."""
        self._answer: WireAnswer | None = None
        self._dropped = False
        self._unsent: bytes | memoryview | None = None
        self._more = False
        self._writable = True
        self._room: asyncio.Future[None] | None = None
        self._pieces: list[bytes] = []
        self.on_body = self._pieces.append  # the parser calls it without a frame of Python in between
        self._fields: list[tuple[bytes, bytes]] = []
        self._status = 0
        self._complete = self._until_close = self._reusable = False
        self._overhead = self._fed = 0
        self._parser: httptools.HttpResponseParser | None = httptools.HttpResponseParser(self)

    @property
    def usable(self) -> bool:
        return not self._dropped

    def send(self, head: bytes, body: bytes, *, more: bool = False) -> WireAnswer:
        """Takes a request, to be written soon. Its answer comes, or fails, on its own.

        `more`: the head alone is written, at once; the body is for `send_rest`.
        """
        answer = self._answer = WireAnswer(self, self._loop)
        self._status = self._overhead = self._fed = 0
        self._complete = self._until_close = False
        self._more = more
        self._fields.clear()
        transport = self.transport
        assert transport is not None
        if len(body) <= _PIECE_BYTES:
            self._unsent = head + body
        else:
            transport.write(head)
            self._unsent = memoryview(body)
        if more:
            self.send_on()
        else:
            self._owner.at_turn_end(self.send_on)
        return answer

    async def send_rest(self, body: AsyncIterable[bytes], length: int | None) -> None:
        """Writes the rest of a body as it comes and the peer takes it, in chunks where its length is None. Returns when
        all went out, or the connection ended: there is no more of it for an answer that ended. Raises what `body` does.
        """
        left = length or 0
        async for piece in body:
            if self._dropped or self.transport is None:
                return
            if length is None:
                piece = b"%x\r\n%b\r\n" % (len(piece), piece) if piece else b""
            elif (left := left - len(piece)) < 0:
                break
            self.transport.write(piece)
            await asyncio.sleep(0)  # the peer is heard between any two of them
            if not self._writable and not self._dropped:
                self._room = self._loop.create_future()
                await self._room
        if left:
            self.abort()  # what follows would be taken for the rest, or the rest for what follows
        elif not self._dropped and self.transport is not None:
            self.transport.write(b"" if length is not None else b"0\r\n\r\n")
            self._more = False

    def send_on(self) -> None:
        """Writes what waits, as far as the peer takes it."""
        transport = self.transport
        while (unsent := self._unsent) is not None and self._writable and transport is not None:
            self._unsent = unsent[_PIECE_BYTES:] if len(unsent) > _PIECE_BYTES else None
            if not transport.is_closing():
                transport.write(unsent[:_PIECE_BYTES])

    def resume(self) -> None:
        """Reads on."""
        if not self._dropped and self.transport is not None:
            self.transport.resume_reading()

    def close(self) -> None:
        """Ends one that carries nothing."""
        self._drop()
        if self.transport is not None:
            self.transport.close()

    def abort(self) -> None:
        """Ends it at once: a transport that is only closed waits until the peer took everything."""
        answer, self._answer = self._answer, None
        self._drop()
        if self.transport is not None:
            self.transport.abort()
        if answer is not None:
            answer.end(BrokenOff("the connection was closed"))

    def _drop(self) -> None:
        if not self._dropped:
            self._dropped = True
            self._unsent = None
            self._make_room()
            self._owner.dropped(self)

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def pause_writing(self) -> None:
        self._writable = False

    def resume_writing(self) -> None:
        self._writable = True
        self.send_on()
        self._make_room()

    def _make_room(self) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    def data_received(self, data: bytes) -> None:
        answer, parser = self._answer, self._parser
        if answer is None or parser is None:
            self.abort()  # nothing was asked
            return
        broken: Exception | None = None
        self._fed = len(data)
        try:
            parser.feed_data(data)
        except httptools.HttpParserError as error:
            broken = error
        except httptools.HttpParserUpgrade as error:
            broken = error
        pieces = self._pieces
        if pieces:
            if answer.add(pieces) and not self._complete and broken is None and self.transport is not None:
                self.transport.pause_reading()
            pieces.clear()
            self._overhead = 0
        elif not self._complete:
            self._overhead += self._fed
            if self._overhead > _MAX_HEAD_BYTES:
                broken = NotHttp("its head, or what stands around its chunks, is too large")
        if self._complete:
            self._finish(answer, reusable=self._reusable and broken is None)
        elif broken is not None:
            self._answer = None
            answer.end(_not_http(broken) if self._status < 200 else BrokenOff("the framing is broken"))
            self.abort()
        elif self._status >= 200:
            answer.wake()

    def _finish(self, answer: WireAnswer, *, reusable: bool) -> None:
        self._answer = None
        transport = self.transport
        left = self._more or self._unsent is not None
        if not reusable or left or transport is None or transport.get_write_buffer_size():
            self.abort()  # what is left of the request must not be taken for the next one
        else:
            self.was_used = True
            self._owner.release(self)
        answer.end()

    def eof_received(self) -> None:
        self._over(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._over(exc)
        self._parser = None  # it knows this object, which knows it
        self._owner.gone(self)

    def _over(self, error: Exception | None) -> None:
        answer, self._answer = self._answer, None
        self._drop()
        if answer is None:
            return
        if self._until_close and error is None:
            answer.end()
            return
        failure = (BrokenOff if self._fed else Unanswered)("the connection ended")
        failure.__cause__ = error
        answer.end(failure)

    # What the parser calls. Whatever is raised here comes out of `feed_data` as the context of an HttpParserError.

    def on_message_begin(self) -> None:
        if self._complete:
            raise NotHttp("something follows the answer")

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields.append((name, value))

    def on_headers_complete(self) -> None:
        assert self._parser is not None
        status = self._status = self._parser.get_status_code()
        fields = self._fields
        if status < 200:
            if status < 100 or status == 101:
                self._status = 0
                raise NotHttp(f"status {status}")
            fields.clear()
            return
        try:
            if len(fields) > _MAX_FIELDS or self._overhead + self._fed > _MAX_HEAD_BYTES < _size_of(fields):
                raise NotHttp("its head is too large")
            headers = _headers_of(fields)
            self._until_close = _ends_with_connection(status, headers)
        except NotHttp:
            self._status = 0
            raise
        fields.clear()
        assert self._answer is not None
        self._answer.begin(status, headers)

    def on_message_complete(self) -> None:
        assert self._parser is not None
        if self._status >= 200:
            self._complete = True
            self._reusable = self._parser.should_keep_alive()


def _size_of(fields: list[tuple[bytes, bytes]]) -> int:
    return sum([len(name) + len(value) for name, value in fields])


def _headers_of(fields: list[tuple[bytes, bytes]]) -> dict[str, str]:
    headers = {name.lower().decode("ascii"): value.decode("utf-8", "surrogateescape") for name, value in fields}
    if len(headers) != len(fields) and sum([name.lower() == b"transfer-encoding" for name, _ in fields]) > 1:
        raise NotHttp("its framing is said twice")
    return headers


def _ends_with_connection(status: int, headers: Mapping[str, str]) -> bool:
    """Whether the body has no other end. The parser refuses lengths that are no length, said twice or beside chunks."""
    framing = headers.get("transfer-encoding")
    if framing is not None:
        if framing.strip().lower() != "chunked":
            raise NotHttp("its framing is unknown")
        return False
    return "content-length" not in headers and status not in _BODILESS


def _not_http(error: Exception) -> NotHttp:
    found = NotHttp("the answer is not HTTP")
    found.__cause__ = error
    return found
