"""A connection without a socket: the test is the peer, and sees what the pool would."""

import asyncio
from collections.abc import Callable

from providers.remote.connection import Connection
from providers.remote.wire_answer import WireAnswer

__all__ = ["Peer", "read_whole"]


class _Transport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.unsent = 0
        self.paused = self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.append(bytes(data))

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True


class Peer:
    """The owner of one connection, and the other end of it. `released`: how often it was given back."""

    def __init__(self) -> None:
        self.released = self.times_dropped = 0
        self.transport = _Transport()
        self.connection = Connection(self, asyncio.get_running_loop())
        self.connection.connection_made(self.transport)

    def release(self, connection: Connection) -> None:
        self.released += 1

    def at_turn_end(self, write: Callable[[], None]) -> None:
        write()

    def dropped(self, connection: Connection) -> None:
        self.times_dropped += 1

    def gone(self, connection: Connection) -> None:
        assert self.times_dropped == 1

    def is_paused(self) -> bool:
        return self.transport.paused

    def ask(self, body: bytes = b"{}") -> WireAnswer:
        return self.connection.send(b"POST /a HTTP/1.1\r\n\r\n", body)

    def say(self, data: bytes) -> None:
        """As the transport does: nothing comes out of one that was closed."""
        if not self.transport.closed:
            self.connection.data_received(data)

    def hang_up(self, error: Exception | None = None) -> None:
        if error is None and not self.transport.closed:
            self.connection.eof_received()
        self.connection.connection_lost(error)


def read_whole(answer: WireAnswer) -> bytes:
    """Everything that can be taken now."""
    pieces = []
    while piece := answer.take():
        pieces.append(piece)
    return b"".join(pieces)
