"""Ways through a configured proxy: whole requests for servers in the clear, a tunnel (CONNECT) for those with TLS.

Both are opened as an `Origin` is. No message holds the proxy's address, which may have a user and a password in it.
"""

import asyncio
from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import TypeVar, cast

from yarl import URL

from providers.remote.origin import Origin
from providers.remote.tls import ResumingContext, trusting

__all__ = ["Proxy", "ProxyFailed", "Tunnel"]

_MAX_HEAD_BYTES = 16 * 1024
P = TypeVar("P", bound=asyncio.Protocol)


class ProxyFailed(OSError):
    """It could not be reached, or let nothing through."""


class Proxy:
    """`headers` go to it, with each request that is sent through it whole."""

    is_secured = False

    def __init__(self, url: URL, ca_file: str | None) -> None:
        """`ca_file`: the authorities that one with TLS is known to. Raises ValueError for a URL that leads to none."""
        if url.scheme not in ("http", "https") or not url.host:
            raise ValueError("must start with http:// or https:// and name a host")
        tls = trusting(ca_file) if url.scheme == "https" else None
        self._origin = Origin(url.raw_host or "", url.port or 0, tls)
        self.headers: Mapping[str, str] = {}
        if url.user is not None:
            account = f"{url.user}:{url.password or ''}".encode()
            self.headers = {"proxy-authorization": f"Basic {b64encode(account).decode()}"}

    async def open(self, make: Callable[[], P]) -> P:
        """A connection to it. Raises ProxyFailed."""
        try:
            return await self._origin.open(make)
        except OSError as error:
            raise ProxyFailed("the configured proxy can't be reached") from error

    def keep_session(self, transport: asyncio.BaseTransport | None) -> None:
        """Nothing of it is kept."""


class Tunnel:
    """Through a proxy to a host and a port with TLS."""

    is_secured = True

    def __init__(self, proxy: Proxy, host: str, port: int, tls: ResumingContext) -> None:
        self._proxy = proxy
        self._host = host
        self._tls = tls
        place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        lines = [f"CONNECT {place} HTTP/1.1", f"host: {place}", *map(": ".join, proxy.headers.items())]
        self._request = "".join(f"{line}\r\n" for line in (*lines, "")).encode()

    async def open(self, make: Callable[[], P]) -> P:
        """A connection through it. Raises ProxyFailed, and `ssl.SSLError` of TLS behind it."""
        opening = await self._proxy.open(lambda: _Opening(self._request))
        transport = opening.transport
        try:
            await opening.answered
            protocol = make()
            loop = asyncio.get_running_loop()
            secured = await loop.start_tls(transport, protocol, self._tls, server_hostname=self._host)
            if secured is None:
                raise ConnectionResetError("the proxy hung up")
        except BaseException:
            transport.abort()
            raise
        protocol.connection_made(secured)
        return protocol

    def keep_session(self, transport: asyncio.BaseTransport | None) -> None:
        """Lets the next connection take up the TLS session of this one."""
        if transport is not None:
            self._tls.keep_session(self._host, transport)


class _Opening(asyncio.Protocol):
    """`answered` once the proxy has let the tunnel through; it fails with ProxyFailed."""

    transport: asyncio.Transport

    def __init__(self, request: bytes) -> None:
        self._request = request
        self._head = b""
        self.answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._head += data
        status = self._head[9:12]
        if self._head.endswith(b"\r\n\r\n") and self._head.startswith(b"HTTP/1.") and status[:1] == b"2":
            self._end(None)
        elif b"\r\n\r\n" in self._head or len(self._head) > _MAX_HEAD_BYTES:
            self._end(ProxyFailed("the configured proxy refused the connection"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(ProxyFailed("the configured proxy closed the connection"))

    def _end(self, error: ProxyFailed | None) -> None:
        if self.answered.done():
            return
        if error is None:
            self.answered.set_result(None)
        else:
            self.answered.set_exception(error)
            self.answered.exception()  # whoever waits for it gets it as well; who has left does not
