"""A whole answer, and the bytes of heads of answers."""

import time
from collections.abc import Mapping
from email.utils import formatdate
from http import HTTPStatus
from typing import Protocol

from gateway.http.request import Request

__all__ = ["CLOSES", "Answer", "Reply", "connection_line", "has_no_body", "render_answer", "render_head"]

CLOSES = "Connection: close\r\n"

_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}" for status in HTTPStatus}
_LINES[499] = "HTTP/1.1 499 Client Closed Request"
_NONE: Mapping[str, str] = {}
_line_of = ": ".join
_END = "\r\n"
_date = (0, "")
"""The second that it is now, and the header of it."""


class Reply(Protocol):
    """What a request is answered with."""

    closes: bool
    """The connection ends with it. May be set at any time; only an answer that is yet to be sent says it."""

    @property
    def ended(self) -> bool:
        """All of it was sent."""
        ...


class Answer:
    """`headers` go out as they are, and Content-Length and Date beside them."""

    __slots__ = ("body", "closes", "headers", "status")
    ended = False

    def __init__(self, *, status: int = 200, body: bytes = b"", headers: Mapping[str, str] = _NONE) -> None:
        self.status = status
        self.body = body
        self.headers = headers
        self.closes = False


def has_no_body(method: str, status: int) -> bool:
    return status in (204, 304) or method == "HEAD"


def render_answer(answer: Answer, method: str, connection: str) -> bytes:
    """Head and body; `connection` as in `render_head`. Raises ValueError for a header with a line break in it."""
    status, body = answer.status, answer.body
    if method != "HEAD" and status not in (204, 304):
        return render_head(status, answer.headers, f"{connection}Content-Length: {len(body)}\r\n") + body
    length = "" if status in (204, 304) else f"Content-Length: {len(body)}\r\n"
    return render_head(status, answer.headers, connection + length)


def connection_line(request: Request, closes: bool) -> str:
    """What an answer says about the connection, where that is not what the client takes for granted."""
    if closes or not request.keeps_alive:
        return CLOSES
    return "Connection: keep-alive\r\n" if request.is_1_0 else ""


def render_head(status: int, headers: Mapping[str, str], framing: str) -> bytes:
    """`framing` are the lines that tell where the answer ends. Raises ValueError for a header with a line break."""
    global _date
    now = int(time.time())
    if now != _date[0]:
        _date = (now, f"Date: {formatdate(now, usegmt=True)}\r\n\r\n")
    lines = [_LINES.get(status) or f"HTTP/1.1 {status} ", *map(_line_of, headers.items())]
    text = "".join(lines)
    if "\n" in text or "\r" in text:
        raise ValueError("a header of an answer has a line break in it")
    return f"{_END.join(lines)}{_END}{framing}{_date[1]}".encode("utf-8", "surrogateescape")
