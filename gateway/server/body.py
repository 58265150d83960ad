"""Request bodies: type, size and pace are checked here, before anything is parsed.

The size is decided from Content-Length where there is one, and while reading (chunked, or inflated from gzip). All
bodies that are held at one time are bounded together.
"""

import asyncio
from collections.abc import AsyncGenerator
from types import TracebackType

from adapters.canonical.errors import BodyTooLarge, InvalidRequest, NotReady, WrongMediaType
from gateway.http.body import CODINGS, BrokenBody
from gateway.http.request import Request

__all__ = ["BodyReader", "HeldBytes"]

_IDLE_S = 30.0
"""The longest silence inside a body."""
_TOTAL_S = 600.0
_PACKINGS = CODINGS | {"identity"}


class HeldBytes:
    """How many bytes of request bodies are in memory, against a limit."""

    __slots__ = ("_held", "_limit")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held = 0

    @property
    def held(self) -> int:
        return self._held

    def take(self, size: int) -> None:
        """Raises NotReady when the limit would be passed."""
        if self._held + size > self._limit:
            raise NotReady(
                "too many bytes of requests are in flight, try again soon", code="overloaded", retry_after_s=1
            )
        self._held += size

    def give(self, size: int) -> None:
        self._held -= size


class BodyReader:
    """Reads JSON bodies of at most `max_bytes`. What it returns was taken from `held`: give it back when done.

    `any_type`: also those that do not say that they are JSON, as curl sends them by itself.
    """

    def __init__(self, max_bytes: int, held: HeldBytes, *, any_type: bool = False) -> None:
        self._max_bytes = max_bytes
        self._any_type = any_type
        self.held = held

    async def read(self, request: Request) -> bytes:
        """Raises WrongMediaType, BodyTooLarge, NotReady, or InvalidRequest for a body that is broken or too slow."""
        if not self._any_type:
            _check_type(request.headers.get("content-type", ""))
        self._check_head(request)
        if request.body.is_here:  # it came with the headers, as small ones do
            body = request.body.take()
            if len(body) > self._max_bytes:
                raise self._too_large()
            self.held.take(len(body))
            return body
        held = 0
        pieces: list[bytes] = []
        try:
            async for piece in self._arriving(request):
                self.held.take(len(piece))
                held += len(piece)
                pieces.append(piece)
        except BaseException:
            self.held.give(held)
            raise
        return b"".join(pieces)

    async def pieces(self, request: Request) -> AsyncGenerator[bytes, None]:
        """A body of any type as it arrives, which nobody holds. Raises what `read` raises but for types."""
        self._check_head(request)
        async for piece in self._arriving(request):
            yield piece

    def _check_head(self, request: Request) -> None:
        headers = request.headers
        length = request.content_length
        if length is not None and length > self._max_bytes:
            raise self._too_large()
        packing = headers.get("content-encoding")
        if packing is not None and packing.lower() not in _PACKINGS:
            raise WrongMediaType("Content-Encoding: expected gzip or deflate, or none")
        expected = headers.get("expect")
        if expected is not None:
            if expected.lower() != "100-continue":
                raise InvalidRequest("Expect: only 100-continue is known")
            request.say_continue()

    async def _arriving(self, request: Request) -> AsyncGenerator[bytes, None]:
        size = 0
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _TOTAL_S
        is_packed = "content-encoding" in request.headers
        while True:
            with _READABLE:
                async with asyncio.timeout_at(min(deadline, loop.time() + _IDLE_S)):
                    piece = await request.body.read()
            if not piece:
                return
            size += len(piece)
            if size > self._max_bytes:
                raise self._too_large()
            yield piece
            if is_packed:
                await asyncio.sleep(0)  # what is unpacked at once is there at once: others have their turn in between

    def _too_large(self) -> BodyTooLarge:
        return BodyTooLarge(f"the body is larger than the limit of {self._max_bytes} bytes (server.max_body_mb)")


class _Readable:
    """Around a read of a body: what may go wrong is the client's error. contextlib's way costs 2 us a read more."""

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, BrokenBody):
            raise InvalidRequest("the body is broken: it does not match its encoding or its length") from error
        if isinstance(error, TimeoutError):
            raise InvalidRequest("the body did not arrive in time", code="body_timeout") from error


_READABLE = _Readable()


def _check_type(content_type: str) -> None:
    if content_type == "application/json":
        return
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type != "application/json" and not (
        media_type.startswith("application/") and media_type.endswith("+json")
    ):
        told = "none" if not media_type else media_type[:100]
        raise WrongMediaType(f"expected the content type application/json, got {told}")
