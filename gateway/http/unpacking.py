"""Bodies that were sent packed: gzip, deflate, and br or zstd where their packages are installed. In bounded steps."""

from aiohttp.compression_utils import HAS_BROTLI, HAS_ZSTD, BrotliDecompressor, ZLibDecompressor, ZSTDDecompressor

__all__ = ["CODINGS", "Unpacker"]

_STEP = 1 << 18
"""The most bytes that one step gives."""
_DEFLATE = 8
"""What the low half of the first byte of a zlib stream says; without it the stream is bare (RFC 1950, 1951)."""
CODINGS = frozenset(("gzip", "deflate", "br", "zstd"))


class Unpacker:
    """For one of `CODINGS`. Raises ValueError where the package of this coding is missing."""

    __slots__ = ("_any", "_coding", "_unpacks")

    def __init__(self, coding: str) -> None:
        self._unpacks: BrotliDecompressor | ZLibDecompressor | ZSTDDecompressor
        self._coding = coding
        self._any = False
        if coding == "br":
            if not HAS_BROTLI:
                raise ValueError("br needs the package Brotli")
            self._unpacks = BrotliDecompressor()
        elif coding == "zstd":
            if not HAS_ZSTD:
                raise ValueError("zstd needs the package backports.zstd")
            self._unpacks = ZSTDDecompressor()
        else:
            self._unpacks = ZLibDecompressor(encoding=coding)

    @property
    def has_more(self) -> bool:
        """Another step may give more without new bytes."""
        return self._any and self._unpacks.data_available

    def step(self, packed: bytes) -> bytes:
        """The next bytes. Raises what the coding's library raises for what it cannot read."""
        if not self._any and packed:
            self._any = True
            if self._coding == "deflate" and packed[0] & 0xF != _DEFLATE:
                self._unpacks = ZLibDecompressor(encoding=self._coding, suppress_deflate_header=True)
        return self._unpacks.decompress_sync(packed, max_length=_STEP)

    def end(self) -> None:
        """After the last step. Raises ValueError for a stream that is cut short."""
        unpacks = self._unpacks
        if self._any and self._coding == "deflate" and isinstance(unpacks, ZLibDecompressor) and not unpacks.eof:
            raise ValueError("the stream is cut short")
