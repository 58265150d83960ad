"""The heads of one provider's requests: what all of them carry is built once, what belongs to a call comes behind it.

Knows the headers that may be configured, and no socket. What is not built here does not leave.
"""

import re
from collections.abc import Mapping

from multidict import CIMultiDict

from adapters.canonical.errors import InvalidRequest, UpstreamAuth
from providers.base import ProviderSettings
from providers.client_key import CLIENT_KEY, KeyHeader
from providers.trace_context import TRACE

__all__ = ["RequestHeads", "rendered"]

_MAX_KEPT = 64
_TRACE_NAMES = ("traceparent", "tracestate")
_TARGET = re.compile(r"(http://[\x21-\x2e\x30-\x7e]+)?/[\x21-\x7e]*")
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_HEADER_VALUE = re.compile(r"[\x20-\x7e]*")
_NOT_IN_LINE = re.compile(r"[\r\n\0]")
_OURS = frozenset(
    # Of the framing and the content: whoever sets these from outside breaks the request.
    (
        "accept", "accept-encoding", "connection", "content-encoding", "content-length", "content-type", "cookie", "te",
        "trailer", "transfer-encoding", "upgrade", "x-request-id",
    )
)  # fmt: skip


class RequestHeads:
    """`key_header` is where a key goes, the provider's or a client's own; None: nowhere. `through` go to a proxy."""

    def __init__(
        self,
        settings: ProviderSettings,
        host: str,
        key_header: KeyHeader | None,
        *,
        through: Mapping[str, str],
    ) -> None:
        """Raises ValueError on settings that no header can carry."""
        self._provider = settings.name
        self._key_header = key_header
        self._asks_for_no_key = key_header is not None and not settings.api_key
        self._common = _outgoing_headers(settings, host, key_header)
        self._common.update(through)
        self._post = CIMultiDict(self._common, **{"content-type": "application/json"})
        self._stream = CIMultiDict(self._post)
        self._stream["accept"] = "text/event-stream"
        self._stream["accept-encoding"] = "identity"  # a compressor in between would hold tokens back
        self._traces_itself = any(name in self._common for name in _TRACE_NAMES)
        self._kept: dict[tuple[str, bool], str] = {}

    def of_get(self, headers: Mapping[str, str] | None) -> CIMultiDict[str]:
        sent = self._common.copy()
        sent.update(headers or {})
        return sent

    def of_post(
        self, length: int, request_id: str | None, headers: Mapping[str, str] | None, *, stream: bool
    ) -> CIMultiDict[str]:
        """The headers of a JSON body of so many bytes. Raises UpstreamAuth as `of_forwarded` does."""
        sent = (self._stream if stream else self._post).copy()
        sent.update(headers or {})
        self._put_call(sent, request_id)
        sent["content-length"] = str(length)
        return sent

    def of_forwarded(self, headers: Mapping[str, str], request_id: str | None) -> CIMultiDict[str]:
        """Those, beside ours. Raises UpstreamAuth where the call would be made in the gateway's name for a client that
        has its own key."""
        sent = self._common.copy()
        sent.update(headers)
        self._put_call(sent, request_id)
        sent["accept-encoding"] = "identity"  # the length of an answer is passed on with it
        return sent

    def post(
        self, target: str, length: int, request_id: str | None, headers: Mapping[str, str] | None, *, stream: bool
    ) -> bytes:
        """The head of a POST with the headers that `of_post` gives."""
        if headers is not None or self._traces_itself or CLIENT_KEY.get() is not None:
            return rendered("POST", target, self.of_post(length, request_id, headers, stream=stream))
        start = self._kept.get((target, stream))
        if start is None:
            start = _text("POST", target, self._stream if stream else self._post)
            if len(self._kept) < _MAX_KEPT:  # some dialects put the model's name into the path
                self._kept[target, stream] = start
        if request_id is not None and _is_header_value(request_id):
            start = f"{start}x-request-id: {request_id}\r\n"
        for name, value in TRACE.get():
            start += _line(name, value)
        return f"{start}content-length: {length}\r\n\r\n".encode("utf-8", "surrogateescape")

    def _put_call(self, sent: CIMultiDict[str], request_id: str | None) -> None:
        """Adds what belongs to this call: the client's own key, the request's id, the trace."""
        own = CLIENT_KEY.get()
        if own is not None:
            if own.provider == self._provider and self._key_header is not None:
                name, prefix = self._key_header
                sent[name] = prefix + own.secret
            elif not self._asks_for_no_key:
                raise UpstreamAuth(f"{self._provider}: it is not asked in the name of a client with a key of its own")
        if request_id is not None and _is_header_value(request_id):
            sent["x-request-id"] = request_id
        for name, value in TRACE.get():
            sent[name] = value


def rendered(method: str, target: str, headers: Mapping[str, str]) -> bytes:
    """A head, with the empty line at its end. Raises InvalidRequest on what would break out of its line."""
    return f"{_text(method, target, headers)}\r\n".encode("utf-8", "surrogateescape")


def _text(method: str, target: str, headers: Mapping[str, str]) -> str:
    if not _TARGET.fullmatch(target):
        raise InvalidRequest("the model's name makes no path of a URL", param="model")
    lines = [_line(name, value) for name, value in headers.items()]
    return f"{method} {target} HTTP/1.1\r\n{''.join(lines)}"


def _line(name: str, value: str) -> str:
    if _NOT_IN_LINE.search(value):
        raise InvalidRequest(f"the header {name} can't go to the upstream: its value holds a line end")
    return f"{name}: {value}\r\n"


def _is_header_value(text: str) -> bool:
    return len(text) <= 512 and text.isascii() and text.isprintable()


def _outgoing_headers(settings: ProviderSettings, host: str, key_header: KeyHeader | None) -> CIMultiDict[str]:
    headers = CIMultiDict({"host": host, "accept": "application/json", "accept-encoding": "gzip, deflate"})
    headers["user-agent"] = settings.user_agent
    if key_header is not None and settings.api_key:
        if not _HEADER_VALUE.fullmatch(settings.api_key):
            raise ValueError(f"providers.{settings.name}.api_key: it holds characters that no header can carry")
        headers[key_header.name] = key_header.prefix + settings.api_key
    for name, value in settings.headers.items():
        if name.lower() in _OURS:
            raise ValueError(f"providers.{settings.name}.headers: {name} is set by the gateway itself")
        if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
            raise ValueError(f"providers.{settings.name}.headers: {name!r} or its value is no HTTP header")
        headers[name] = value
    return headers
