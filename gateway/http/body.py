"""A request's body as it arrives. What nobody reads is held up to a bound; then the client has to wait."""

import asyncio
from collections.abc import Callable

from adapters.inflater import Inflater, Undecodable

__all__ = ["CODINGS", "Body", "BrokenBody"]

CODINGS = frozenset(("gzip", "deflate"))
"""In which a body may come."""
_MOST_HELD = 1 << 18
"""So many bytes wait here at most, and what one read of the socket brought."""
_PIECE_COST = 64
"""What holding a piece takes beside its bytes."""


class BrokenBody(Exception):
    """It does not match its length, its chunks or its coding."""


class Body:
    """`throttle` is told True when too much waits here, and False when it was taken.

    `coding`, of `CODINGS`, is how the client packed it: `read` undoes it. What nobody reads is not unpacked.
    """

    __slots__ = (
        "_coding",
        "_fault",
        "_held",
        "_inflater",
        "_pieces",
        "_throttle",
        "_throttled",
        "_waiter",
        "has_ended",
        "is_awaited",
        "is_broken",
        "is_discarded",
    )

    def __init__(self, throttle: Callable[[bool], None], coding: str | None = None) -> None:
        self.has_ended = False
        """The last byte has arrived. More may wait to be read."""
        self.is_awaited = False
        """The client sends it once it is told to (`Expect: 100-continue`)."""
        self.is_broken = False
        """The rest of it will not come, nor any other request."""
        self.is_discarded = False
        self._pieces: list[bytes] = []
        self._held = 0
        self._throttle = throttle
        self._throttled = False
        self._coding = coding
        self._inflater: Inflater | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._fault: Exception | None = None

    @property
    def is_here(self) -> bool:
        """All of it can be taken now."""
        return self.has_ended and self._coding is None and self._fault is None

    def take(self) -> bytes:
        """All that has arrived, as it was sent."""
        pieces = self._pieces
        if not pieces:
            return b""
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        self._pieces = []
        self._held = 0
        if self._throttled:
            self._throttled = False
            self._throttle(False)
        return data

    async def read(self) -> bytes:
        """The next bytes, once there are some; empty at the end. Raises BrokenBody."""
        if self._coding is not None:
            return await self._unpacked(self._coding)
        await self._arrival()
        return self.take()

    def feed(self, piece: bytes) -> None:
        if self.is_discarded:
            return
        self._pieces.append(piece)
        held = self._held = self._held + len(piece) + _PIECE_COST
        if held > _MOST_HELD and not self._throttled:
            self._throttled = True
            self._throttle(True)
        if self._waiter is not None:
            self._wake()

    def end(self) -> None:
        self.has_ended = True
        if self._waiter is not None:
            self._wake()

    def fail(self, fault: Exception) -> None:
        """The rest will not come; whoever reads on is told this."""
        self._fault = fault
        self.is_broken = True
        self._wake()

    def discard(self) -> None:
        """Nobody will read it."""
        self.is_discarded = True
        self.take()

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None:
            self._waiter = None
            if not waiter.done():
                waiter.set_result(None)

    async def _arrival(self) -> None:
        while not self._pieces and not self.has_ended:
            if self._fault is not None:
                raise self._fault
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter

    async def _unpacked(self, coding: str) -> bytes:
        inflater = self._inflater = self._inflater or Inflater(gzip=coding == "gzip")
        try:
            while True:
                packed = b""
                if not inflater.pending:
                    await self._arrival()
                    packed = self.take()
                    if not packed:
                        inflater.end()
                        return b""
                found = inflater.feed(packed)
                if found:
                    return found
        except Undecodable as error:
            raise BrokenBody(f"it is no {coding}") from error
