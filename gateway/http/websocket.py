"""A connection that became a WebSocket (RFC 6455). Frames are read and written by `websockets`, without its sockets."""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator

from websockets.extensions.permessage_deflate import ServerPerMessageDeflateFactory
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request as Handshake
from websockets.protocol import State
from websockets.server import ServerProtocol

from gateway.http.request import Request

__all__ = ["CloseCode", "WebSocket", "open_websocket"]

_MOST_HELD = 1 << 20
"""So many bytes of messages wait to be read, and those that came with the last of them; then the client has to."""
_MESSAGE_COST = 64
"""What holding a message takes beside its bytes."""
_HANDSHAKE = ("host", "origin", "connection", "upgrade")
_OWN = "sec-websocket-"
_silent = logging.getLogger("gateway.http.websocket")
_silent.addHandler(logging.NullHandler())
_silent.propagate = False  # it would log messages; the service logs requests its own way


def open_websocket(request: Request, *, max_bytes: int, heartbeat_s: float, close_s: float) -> "WebSocket | None":
    """Answers the question for a WebSocket; None where the request is no such question.

    A message has at most `max_bytes`. A client that says nothing is asked for a sign of life every `heartbeat_s`, and
    has half of that to give it; `close_s` it has to say that it closes as well.
    """
    protocol = ServerProtocol(max_size=max_bytes, extensions=[ServerPerMessageDeflateFactory()], logger=_silent)
    told = {name: value for name, value in request.headers.items() if name in _HANDSHAKE or name.startswith(_OWN)}
    lines = "".join(f"{name}: {value}\r\n" for name, value in told.items())
    if request.method != "GET" or request.is_1_0:
        return None
    protocol.receive_data(f"GET / HTTP/1.1\r\n{lines}\r\n".encode("utf-8", "surrogateescape"))
    asked = next(iter(protocol.events_received()), None)
    if not isinstance(asked, Handshake):
        return None
    answer = protocol.accept(asked)
    if answer.status_code != 101:
        return None
    answer.headers["Server"] = "gateway"
    protocol.send_response(answer)
    return WebSocket(request, protocol, heartbeat_s=heartbeat_s, close_s=close_s)


class WebSocket:
    """Iterating gives the bytes of its messages, of texts as of others, until the client closes or is gone."""

    closes = True

    def __init__(self, request: Request, protocol: ServerProtocol, *, heartbeat_s: float, close_s: float) -> None:
        self._wire = request.wire
        self._protocol = protocol
        self._heartbeat_s = heartbeat_s
        self._close_s = close_s
        self._loop = asyncio.get_running_loop()
        self._messages: deque[bytes] = deque()
        self._held = 0
        self._throttled = False
        self._fragments = bytearray()
        self._is_text = False
        self._arrival = asyncio.Event()
        self._gone = asyncio.Event()
        self._heard = False
        tail = self._wire.upgrade(self)
        self._flush()
        if tail:
            self.received(tail)
        self._timer = self._loop.call_later(heartbeat_s, self._ask)

    @property
    def ended(self) -> bool:
        return self._protocol.state is not State.OPEN

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            while not self._messages:
                if self.ended:
                    return
                self._arrival.clear()
                await self._arrival.wait()
            message = self._messages.popleft()
            self._held -= len(message) + _MESSAGE_COST
            if self._throttled and self._held < _MOST_HELD:
                self._throttled = False
                self._wire.throttle(False)
            yield message

    async def send(self, text: bytes) -> None:
        """A text. Waits while the client is slow. Raises ConnectionError when it is gone or has closed."""
        if self.ended:
            raise ConnectionResetError("the client has closed")
        self._protocol.send_text(text)
        self._flush()
        if self._wire.outflow.is_full:
            await self._wire.outflow.drained()

    async def close(self, code: CloseCode = CloseCode.NORMAL_CLOSURE) -> None:
        """Says so, and gives the client its time to say so as well."""
        self._timer.cancel()
        if self._protocol.state is State.OPEN:
            self._protocol.send_close(code)
            self._flush()
            self._loop.call_later(self._close_s, self._gone.set)
            await self._gone.wait()
        self._hang_up()

    def received(self, data: bytes) -> None:
        self._heard = True
        self._protocol.receive_data(data)
        for event in self._protocol.events_received():
            if isinstance(event, Frame):
                self._take(event)
        self._flush()
        if self.ended:
            self._arrival.set()

    def lost(self) -> None:
        self._timer.cancel()
        self._protocol.receive_eof()
        self._arrival.set()
        self._gone.set()

    def _take(self, frame: Frame) -> None:
        if frame.opcode in (Opcode.TEXT, Opcode.BINARY):
            self._is_text = frame.opcode is Opcode.TEXT
        elif frame.opcode is not Opcode.CONT:
            return
        self._fragments += frame.data
        if not frame.fin:
            return
        message = bytes(self._fragments)
        self._fragments.clear()
        if self._is_text and not _is_text(message):
            self._protocol.fail(CloseCode.INVALID_DATA)
            return
        self._messages.append(message)
        self._held += len(message) + _MESSAGE_COST
        if self._held >= _MOST_HELD and not self._throttled:
            self._throttled = True
            self._wire.throttle(True)
        self._arrival.set()

    def _flush(self) -> None:
        for data in self._protocol.data_to_send():
            if self._wire.is_lost:
                return
            if data:
                self._wire.write(data)
            else:  # both have closed, or the client broke the rules
                self._gone.set()
                self._hang_up()

    def _hang_up(self) -> None:
        """A client that has said that it closes waits for the server to do it (RFC 6455, 7.1.1)."""
        self._wire.close(has_more=self._protocol.close_rcvd is None)

    def _ask(self) -> None:
        """The timer: asks a client that said nothing for a sign of life, and cuts it off where none comes."""
        if self._heard or self._throttled:
            self._heard = False
            self._timer = self._loop.call_later(self._heartbeat_s, self._ask)
            return
        self._protocol.send_ping(b"")
        try:
            self._flush()
        except ConnectionError:
            return
        self._timer = self._loop.call_later(self._heartbeat_s / 2, self._check)

    def _check(self) -> None:
        if self._heard:
            self._ask()
        else:
            self._wire.abort()


def _is_text(message: bytes) -> bool:
    try:
        message.decode()
    except UnicodeDecodeError:
        return False
    return True
