"""Where one provider's server is, and how a connection to it is opened: names, addresses, TLS."""

import asyncio
import socket
from collections.abc import Callable, Sequence
from typing import TypeAlias, TypeVar

from aiohappyeyeballs import AddrInfoType, start_connection

from providers.remote.tls import ResumingContext

__all__ = ["Origin"]

_NAME_LIVES_S = 60.0
_NEXT_ADDRESS_S = 0.25
"""After which the next address is tried beside the one that has not answered (RFC 8305)."""
_Addresses: TypeAlias = Sequence[AddrInfoType]
P = TypeVar("P", bound=asyncio.Protocol)


class Origin:
    """A host and a port; `tls` None: in the clear."""

    def __init__(self, host: str, port: int, tls: ResumingContext | None) -> None:
        self._host = host
        self._port = port
        self._tls = tls
        self.is_secured = tls is not None
        self._addresses: _Addresses = ()
        self._until = 0.0
        self._resolving = asyncio.Lock()

    async def open(self, make: Callable[[], P]) -> P:
        """A new connection. Raises OSError: `socket.gaierror` of the name, `ssl.SSLError` of TLS. Has no time limit."""
        addresses = await self._resolve()
        self._addresses = [*addresses[1:], addresses[0]]  # each has its turn
        try:
            opened = await start_connection(addresses, happy_eyeballs_delay=_NEXT_ADDRESS_S, interleave=1)
        except OSError:
            self._until = 0.0  # it may have moved
            raise
        try:
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            host = self._host if self._tls is not None else None
            loop = asyncio.get_running_loop()
            _, protocol = await loop.create_connection(make, sock=opened, ssl=self._tls, server_hostname=host)
        except BaseException:
            opened.close()
            raise
        return protocol

    def keep_session(self, transport: asyncio.BaseTransport | None) -> None:
        """Lets the next connection take up the TLS session of this one."""
        if self._tls is not None and transport is not None:
            self._tls.keep_session(self._host, transport)

    async def _resolve(self) -> _Addresses:
        async with self._resolving:
            loop = asyncio.get_running_loop()
            if loop.time() >= self._until:
                self._addresses = await loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
                self._until = loop.time() + _NAME_LIVES_S
            return self._addresses
