"""Text fields of a multipart body, found while the body arrives.

Reads boundaries and part headers (RFC 7578), and the values of the fields that it is asked for; what the other parts
hold passes by. Knows no sockets.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from adapters.canonical.errors import InvalidRequest

__all__ = ["Field", "FieldReader", "boundary_of"]

_MAX_HEADER_BYTES = 16_384
_MAX_PARTS = 256
_BOUNDARY = re.compile(r'boundary=(?:"([^"\r\n]{1,70})"|([^\s";,]{1,70}))', re.IGNORECASE)
_DISPOSITION = re.compile(rb"(?im)^content-disposition:([^\r\n]*)")
_PARAMETER = re.compile(rb';[ \t]*([^\s;="]+)[ \t]*=[ \t]*("(?:[^"\\]|\\.)*"|[^\s;"]*)')
_HEADERS_END = b"\r\n\r\n"


def boundary_of(content_type: str) -> bytes:
    """Of a multipart content type. Raises InvalidRequest."""
    found = _BOUNDARY.search(content_type)
    if found is None:
        raise InvalidRequest.at("content-type", "a multipart body needs a boundary")
    return (found[1] or found[2]).encode("latin-1", "replace")


@dataclass(frozen=True, slots=True)
class Field:
    """`start` and `stop` are where the value lies in the body."""

    name: str
    value: str
    start: int
    stop: int


class FieldReader:
    """Feed it the body, cut anywhere, until `done`. `sizes` are the fields that are read, and their most bytes."""

    def __init__(self, boundary: bytes, sizes: Mapping[str, int]) -> None:
        self.found: list[Field] = []
        self.done = False
        """The last boundary came."""
        self._sizes = sizes
        self._delimiter = b"\r\n--" + boundary
        self._buffer = (
            b"\r\n"  # the first delimiter stands at the beginning of the body, without a line break before it
        )
        self._at = -2  # where the buffer begins in the body
        self._in_headers = False
        self._name: str | None = None  # of the field that is being read; None: the part passes by
        self._parts = 0

    def feed(self, data: bytes) -> None:
        """Raises InvalidRequest for a body that is no multipart, and for fields that are too long or no text."""
        if self.done:
            return
        self._buffer += data
        while self._read_headers() if self._in_headers else self._read_part():
            pass

    def end(self) -> None:
        """The body is over. Raises InvalidRequest where it is not whole."""
        if not self.done:
            raise InvalidRequest("the multipart body ends before its last boundary")

    def _read_part(self) -> bool:
        """Passes the rest of a part by, or takes it. Gives whether there is more to read."""
        end = self._buffer.find(self._delimiter)
        after = end + len(self._delimiter) + 2
        name = self._name
        if name is not None:
            length = end if end >= 0 else len(self._buffer) - len(self._delimiter)
            if length > self._sizes[name]:
                raise InvalidRequest.at(name, f"longer than {self._sizes[name]} bytes")
        if end < 0 or len(self._buffer) < after:
            if name is None:
                keep = len(self._delimiter) + 1
                self._drop(max(0, end if end >= 0 else len(self._buffer) - keep))
            return False
        if name is not None:
            self._take(name, end)
        if self._buffer[after - 2 : after] == b"--":
            self.done = True
            self._buffer = b""
            return False
        self._parts += 1
        if self._parts > _MAX_PARTS:
            raise InvalidRequest(f"the multipart body has more than {_MAX_PARTS} parts")
        self._drop(after - 2)  # the line break ends the delimiter and begins the headers
        self._in_headers = True
        return True

    def _read_headers(self) -> bool:
        end = self._buffer.find(_HEADERS_END)
        if (end if end >= 0 else len(self._buffer)) > _MAX_HEADER_BYTES:
            raise InvalidRequest("the headers of a part of the multipart body are too long")
        if end < 0:
            return False
        name = _name_in(self._buffer[:end])
        self._name = name if name in self._sizes else None
        # What ends the headers may already begin the delimiter of an empty part.
        self._drop(end + (len(_HEADERS_END) if self._name is not None else len(_HEADERS_END) - 2))
        self._in_headers = False
        return True

    def _take(self, name: str, end: int) -> None:
        try:
            value = self._buffer[:end].decode()
        except UnicodeDecodeError as error:
            raise InvalidRequest.at(name, "not valid UTF-8") from error
        self.found.append(Field(name, value, self._at, self._at + end))
        self._name = None

    def _drop(self, count: int) -> None:
        self._buffer = self._buffer[count:]
        self._at += count


def _name_in(headers: bytes) -> str | None:
    """The field that a part is for. Raises InvalidRequest where readers might differ about it."""
    parameters = [each for line in _DISPOSITION.findall(headers) for each in _PARAMETER.findall(line)]
    names = [(key, value) for key, value in parameters if key.lower() in (b"name", b"name*")]
    if len(names) > 1 or any(key.endswith(b"*") or b"\\" in value for key, value in names):
        raise InvalidRequest("the multipart body has a part whose name is not plain")
    return names[0][1].strip(b'"').decode("latin-1") if names else None
