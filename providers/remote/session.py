"""Calls by aiohttp's session: what goes through a proxy, and bodies that are sent while they arrive. Not the hot path.

A `SessionAnswer` is read as one of ours (`connection.WireAnswer`), so that what comes after the head is the same.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Mapping
from io import BytesIO

import aiohttp
from yarl import URL

from providers.base import Limits
from providers.remote.tls import ResumingContext

__all__ = ["Session", "SessionAnswer"]

_KEEP_ALIVE_S = 30.0
_READ_BUFFER_BYTES = 64 * 1024  # two of these wait in memory for a slow reader, then the socket is paused
_ONE_WRITE_BYTES = 1 << 20


class SessionAnswer:
    """An answer whose head has come."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers
        self.ended = False
        self.failure: Exception | None = None
        self._response = response
        self._content = response.content
        self._held = b""

    @property
    def finished(self) -> bool:
        return self.ended and not self._held and self.failure is None

    def take(self) -> bytes:
        data, self._held = self._held, b""
        return data

    async def arrive(self) -> None:
        if self._held or self.ended:
            return
        try:
            self._held = await self._content.readany()
            self.ended = not self._held
        except (aiohttp.ClientError, OSError, RuntimeError) as error:  # RuntimeError: its connection was closed
            self.ended = True
            self.failure = error
            self._content.set_exception(None)  # type: ignore[arg-type]  # it stands before what came ahead of it
            self._held = self._content.read_nowait()

    def fail(self, error: Exception) -> None:
        self._content.set_exception(error)

    def close(self) -> None:
        self._response.close()


class Session:
    """`proxy` None: each goes straight. Opens no socket before the first call."""

    def __init__(self, limits: Limits, *, max_connections: int, tls: ResumingContext | None, proxy: URL | None) -> None:
        self._limits = limits
        self._max_connections = max_connections
        self._tls = tls
        self._proxy = proxy
        self._session: aiohttp.ClientSession | None = None

    async def call(
        self, method: str, url: URL, headers: Mapping[str, str], body: bytes | AsyncIterable[bytes] | None
    ) -> SessionAnswer:
        """The answer, as soon as its head came. Raises what aiohttp does."""
        data: bytes | BytesIO | AsyncIterable[bytes] | None = body
        if isinstance(body, bytes):
            if len(body) > _ONE_WRITE_BYTES:
                data = BytesIO(body)  # in pieces, as the peer reads
        elif body is not None:
            data = _hearing(body)
        session = self._open()
        response = await session.request(
            method, url, data=data, headers=headers, proxy=self._proxy, allow_redirects=False
        )
        return SessionAnswer(response)

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=self._max_connections,
                    keepalive_timeout=_KEEP_ALIVE_S,
                    ttl_dns_cache=60,
                    ssl=self._tls or True,
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None, connect=self._limits.connect_s),
                read_bufsize=_READ_BUFFER_BYTES,
                trust_env=False,
            )
        return self._session

    async def aclose(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()


async def _hearing(body: AsyncIterable[bytes]) -> AsyncGenerator[bytes, None]:
    """The same pieces. Between them is read what the peer says: one that refuses the body and hangs up would else meet
    the next piece, and a socket that cannot be written is closed with the refusal unread."""
    async for piece in body:
        yield piece
        await asyncio.sleep(0)
