"""An upstream's answer whose head has come: its bytes as they arrive, and the limits on silence.

Leaving early is closing: an Answer that is closed or abandoned before its end takes its connection down at once; only
one that was read to its end gives the connection back to the pool. Nothing is drained in the background. Knows no
dialect and no JSON. Every exception that leaves is a GatewayError.
"""

import asyncio
from collections.abc import Mapping
from types import TracebackType
from typing import Self

import aiohttp

from adapters.canonical.errors import BadUpstreamResponse
from providers.base import Limits
from providers.remote.failure import FOREIGN, broken_answer
from providers.remote.pooled_post import PooledAnswer

__all__ = ["MAX_BODY_BYTES", "MAX_ERROR_BYTES", "Answer"]

MAX_BODY_BYTES = 64 * 1024 * 1024
"""Of a whole answer, decompressed."""
MAX_ERROR_BYTES = 64 * 1024
_ERROR_BODY_S = 5.0


class Answer:
    """One answer whose head has come. Read it to its end or close it: use it as a context manager.

    Reading ends at the deadline of the call (if it has one) until `started` is called, and at the gap limit after it;
    time that the reader spends elsewhere is no gap.
    """

    __slots__ = (
        "_content",
        "_due",
        "_failure",
        "_first_deadline",
        "_gap_s",
        "_limits",
        "_loop",
        "_provider",
        "_response",
        "_timer",
        "headers",
        "status",
    )

    def __init__(
        self,
        provider: str,
        response: PooledAnswer | aiohttp.ClientResponse,
        deadline: float | None,
        limits: Limits,
    ) -> None:
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers
        self._provider = provider
        self._response = response
        self._content = response.content
        self._limits = limits
        self._gap_s = limits.gap_s
        self._first_deadline = deadline
        self._loop = asyncio.get_running_loop()
        self._due: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._failure: Exception | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def content_type(self) -> str:
        """Without parameters, in lower case; empty where none was sent."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    async def read(self) -> bytes:
        """What has arrived since the last read, at least one byte; empty at the end of the body."""
        if self._failure is not None:
            raise broken_answer(self._provider, self._failure) from self._failure
        content = self._content
        if not content.is_eof():
            self._due = self._loop.time() + self._gap_s if self._first_deadline is None else self._first_deadline
            if self._timer is None:
                self._timer = self._loop.call_at(self._due, self._check_silence)
        try:
            return await content.readany()
        except FOREIGN as error:
            self._failure = error
            arrived = self._left_in_buffer()
            if arrived:
                return arrived
            raise broken_answer(self._provider, error) from error
        finally:
            self._due = None

    def started(self, gap_s: float | None = None) -> None:
        """From here on silence is measured by the gap limit (or by a shorter one)."""
        self._first_deadline = None
        self._gap_s = self._limits.gap_s if gap_s is None else min(gap_s, self._limits.gap_s)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check_silence(self) -> None:
        """One timer serves the whole stream: it looks at when silence is due, and comes again if that is later."""
        now = self._loop.time()
        if self._due is None:
            self._timer = self._loop.call_at(now + self._gap_s, self._check_silence)
        elif now < self._due:
            self._timer = self._loop.call_at(self._due, self._check_silence)
        else:
            self._content.set_exception(TimeoutError())

    def _left_in_buffer(self) -> bytes:
        """Bytes that came before the connection broke; aiohttp raises its exception ahead of them."""
        self._content.set_exception(None)  # type: ignore[arg-type]
        return self._content.read_nowait()

    async def body(self, limit_bytes: int = MAX_BODY_BYTES) -> bytes:
        """The whole body, before the deadline of the call. Raises BadUpstreamResponse when it is larger."""
        content = self._content
        if content.is_eof() and content.exception() is None and self._failure is None:
            whole = content.read_nowait()  # came with its head, as most bodies do
            if len(whole) <= limit_bytes:
                return whole
            raise self._too_large(limit_bytes)
        pieces: list[bytes] = []
        size = 0
        while piece := await self.read():
            size += len(piece)
            if size > limit_bytes:
                raise self._too_large(limit_bytes)
            pieces.append(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _too_large(self, limit_bytes: int) -> BadUpstreamResponse:
        return BadUpstreamResponse(f"{self._provider}: the answer is larger than {limit_bytes} bytes")

    async def error_body(self) -> bytes:
        """What can be had of an error's body: the status counts, so a cut or slow body is no second failure."""
        pieces: list[bytes] = []
        try:
            async with asyncio.timeout(_ERROR_BODY_S):
                while sum(map(len, pieces)) < MAX_ERROR_BYTES and (piece := await self._content.readany()):
                    pieces.append(piece)
        except FOREIGN:
            pass  # the part that came is still worth reading
        finally:
            self.close()
        return b"".join(pieces)[:MAX_ERROR_BYTES]

    def close(self) -> None:
        """Closes the connection at once unless the body was read to its end. May be called again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._response.close()
