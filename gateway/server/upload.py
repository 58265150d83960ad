"""A body that is passed on while it arrives, with the model's name in it replaced.

What came before the name (a file that stands first, say) waits on disk, not in memory, and counts among the bytes that
all requests together may hold; the rest is never kept.
"""

import asyncio
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator
from types import TracebackType
from typing import IO, Protocol, Self

import orjson
from aiohttp import hdrs, web

from adapters.canonical.errors import GatewayError
from gateway.server.body import BodyReader
from gateway.server.multipart import ModelField, boundary_of

__all__ = ["Body", "Upload", "WholeBody"]

_IN_MEMORY_BYTES = 1 << 16
_PIECE_BYTES = 1 << 16


class Body(Protocol):
    """What is sent to an upstream, with its own name of the model in it."""

    @property
    def repeatable(self) -> bool:
        """It can be sent once more."""
        ...

    def length(self, model: str) -> int | None:
        """In bytes; None where that is not known before its end."""
        ...

    def pieces(self, model: str) -> AsyncIterator[bytes] | None: ...


class WholeBody:
    """A body in memory, in two parts with the JSON text of the model's name between them; None: it names none."""

    repeatable = True

    def __init__(self, before: bytes, after: bytes | None = None) -> None:
        self._before = before
        self._after = after

    def length(self, model: str) -> int | None:
        return len(self._written(model))

    async def pieces(self, model: str) -> AsyncIterator[bytes]:
        yield self._written(model)

    def _written(self, model: str) -> bytes:
        return self._before if self._after is None else self._before + orjson.dumps(model) + self._after


class Upload:
    """A multipart body. Use it as a context manager: leaving it frees what waits on disk.

    `failure` is why it could not be read to its end, for whoever sees only that sending it broke.
    """

    def __init__(self, request: web.BaseRequest, bodies: BodyReader) -> None:
        self._field = ModelField(boundary_of(request.headers.get(hdrs.CONTENT_TYPE, "")))
        encoded = hdrs.CONTENT_ENCODING in request.headers
        self._size = None if encoded else request.content_length
        self._content = request.content
        self._arriving = bodies.pieces(request)
        self._held = bodies.held
        self._begun: IO[bytes] = tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES)  # noqa: SIM115
        self._kept_bytes = 0
        self._ended = False
        self._spent = False
        self.failure: GatewayError | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held.give(self._kept_bytes)
        self._begun.close()

    async def model(self) -> str | None:
        """The name in it, None where it has none. Waits for no more than that. Raises InvalidRequest, NotReady."""
        field = self._field
        while not field.done or self._content.is_eof():  # what is here already is kept too: it can be sent once more
            piece = await anext(self._arriving, b"")
            if not piece:
                self._ended = True
                field.end()
                break
            if not field.done:
                field.feed(piece)
            self._held.take(len(piece))
            self._kept_bytes += len(piece)
            await self._keep(piece)
        return field.value

    @property
    def repeatable(self) -> bool:
        return not self._spent

    def length(self, model: str) -> int | None:
        """See `Body.length`."""
        if self._size is None or self._field.value is None:
            return self._size
        return self._size + len(model.encode()) - (self._field.stop - self._field.start)

    async def pieces(self, model: str) -> AsyncGenerator[bytes, None]:
        """The body from its beginning: as often as wanted until the part that nobody kept has begun to go out."""
        field = self._field
        if field.value is None:
            spans = [(0, self._kept_bytes)]
        else:
            spans = [(0, field.start), (field.stop, self._kept_bytes)]
        for number, (start, stop) in enumerate(spans):
            if number:
                yield model.encode()
            for at in range(start, stop, _PIECE_BYTES):
                yield await self._kept(at, min(at + _PIECE_BYTES, stop))
        if self._ended:
            return
        self._spent = True
        try:
            async for piece in self._arriving:
                yield piece
        except GatewayError as error:
            self.failure = error
            raise

    async def _keep(self, piece: bytes) -> None:
        if self._kept_bytes <= _IN_MEMORY_BYTES:
            self._begun.write(piece)
        else:
            await asyncio.to_thread(self._begun.write, piece)

    async def _kept(self, start: int, stop: int) -> bytes:
        def read() -> bytes:
            self._begun.seek(start)
            return self._begun.read(stop - start)

        return read() if self._kept_bytes <= _IN_MEMORY_BYTES else await asyncio.to_thread(read)
