"""An answer as it comes over one of our connections: what waits of its body, unpacked, and how it ended.

Knows no socket and no HTTP beyond its headers; there is one reader.
"""

import asyncio
from collections.abc import Mapping
from typing import Protocol

from adapters.inflater import Inflater, Undecodable, inflater_for

__all__ = ["BrokenOff", "Unanswered", "WireAnswer"]

_MAX_HELD_BYTES = 64 * 1024
"""Of a body that its reader has not taken; then the socket is left alone. One read may exceed it by itself."""


class BrokenOff(ConnectionError):
    """The connection ended before the answer did."""


class Unanswered(BrokenOff):
    """It ended before a byte of the answer came."""


class Carrier(Protocol):
    """The connection that the answer comes over."""

    def resume(self) -> None:
        """Reads on."""
        ...

    def abort(self) -> None:
        """Ends it at once."""
        ...


class WireAnswer:
    """An answer as it comes. `head` is done once `status` and `headers` (names in lower case) are there.

    `failure` is why it ended, where that was before its end; what came until then can still be taken.
    """

    __slots__ = (
        "_connection",
        "_held",
        "_inflater",
        "_size",
        "_waiter",
        "ended",
        "failure",
        "head",
        "headers",
        "loop",
        "status",
    )

    def __init__(self, connection: Carrier, loop: asyncio.AbstractEventLoop) -> None:
        self.status = 0
        self.headers: Mapping[str, str] = {}
        self.head: asyncio.Future[None] = loop.create_future()
        self.ended = False
        self.failure: Exception | None = None
        self._connection: Carrier | None = connection
        self.loop = loop
        self._held: list[bytes] = []
        self._size = 0
        self._inflater: Inflater | None = None
        self._waiter: asyncio.Future[None] | None = None

    @property
    def finished(self) -> bool:
        """Whether it ended well and was taken whole."""
        whole = self.ended and not self._held and self.failure is None
        return whole and (self._inflater is None or self._inflater.complete)

    def take(self) -> bytes:
        """What came since the last time; empty where that is nothing, now or at its end."""
        if self._inflater is not None:
            return self._take_inflated(self._inflater)
        held = self._held
        if not held:
            return b""
        data = held[0] if len(held) == 1 else b"".join(held)
        held.clear()
        if self._size > _MAX_HELD_BYTES and self._connection is not None:
            self._connection.resume()
        self._size = 0
        return data

    def arrive(self) -> asyncio.Future[None]:
        """Done once there is more to take, or the end."""
        self._waiter = waiter = self.loop.create_future()
        if self._held or self.ended:
            waiter.set_result(None)
        return waiter

    def fail(self, error: Exception) -> None:
        """Ends it with this error, and its connection."""
        self._end(error)
        self.close()

    def close(self) -> None:
        """Closes the connection at once unless the answer has ended. May be called again."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._end(BrokenOff("the answer was closed"))
            connection.abort()

    def begin(self, status: int, headers: Mapping[str, str]) -> None:
        self.status = status
        self.headers = headers
        if (encoding := headers.get("content-encoding")) is not None:
            self._inflater = inflater_for(encoding)

    def add(self, pieces: list[bytes]) -> bool:
        """Whether so much waits now that no more should come."""
        self._held += pieces
        self._size += len(pieces[0]) if len(pieces) == 1 else sum(map(len, pieces))
        return self._size > _MAX_HELD_BYTES

    def wake(self) -> None:
        """There is something new for whoever waits."""
        if not self.head.done():
            self.head.set_result(None)
        elif self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def end(self, error: Exception | None = None) -> None:
        """The connection is done with it."""
        self._connection = None
        self._end(error)

    def _end(self, error: Exception | None) -> None:
        if self.ended:
            return
        self.ended = True
        self.failure = error
        if error is not None and not self.status and not self.head.done():
            self.head.set_exception(error)
            self.head.exception()  # whoever waits for it gets it as well; who has left does not
        else:
            self.wake()

    def _take_inflated(self, inflater: Inflater) -> bytes:
        """At most what one step of the inflater gives, so that a small body can't become a large one at once."""
        held = self._held
        try:
            while True:
                if inflater.pending:
                    data = inflater.feed(b"")
                elif held:
                    piece = held.pop(0)
                    if self._size > _MAX_HELD_BYTES >= self._size - len(piece) and self._connection is not None:
                        self._connection.resume()
                    self._size -= len(piece)
                    data = inflater.feed(piece)
                else:
                    if self.ended and self.failure is None:
                        inflater.end()
                    return b""
                if data:
                    return data
        except Undecodable as error:
            held.clear()
            self._inflater = None
            self.fail(error)
            self.failure = error  # also where its bytes came whole
            return b""
