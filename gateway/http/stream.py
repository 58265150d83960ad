"""An answer that is sent piece by piece, as fast as the client takes it."""

from collections.abc import Mapping

from gateway.http.answer import connection_line, has_no_body, render_head
from gateway.http.request import Request

__all__ = ["Stream"]


class Stream:
    """Its head goes out with the first piece.

    With a Content-Length in `headers` the pieces go out as they are; else in chunks, and where the client knows none
    (HTTP/1.0) the connection ends with it.
    """

    __slots__ = ("_chunked", "_head", "_left", "_request", "_silent", "_wire", "closes", "ended")

    def __init__(self, request: Request, *, status: int = 200, headers: Mapping[str, str]) -> None:
        self._request = request
        self._wire = request.wire
        self._silent = has_no_body(request.method, status)
        length = headers.get("Content-Length")
        self._left = int(length) if length is not None and length.isdigit() and not self._silent else None
        is_bare = length is not None or status in (204, 304)
        self._chunked = not is_bare and not self._silent and not request.is_1_0
        self.closes = request.is_1_0 and not is_bare and not self._silent
        self.ended = False
        framing = "" if is_bare or request.is_1_0 else "Transfer-Encoding: chunked\r\n"
        self._head = render_head(status, headers, connection_line(request, self.closes) + framing)

    @property
    def is_full(self) -> bool:
        """The client takes less than was written: wait for `drained` before the next piece."""
        return self._wire.outflow.is_full

    async def drained(self) -> None:
        """Raises ConnectionError when the client is gone."""
        await self._wire.outflow.drained()

    def write(self, piece: bytes) -> None:
        """Raises ConnectionError when the client is gone, and ValueError beyond the length that was told."""
        if self._chunked:
            data = b"%x\r\n%b\r\n" % (len(piece), piece) if piece else b""
        else:
            data = self._counted(piece)
        self._send(data)

    def end(self, piece: bytes = b"") -> None:
        """The last piece. Raises as `write` does; an answer that is too short ends the connection."""
        if self._chunked:
            data = b"%x\r\n%b\r\n0\r\n\r\n" % (len(piece), piece) if piece else b"0\r\n\r\n"
        else:
            data = self._counted(piece)
        self._send(data)
        if self._left:
            self._wire.abort()
        self.ended = True

    def _send(self, data: bytes) -> None:
        """Behind the head, where that is still here."""
        if self._head:
            data, self._head = self._head + data, b""
            self._request.is_answered = True
        if data:
            self._wire.write(data)

    def _counted(self, piece: bytes) -> bytes:
        if self._silent:
            return b""
        if self._left is not None:
            if len(piece) > self._left:
                raise ValueError("the answer is longer than its Content-Length")
            self._left -= len(piece)
        return piece
