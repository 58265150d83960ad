"""A whole answer in one write: status line, headers and body joined here and handed to the transport.

What aiohttp's general Response does in several steps (it may stream, compress, set cookies) costs a twentieth of a
request's CPU. Whatever is not plain HTTP/1.1 with keep-alive still goes its way.
"""

from http import HTTPStatus

from aiohttp import HttpVersion11, hdrs, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.helpers import rfc822_formatted_time

__all__ = ["WholeAnswer"]

_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n" for status in HTTPStatus}
_LINES[499] = "HTTP/1.1 499 Client Closed Request\r\n"
_DRAIN_FROM = 1 << 16
"""A body of this size waits until the client has taken most of it; smaller ones lie in the socket's buffer."""


class WholeAnswer(web.Response):
    """`headers` hold a content type; names and values must be free of line breaks (`answer_headers` sees to that)."""

    def __init__(self, *, status: int = 200, body: bytes, headers: dict[str, str]) -> None:
        super().__init__(status=status, body=body, headers=headers)
        self._plain_headers = headers
        self._content = body

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        """Sends everything. Raises ConnectionError when the client is gone."""
        if (
            request.version != HttpVersion11
            or not request.keep_alive
            or self._keep_alive is False
            or (request.method == hdrs.METH_HEAD)
        ):
            return await super().prepare(request)
        transport = request.transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError("the client is gone")
        body = self._content
        lines = [_LINES[self.status]]
        lines += [f"{name}: {value}\r\n" for name, value in self._plain_headers.items()]
        lines.append(f"Content-Length: {len(body)}\r\nDate: {rfc822_formatted_time()}\r\n\r\n")
        transport.write("".join(lines).encode() + body)
        self._keep_alive = True
        self._eof_sent = True
        if len(body) >= _DRAIN_FROM:
            await request.writer.drain()
        return None
