"""The connections to one provider: at most so many at once, kept for a while, the one used last first.

Knows no HTTP beyond Connection, and no words of failure. Who waits for a connection gets one in turn.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol

from providers.remote.connection import Connection
from providers.turn_end import TurnEnd

__all__ = ["AllInUse", "Pool", "Way"]

_Turn = asyncio.Future[Connection | None]
_GONE_S = 1.0
"""What is aborted is gone at once, but uvloop does not always say so where the peer ends it at the same moment."""


class Way(Protocol):
    """How connections are opened: `Origin`, or through a proxy."""

    is_secured: bool

    async def open(self, make: Callable[[], Connection]) -> Connection:
        """A new one. Raises OSError. Has no time limit."""
        ...

    def keep_session(self, transport: asyncio.BaseTransport | None) -> None:
        """Lets the next connection take up the TLS session of this one."""
        ...


class AllInUse(Exception):
    """No connection became free in time."""


class Pool:
    """Belongs to one event loop. `connect_s` bounds the opening of a connection, `turn_s` the wait for a free one."""

    def __init__(
        self, way: Way, *, max_connections: int, connect_s: float, turn_s: float, keep_alive_s: float = 30.0
    ) -> None:
        self._way = way
        self._connect_s = connect_s
        self._turn_s = turn_s
        self._keep_alive_s = keep_alive_s
        self._free = max_connections
        self._idle: dict[Connection, float] = {}
        self._open: dict[Connection, asyncio.Future[None]] = {}
        self._waiting: deque[_Turn] = deque()
        self.at_turn_end = TurnEnd().call
        self._loop = asyncio.get_running_loop()
        self._sweep: asyncio.TimerHandle | None = None
        self._closed = False

    def idle(self) -> Connection | None:
        """One that is there and waits for a request."""
        if not self._idle:
            return None
        connection, since = self._idle.popitem()
        if self._loop.time() - since < self._keep_alive_s:
            return connection
        self._idle[connection] = since
        self._close_old()
        return None

    def drop_idle(self) -> None:
        """Closes those that wait for a request."""
        for connection in list(self._idle):
            connection.close()

    async def connect(self) -> Connection:
        """One that is there, or a new one. Raises AllInUse, TimeoutError, and OSError as `Way.open` does."""
        while True:
            if self._closed:
                raise ConnectionError("the pool is closed")
            connection = self.idle()
            if connection is not None:
                return connection
            if self._free > 0:
                self._free -= 1
            elif (given := await self._turn()) is not None:
                if given.usable:
                    return given
                continue  # it ended on the way
            async with asyncio.timeout(self._connect_s):
                return await self._dial()

    async def _turn(self) -> Connection | None:
        """A connection that was given back, or None: there is room for a new one."""
        turn: _Turn = self._loop.create_future()
        self._waiting.append(turn)
        try:
            async with asyncio.timeout(self._turn_s):
                return await self._given(turn)
        except TimeoutError as error:
            raise AllInUse from error

    async def _given(self, turn: _Turn) -> Connection | None:
        """What the turn brings, which goes to the next one where nobody waits for it any more."""
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.cancelled() or turn.exception() is not None:
                if turn in self._waiting:
                    self._waiting.remove(turn)
            elif (given := turn.result()) is None:
                self._make_room()
            elif given.usable:
                self.release(given)
            raise

    async def _dial(self) -> Connection:
        """A new connection in the room that was made for it."""
        connection = Connection(self, self._loop)
        try:
            await self._way.open(lambda: connection)
            if self._closed:
                raise ConnectionError("the pool is closed")
            if not connection.usable:
                raise ConnectionResetError("the peer hung up")
        except BaseException:
            connection.abort()  # which makes the room again
            raise
        # Not before: uvloop tells no end of a connection whose dial was cancelled.
        self._open[connection] = self._loop.create_future()
        return connection

    def release(self, connection: Connection) -> None:
        if self._way.is_secured:
            self._way.keep_session(connection.transport)
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(connection)
                return
        self._idle[connection] = self._loop.time()
        if self._sweep is None:
            self._sweep = self._loop.call_later(self._keep_alive_s, self._close_old)

    def dropped(self, connection: Connection) -> None:
        self._idle.pop(connection, None)
        self._make_room()

    def gone(self, connection: Connection) -> None:
        if (closed := self._open.pop(connection, None)) is not None:
            closed.set_result(None)

    def _make_room(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1

    def _close_old(self) -> None:
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        now = self._loop.time()
        for connection, since in list(self._idle.items()):  # the oldest first
            if now - since < self._keep_alive_s:
                self._sweep = self._loop.call_at(since + self._keep_alive_s, self._close_old)
                return
            connection.close()

    async def aclose(self) -> None:
        """Ends every connection, also those in use, and every wait. Returns when their sockets are closed."""
        self._closed = True
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_exception(ConnectionError("the pool is closed"))
        gone = list(self._open.values())
        for connection in list(self._open):
            connection.abort()
        if gone:
            await asyncio.wait(gone, timeout=_GONE_S)
