"""Bodies in gzip or deflate, unpacked in steps of a bounded size: what one holds never waits whole in memory."""

import zlib

__all__ = ["Inflater", "Undecodable", "inflater_for"]

_STEP_BYTES = 256 * 1024
_GZIP_WINDOW = 31
_GZIP_MAGIC = b"\x1f\x8b"


class Undecodable(ValueError):
    """The body is not packed as its head says, or in a way that nobody here unpacks."""


class Inflater:
    """`pending`: a step gave all that it may, and there may be more of it."""

    __slots__ = ("_began", "_deflate", "_gzip", "_tail", "pending")

    def __init__(self, *, gzip: bool) -> None:
        self._gzip = gzip
        self._deflate = zlib.decompressobj(_GZIP_WINDOW) if gzip else None
        self._tail = b""
        self._began = False
        self.pending = False

    def feed(self, data: bytes) -> bytes:
        """What these bytes give, one step of it at most. Raises Undecodable."""
        data = self._tail + data
        self._began = self._began or bool(data)
        if self.complete and self._deflate is not None and len(self._deflate.unused_data) >= len(_GZIP_MAGIC):
            return b""  # what follows the end is no part of it
        if self._deflate is None:
            if not data:
                return b""
            # Some servers send deflate without the wrapper that its name stands for (RFC 9110, 8.4.1.2).
            self._deflate = zlib.decompressobj(zlib.MAX_WBITS if data[0] & 0xF == 8 else -zlib.MAX_WBITS)
        try:
            found = self._deflate.decompress(data, _STEP_BYTES)
        except zlib.error as error:
            raise Undecodable("broken compression") from error
        self._tail = self._deflate.unconsumed_tail
        if self._deflate.eof and self._gzip and self._deflate.unused_data.startswith(_GZIP_MAGIC):
            self._tail = self._deflate.unused_data  # another member
            self._deflate = zlib.decompressobj(_GZIP_WINDOW)
        self.pending = bool(self._tail) or len(found) == _STEP_BYTES
        return found

    @property
    def complete(self) -> bool:
        """Whether this may be the end, and everything was given."""
        return not self._began or (not self.pending and self._deflate is not None and self._deflate.eof)

    def end(self) -> None:
        """Nothing more comes. Raises Undecodable where more had to."""
        if not self.complete:
            raise Undecodable("the compressed body is cut")


class _Unknown(Inflater):
    __slots__ = ()

    def feed(self, data: bytes) -> bytes:
        raise Undecodable("compressed in a way that was not asked for")


def inflater_for(encoding: str) -> Inflater | None:
    """For the value of `content-encoding`; None where nothing needs to be done, or is known of it."""
    match encoding.strip().lower():
        case "gzip" | "x-gzip":
            return Inflater(gzip=True)
        case "deflate":
            return Inflater(gzip=False)
        case "br" | "zstd" | "compress":
            return _Unknown(gzip=False)
        case _:
            return None
