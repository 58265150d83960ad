"""A body that is passed on while it arrives, with the model's name in it replaced.

What came before the name (a file that stands first, say) waits on disk, not in memory, and counts among the bytes that
all requests together may hold; the rest is never kept. Where guardrails look at its texts, all of it waits there.
"""

import asyncio
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import IO, Protocol, Self

import orjson

from adapters.canonical.errors import GatewayError, InvalidRequest
from gateway.guardrails.ability_texts import TEXT_FIELDS, json_texts, with_json_texts
from gateway.http.request import Request
from gateway.server.body import BodyReader
from gateway.server.forwarding.multipart import FieldReader, boundary_of

__all__ = ["Body", "TextCheck", "Upload", "WholeBody"]

_IN_MEMORY_BYTES = 1 << 16
_PIECE_BYTES = 1 << 16
_MODEL = "model"
_MODEL_BYTES = {_MODEL: 512}
_TEXT_BYTES = {**_MODEL_BYTES, **dict.fromkeys(TEXT_FIELDS, 1 << 20)}
TextCheck = Callable[[list[str]], Awaitable[list[str]]]
"""Gives the texts as they may be sent, as many as it got. Raises ContentRefused."""


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

    async def check(self, look: TextCheck) -> None:
        """Puts what `look` makes of its texts in their place."""
        ...


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

    async def check(self, look: TextCheck) -> None:
        """See `Body.check`."""
        raw = self._written("")
        texts = json_texts(raw)
        if texts and (changed := await look(texts)) != texts:
            raw = with_json_texts(raw, iter(changed))
            if self._after is None:
                self._before = raw
            else:
                self._after = raw[len(self._before) + len(b'""') :]

    def _written(self, model: str) -> bytes:
        return self._before if self._after is None else self._before + orjson.dumps(model) + self._after


class Upload:
    """A multipart body. Use it as a context manager: leaving it frees what waits on disk.

    `has_texts`: its texts will be checked. `failure` is why it could not be read to its end, for whoever sees only that
    sending it broke.
    """

    def __init__(self, request: Request, bodies: BodyReader, *, has_texts: bool = False) -> None:
        boundary = boundary_of(request.headers.get("content-type", ""))
        self._fields = FieldReader(boundary, _TEXT_BYTES if has_texts else _MODEL_BYTES)
        self._edits: list[tuple[int, int, bytes | None]] = []  # from, to, and what stands there; None: the model
        encoded = "content-encoding" in request.headers
        self._size = None if encoded else request.content_length
        self._content = request.body
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
        fields = self._fields
        # What is here already is kept too: it can be sent once more.
        while not (fields.done or self._models()) or self._content.is_here:
            if not await self._take():
                if not self._models():
                    fields.end()
                break
        for field in fields.found:
            if field.name == _MODEL:
                self._edits = [(field.start, field.stop, None)]
                return field.value
        return None

    async def check(self, look: TextCheck) -> None:
        """See `Body.check`. Waits for all of it."""
        while not self._ended:
            await self._take()
        self._fields.end()
        fields = [field for field in self._fields.found if field.name != _MODEL]
        before = [field.value for field in fields]
        after = await look(before) if before else before
        for field, text in zip(fields, after, strict=True):
            if text != field.value:
                self._edits.append((field.start, field.stop, text.encode()))
        self._edits.sort()

    async def _take(self) -> bool:
        """Keeps the next piece. False: there is none."""
        piece = await anext(self._arriving, b"")
        if not piece:
            self._ended = True
            return False
        self._read(piece)
        self._held.take(len(piece))
        self._kept_bytes += len(piece)
        await self._keep(piece)
        return True

    def _read(self, piece: bytes) -> None:
        self._fields.feed(piece)
        if self._models() > 1:  # the upstream might take the other one
            raise InvalidRequest("model: this field stands twice", param=_MODEL)

    def _models(self) -> int:
        return sum(field.name == _MODEL for field in self._fields.found)

    @property
    def repeatable(self) -> bool:
        return not self._spent

    def length(self, model: str) -> int | None:
        """See `Body.length`."""
        size = self._kept_bytes if self._ended else self._size
        if size is None:
            return None
        return size + sum(len(_written(new, model)) - (stop - start) for start, stop, new in self._edits)

    async def pieces(self, model: str) -> AsyncGenerator[bytes, None]:
        """The body from its beginning: as often as wanted until the part that nobody kept has begun to go out."""
        begin = 0
        for start, stop, new in (*self._edits, (self._kept_bytes, self._kept_bytes, b"")):
            for at in range(begin, start, _PIECE_BYTES):
                yield await self._kept(at, min(at + _PIECE_BYTES, start))
            if written := _written(new, model):
                yield written
            begin = stop
        if self._ended:
            return
        self._spent = True
        try:
            async for piece in self._arriving:
                if self._models():
                    self._read(piece)
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


def _written(new: bytes | None, model: str) -> bytes:
    return model.encode() if new is None else new
