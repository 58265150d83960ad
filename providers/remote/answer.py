"""An upstream's answer whose head has come: its bytes as they arrive, and the limits on silence.

Leaving early is closing: an Answer that is closed or abandoned before its end takes its connection down at once; only
one that was read to its end gives the connection back to the pool. Nothing is drained in the background. Knows no
dialect and no JSON. Every exception that leaves is a GatewayError.
"""

import asyncio
from types import TracebackType
from typing import Self

from adapters.canonical.errors import BadUpstreamResponse
from providers.base import Limits
from providers.remote.failure import broken_answer
from providers.remote.wire_answer import WireAnswer

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
        "_due",
        "_first_deadline",
        "_gap_s",
        "_limits",
        "_loop",
        "_provider",
        "_source",
        "_timer",
        "headers",
        "status",
    )

    def __init__(self, provider: str, source: WireAnswer, deadline: float | None, limits: Limits) -> None:
        self.status = source.status
        self.headers = source.headers
        self._provider = provider
        self._source = source
        self._limits = limits
        self._gap_s = limits.gap_s
        self._first_deadline = deadline
        self._loop = source.loop
        self._due: float | None = None
        self._timer: asyncio.TimerHandle | None = None

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
        source = self._source
        while not (data := source.take()):
            if source.ended:
                if source.failure is not None:
                    raise broken_answer(self._provider, source.failure) from source.failure
                break
            self._due = self._loop.time() + self._gap_s if self._first_deadline is None else self._first_deadline
            if self._timer is None:
                self._timer = self._loop.call_at(self._due, self._check_silence)
            try:
                await source.arrive()
            finally:
                self._due = None
        return data

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
            self._source.fail(TimeoutError())

    async def body(self, limit_bytes: int = MAX_BODY_BYTES) -> bytes:
        """The whole body, before the deadline of the call. Raises BadUpstreamResponse when it is larger."""
        whole = self._source.take()
        if self._source.finished:  # it came with its head, as most bodies do
            if len(whole) > limit_bytes:
                raise self._too_large(limit_bytes)
            return whole
        pieces = [whole]
        size = len(whole)
        while piece := await self.read():
            size += len(piece)
            if size > limit_bytes:
                raise self._too_large(limit_bytes)
            pieces.append(piece)
        return b"".join(pieces)

    def _too_large(self, limit_bytes: int) -> BadUpstreamResponse:
        return BadUpstreamResponse(f"{self._provider}: the answer is larger than {limit_bytes} bytes")

    async def error_body(self) -> bytes:
        """What can be had of an error's body: the status counts, so a cut or slow body is no second failure."""
        source = self._source
        pieces = [source.take()]
        try:
            async with asyncio.timeout(_ERROR_BODY_S):
                while not source.finished and sum(map(len, pieces)) < MAX_ERROR_BYTES:
                    await source.arrive()
                    pieces.append(source.take())
                    if not pieces[-1] and source.ended:
                        break
        except TimeoutError:
            pass  # the part that came is still worth reading
        finally:
            self.close()
        return b"".join(pieces)[:MAX_ERROR_BYTES]

    def close(self) -> None:
        """Closes the connection at once unless the body was read to its end. May be called again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._source.close()
