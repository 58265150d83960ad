"""A protocol factory for `loop.create_server` and its kin: knows its connections, and ends them in order."""

import asyncio
import ssl
import sys
from collections.abc import Mapping
from socket import AF_INET, AF_INET6, socket
from typing import Any

from gateway.http.connection import Connection, Serves
from providers.turn_end import TurnEnd

__all__ = ["IDLE_S", "Connections"]

IDLE_S = 75.0
_HEAD_S = 15.0
_BACKLOG = 1024
_MOST = 100_000
_OF_A_FILE: Mapping[str, Any] = {"cleanup_socket": False} if sys.version_info >= (3, 13) else {}
"""Whoever bound it takes the file away."""


class Connections:
    """A client that leaves cancels its request. Satisfies `gateway.http.connection.Host`."""

    def __init__(self, service: Serves, *, head_s: float = _HEAD_S, idle_s: float = IDLE_S, most: int = _MOST) -> None:
        """`most` are open at a time; those beyond them are closed as they come."""
        self.service = service
        self._most = most
        self.head_s = head_s
        self.idle_s = idle_s
        self.connections: set[Connection] = set()
        """Those that are open."""
        self._none_left: asyncio.Event | None = None
        self.at_turn_end = TurnEnd().call

    def __call__(self) -> Connection:
        return Connection(self)

    async def listen(self, listening: socket, tls: ssl.SSLContext | None = None) -> asyncio.Server:
        """Takes connections of this socket. Each has `head_s` for its handshake, and again for its first head."""
        loop = asyncio.get_running_loop()
        handshake_s = None if tls is None else self.head_s
        if listening.family in (AF_INET, AF_INET6):
            return await loop.create_server(
                self, sock=listening, backlog=_BACKLOG, ssl=tls, ssl_handshake_timeout=handshake_s
            )
        return await loop.create_unix_server(
            self, sock=listening, backlog=_BACKLOG, ssl=tls, ssl_handshake_timeout=handshake_s, **_OF_A_FILE
        )

    def opened(self, connection: Connection) -> None:
        if len(self.connections) >= self._most:
            connection.abort()
            return
        self.connections.add(connection)

    def closed(self, connection: Connection) -> None:
        self.connections.discard(connection)
        if self._none_left is not None and not self.connections:
            self._none_left.set()

    def end_idle(self) -> None:
        """Closes those that wait for another request, so that their clients send it to another server."""
        for connection in list(self.connections):
            connection.end_if_idle()

    async def shutdown(self, seconds: float) -> None:
        """Closes idle connections, and the others after their answers, at most so long; then the rest at once."""
        for connection in list(self.connections):
            connection.stop()
        if not self.connections:
            return
        self._none_left = asyncio.Event()
        try:
            async with asyncio.timeout(seconds):
                await self._none_left.wait()
        except TimeoutError:
            left = list(self.connections)
            tasks = [connection.task for connection in left if connection.task is not None]
            for connection in left:
                connection.abort()
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks, timeout=seconds)
