"""The bytes of a connection to requests, by llhttp. What is no request, or could be read in two ways, is refused.

llhttp itself refuses (version 9, each is in the tests): Content-Length beside Transfer-Encoding, or twice; lengths and
chunk sizes that are no plain numbers; folded lines; line breaks that are not CRLF; spaces before a colon; names that
are no tokens; control characters. The rest of the rules are here.
"""

from collections.abc import Callable

from httptools import HttpParserCallbackError, HttpParserError, HttpParserUpgrade, HttpRequestParser

from adapters.canonical.errors import GatewayError, HeadTooLarge, InvalidRequest, TargetTooLong
from gateway.http.body import CODINGS, Body, BrokenBody
from gateway.http.request import Request, Wire

__all__ = ["RequestReader"]

_MAX_TARGET = 8190
_MAX_FIELD = 16_384
_MAX_HEADERS = 100
_MAX_HEAD = 65_536
_MAX_DIGITS = 20
"""Of a length: no number of 64 bits has more."""
_ONCE = frozenset(("host", "authorization", "content-type", "content-encoding", "transfer-encoding", "expect"))
"""Headers of which several would mean that someone on the way may have read another one."""
_NAMES = {
    spelled.encode(): name
    for name in (
        *("host", "user-agent", "accept", "accept-encoding", "accept-language", "connection", "content-type"),
        *("content-length", "transfer-encoding", "authorization", "x-api-key", "api-key", "x-goog-api-key"),
        *("x-request-id", "traceparent", "tracestate", "origin", "anthropic-version", "anthropic-beta"),
        *("openai-organization", "openai-project", "x-stainless-lang", "x-stainless-package-version"),
        *("x-stainless-os", "x-stainless-arch", "x-stainless-runtime", "x-stainless-runtime-version"),
        *("x-stainless-async", "x-stainless-retry-count", "x-stainless-read-timeout", "x-forwarded-for"),
        *("x-forwarded-proto", "x-real-ip"),
    )
    for spelled in (name, name.title())
}
"""Names as clients spell them, so that most need not be decoded."""


class RequestReader:
    """`began` is told of each request once its head is here, `ended` when its body is. `throttle`: see `Body`."""

    __slots__ = (
        "_bare_bytes",
        "_began",
        "_count",
        "_ended",
        "_fault",
        "_headers",
        "_in_head",
        "_left",
        "_parser",
        "_replays",
        "_request",
        "_target",
        "_throttle",
        "_wire",
        "is_done",
        "tail",
    )

    def __init__(
        self,
        wire: Wire,
        began: Callable[[Request], None],
        ended: Callable[[Request], None],
        throttle: Callable[[bool], None],
    ) -> None:
        self._wire = wire
        self._began = began
        self._ended = ended
        self._throttle = throttle
        self._parser = HttpRequestParser(self)
        self._request: Request | None = None
        self._target = b""
        self._headers: dict[str, str] = {}
        self._count = 0
        self._bare_bytes = 0
        """Since the last byte of a body, or the last end of a head; -1: one of them was in what is fed now."""
        self._in_head = True
        self._left = 0
        self._replays = False
        self._fault: GatewayError | None = None
        self.is_done = False
        """No other request can come on this connection."""
        self.tail: bytes | None = None
        """What came after the head of a request for a WebSocket; None: there was no such request."""

    @property
    def body_left(self) -> int:
        """So many bytes belong to the body that is arriving, at least."""
        return self._left

    def feed(self, data: bytes) -> None:
        """Raises GatewayError for what is no request. A body that breaks is told to whoever reads it."""
        if self.tail is not None:
            self.tail += data
            return
        if self.is_done:
            return
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade as upgrade:
            self._go_on(data, upgrade.args[0])
        except HttpParserError as error:
            self._fail(error)
        if not self._left:
            self._count_bytes(len(data))

    def on_url(self, piece: bytes) -> None:
        self._target += piece
        if len(self._target) > _MAX_TARGET:
            raise self._refused(TargetTooLong(f"the address of the request is longer than {_MAX_TARGET} bytes"))

    def on_header(self, name: bytes, value: bytes) -> None:
        count = self._count = self._count + 1
        if count > _MAX_HEADERS or len(value) + len(name) > _MAX_FIELD:
            raise self._refused(HeadTooLarge(f"expected at most {_MAX_HEADERS} headers, of {_MAX_FIELD} bytes each"))
        if not self._in_head:
            return  # a trailer
        headers = self._headers
        key = _NAMES.get(name) or name.decode("ascii").lower()
        text = value.decode("utf-8", "surrogateescape").strip(" \t")
        if key in headers:
            if key in _ONCE:
                raise self._refused(_invalid(f"the header {key} comes twice"))
            text = f"{headers[key]}, {text}"
        headers[key] = text

    def on_headers_complete(self) -> None:
        if self._replays:
            self._target = b""
            return
        parser = self._parser
        headers, self._headers = self._headers, {}
        target, self._target = self._target, b""
        self._in_head = False
        self._count = 0
        self._bare_bytes = -1
        version = parser.get_http_version()
        if version != "1.1" and version != "1.0":
            raise self._refused(_invalid("expected HTTP/1.1"))
        method = parser.get_method().decode("ascii")
        if b"#" in target or method == "CONNECT":
            raise self._refused(_invalid("expected the path of a resource"))
        if "host" not in headers and version == "1.1":
            raise self._refused(_invalid("the header Host is missing"))
        coding = headers.get("content-encoding")
        coding = coding.lower() if coding is not None else None
        length = headers.get("content-length")
        if length is not None and len(length) > _MAX_DIGITS:
            raise self._refused(_invalid("Content-Length is too long"))
        body = Body(self._throttle, coding if coding in CODINGS else None)
        try:
            request = Request(method, target.decode("ascii"), headers, body, self._wire, is_1_0=version == "1.0")
        except ValueError as error:
            raise self._refused(_invalid("its address is none")) from error
        request.keeps_alive = parser.should_keep_alive()
        chunked = headers.get("transfer-encoding")
        if chunked is not None:
            if chunked.lower() != "chunked" or request.is_1_0:
                raise self._refused(_invalid("Transfer-Encoding: expected chunked, in HTTP/1.1"))
            self._left = 0
        else:
            self._left = int(length) if length is not None else 0
        if "expect" in headers and not request.is_1_0:
            body.is_awaited = chunked is not None or self._left > 0
        self._request = request
        self._began(request)

    def on_body(self, piece: bytes) -> None:
        request = self._request
        if request is not None:
            self._bare_bytes = -1
            if self._left:
                self._left -= len(piece)
            request.body.is_awaited = False
            request.body.feed(piece)

    def on_message_complete(self) -> None:
        request = self._request
        if request is None or (not self._replays and "upgrade" in request.headers and self._parser.should_upgrade()):
            return  # its body comes, see `_go_on`
        self._end(request)

    def _end(self, request: Request) -> None:
        self._request = None
        self._replays = False
        self._in_head = True
        self._count = self._left = 0
        self.is_done = not request.keeps_alive
        request.body.end()
        self._ended(request)

    def _count_bytes(self, size: int) -> None:
        """Of a head that is not whole yet, or of what stands between the chunks of a body."""
        self._bare_bytes = self._bare_bytes + size if self._bare_bytes >= 0 else 0
        if self._bare_bytes <= _MAX_HEAD or self.is_done:
            return
        self.is_done = True
        request = self._request
        if request is None:
            raise HeadTooLarge(f"the head of the request is longer than {_MAX_HEAD} bytes")
        request.body.fail(BrokenBody("its chunks say too much beside their bytes"))
        self._ended(request)

    def _go_on(self, data: bytes, start: int) -> None:
        """llhttp stops after a head that asks for another protocol. For a WebSocket the rest is kept; any other
        question of that kind is passed over, so the body and the next requests are read as always."""
        request = self._request
        if request is None:
            self.is_done = True
            return
        headers, rest = request.headers, data[start:]
        length, chunked = headers.get("content-length"), "transfer-encoding" in headers
        if request.method == "GET" and headers["upgrade"].lower() == "websocket" and not chunked and length is None:
            self.tail = rest
            request.keeps_alive = False
            self._end(request)
            return
        self._replays = True
        self._parser = HttpRequestParser(self)
        framing = b"Transfer-Encoding: chunked" if chunked else f"Content-Length: {length or 0}".encode()
        self._parser.feed_data(b"POST / HTTP/1.1\r\n" + framing + b"\r\n\r\n")
        if rest:
            self.feed(rest)

    def _fail(self, error: HttpParserError) -> None:
        if self.is_done:
            return  # what comes after the last request is not read
        self.is_done = True
        request, fault = self._request, self._fault
        if request is not None:
            self._request = None
            self._in_head = False
            request.body.fail(BrokenBody(str(error)))
            self._ended(request)
            return
        if fault is not None:
            raise fault
        if isinstance(error, HttpParserCallbackError):
            raise error  # a fault of this program
        raise _invalid(str(error)) from error

    def _refused(self, error: GatewayError) -> GatewayError:
        self._fault = error
        return error


def _invalid(what: str) -> InvalidRequest:
    return InvalidRequest(f"not a valid HTTP request: {what}")
