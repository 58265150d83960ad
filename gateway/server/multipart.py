"""The `model` field of a multipart body, found while the body arrives, and written anew where it stands.

Reads boundaries and part headers only (RFC 7578); what the parts hold passes by. Knows no sockets.
"""

import re

from adapters.canonical.errors import InvalidRequest

__all__ = ["ModelField", "boundary_of"]

_MAX_HEADER_BYTES = 16_384
_MAX_NAME_BYTES = 512
_MAX_PARTS = 256
_BOUNDARY = re.compile(r'boundary=(?:"([^"\r\n]{1,70})"|([^\s";,]{1,70}))', re.IGNORECASE)
_IS_MODEL = re.compile(rb'(?im)^content-disposition:[^\r\n]*;[ \t]*name=(?:"model"|model)[ \t]*(?:;|\r|$)')
_HEADERS_END = b"\r\n\r\n"


def boundary_of(content_type: str) -> bytes:
    """Of a multipart content type. Raises InvalidRequest."""
    found = _BOUNDARY.search(content_type)
    if found is None:
        raise InvalidRequest("content-type: a multipart body needs a boundary", param="content-type")
    return (found[1] or found[2]).encode("latin-1", "replace")


class ModelField:
    """Feed it the body, cut anywhere, until `done`. `start` and `stop` are where the value lies in the body."""

    def __init__(self, boundary: bytes) -> None:
        self.value: str | None = None
        self.start = self.stop = 0
        self.done = False
        """The value is whole, or there is none."""
        self._delimiter = b"\r\n--" + boundary
        self._buffer = (
            b"\r\n"  # the first delimiter stands at the beginning of the body, without a line break before it
        )
        self._at = -2  # where the buffer begins in the body
        self._in_headers = False
        self._is_model = False
        self._parts = 0

    def feed(self, data: bytes) -> None:
        """Raises InvalidRequest for a body that is no multipart, or whose fields before the model are endless."""
        self._buffer += data
        while not self.done and (self._read_headers() if self._in_headers else self._read_part()):
            pass

    def end(self) -> None:
        """The body is over."""
        if self.value is None and not self.done:
            raise InvalidRequest("the multipart body ends before its last boundary")

    def _read_part(self) -> bool:
        """Passes the rest of a part by, or takes it. Gives whether there is more to read."""
        end = self._buffer.find(self._delimiter)
        after = end + len(self._delimiter) + 2
        if self._is_model and (end if end >= 0 else len(self._buffer) - len(self._delimiter)) > _MAX_NAME_BYTES:
            raise InvalidRequest("model: the name is too long", param="model")
        if end < 0 or len(self._buffer) < after:
            if not self._is_model:
                keep = len(self._delimiter) + 1
                self._drop(max(0, end if end >= 0 else len(self._buffer) - keep))
            return False
        if self._is_model:
            self._take(end)
            return False
        if self._buffer[after - 2 : after] == b"--":
            self.done = True
            return False
        self._parts += 1
        if self._parts > _MAX_PARTS:
            raise InvalidRequest(f"the multipart body has more than {_MAX_PARTS} parts before its model")
        self._drop(after - 2)  # the line break ends the delimiter and begins the headers
        self._in_headers = True
        return True

    def _read_headers(self) -> bool:
        end = self._buffer.find(_HEADERS_END)
        if (end if end >= 0 else len(self._buffer)) > _MAX_HEADER_BYTES:
            raise InvalidRequest("the headers of a part of the multipart body are too long")
        if end < 0:
            return False
        self._is_model = _IS_MODEL.search(self._buffer[:end]) is not None
        # What ends the headers may already begin the delimiter of an empty part.
        self._drop(end + (len(_HEADERS_END) if self._is_model else len(_HEADERS_END) - 2))
        self._in_headers = False
        return True

    def _take(self, end: int) -> None:
        try:
            self.value = self._buffer[:end].decode()
        except UnicodeDecodeError as error:
            raise InvalidRequest("model: the name is not valid UTF-8", param="model") from error
        self.start, self.stop = self._at, self._at + end
        self.done = True

    def _drop(self, count: int) -> None:
        self._buffer = self._buffer[count:]
        self._at += count
