"""What went wrong upstream, as one of our errors: the one place where HTTP's and the sockets' words are translated.

Knows no vendor and no JSON; an error body in JSON is the dialect's (`Upstream.parse_error`). A message names the
provider as run.yaml does and holds no URL, no key and no markup.
"""

import os
import re
import socket
import ssl
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

from adapters.canonical.errors import (
    BadUpstreamResponse,
    GatewayError,
    StreamTruncated,
    UpstreamAuth,
    UpstreamError,
    UpstreamQuota,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from adapters.inflater import Undecodable
from providers.remote.connection import NotHttp
from providers.remote.proxy import ProxyFailed

__all__ = [
    "FOREIGN",
    "MAX_RETRY_AFTER_S",
    "broken_answer",
    "complete",
    "error_page",
    "excerpt_of",
    "no_answer",
    "no_connection",
    "retry_after_s",
    "wrong_content",
]

FOREIGN = (NotHttp, OSError, TimeoutError, RuntimeError)
"""What a call may raise; RuntimeError is uvloop's for a connection that was closed."""
MAX_RETRY_AFTER_S = 86_400.0
_EXCERPT_CHARS = 120
_MEDIA_TYPE = re.compile(r"[a-z0-9.+-]{1,40}/[a-z0-9.+-]{1,60}")
_TAGS = re.compile(r"(?is)<(script|style|head)\b.*?(</\1\s*>|\Z)|<!--.*?(-->|\Z)|<[^>]*(>|\Z)")


def no_connection(provider: str, error: Exception) -> UpstreamError:
    """The error for an exception before there was a connection."""
    match error:
        case TimeoutError():
            return UpstreamUnreachable(f"{provider}: no connection within the connect limit")
        case ProxyFailed():
            return UpstreamUnreachable(f"{provider}: {error}")
        case socket.gaierror():
            return UpstreamUnreachable(f"{provider}: its host name does not resolve")
        case ssl.SSLError():
            why = error.reason or type(error).__name__
            hint = "; is it an http:// address?" if why == "WRONG_VERSION_NUMBER" else ""
            return UpstreamUnreachable(f"{provider}: TLS failed, {why}{hint}")
        case _:
            return UpstreamUnreachable(f"{provider}: cannot connect ({_kind(error)})")


def no_answer(provider: str, error: Exception) -> UpstreamError:
    """The error for an exception before the status line came."""
    match error:
        case TimeoutError():
            return UpstreamTimeout(f"{provider}: no answer within the limit for its beginning")
        case NotHttp():
            return BadUpstreamResponse(f"{provider}: the answer is not HTTP")
        case OSError():
            return UpstreamUnreachable(f"{provider}: the connection broke before an answer came")
        case _:
            return UpstreamUnreachable(f"{provider}: the call failed, {type(error).__name__}")


def broken_answer(provider: str, error: Exception) -> UpstreamError:
    """The error for an exception while the answer's body was read."""
    if isinstance(error, TimeoutError):
        return UpstreamTimeout(f"{provider}: it fell silent before its answer was whole")
    if isinstance(error, Undecodable):
        return BadUpstreamResponse(f"{provider}: the answer can't be decompressed")
    return StreamTruncated(f"{provider}: the connection broke in the middle of the answer")


def _kind(error: Exception) -> str:
    """What the operating system calls it (`Connection refused`); the exception's own text holds the address."""
    number = error.errno if isinstance(error, OSError) else None
    return os.strerror(number) if number is not None and number > 0 else type(error).__name__


def error_page(provider: str, by_status: GatewayError, status: int, body: bytes) -> GatewayError:
    """The error for a status whose body is not JSON: HTML of a CDN, plain text, nothing.

    `by_status` is what the dialect makes of the status alone: its class is kept.
    """
    kind = type(by_status)
    if issubclass(kind, UpstreamAuth | UpstreamQuota):  # the gateway's own account is nobody's business
        return kind(f"{provider}: status {status}", upstream_status=status)
    excerpt = excerpt_of(body)
    message = f"{provider}: status {status}" + (f", {excerpt}" if excerpt else "")
    code = BadUpstreamResponse.default_code
    return _located(kind(message, code=code), status)


def wrong_content(provider: str, status: int, content_type: str, body: bytes) -> BadUpstreamResponse:
    """The error for a success that is neither JSON nor a stream: a login page, a picture."""
    excerpt = excerpt_of(body)
    found = content_type if _MEDIA_TYPE.fullmatch(content_type) else "something else"
    message = f"{provider}: it answered {found} instead of JSON or an event stream" + (
        f", {excerpt}" if excerpt else ""
    )
    return BadUpstreamResponse(message, upstream_status=status)


def complete(error: GatewayError, status: int, headers: Mapping[str, str]) -> GatewayError:
    """The same error with what the head of the answer says: the status, and when to ask again."""
    hint = retry_after_s(headers, time.time())
    if hint is not None:
        error.retry_after_s = hint
    told = headers.get("x-should-retry", "").lower()
    if told in ("true", "false"):
        error.should_retry = told == "true"
    elif not error.retryable and isinstance(error, UpstreamError):
        error.should_retry = False  # a client's SDK would retry a 502
    return _located(error, status)


def _located(error: GatewayError, status: int) -> GatewayError:
    if isinstance(error, UpstreamError) and error.upstream_status is None:
        error.upstream_status = status
    return error


def excerpt_of(body: bytes) -> str:
    """A few words of a page, without its markup."""
    text = _TAGS.sub(" ", body[:4096].decode("utf-8", "replace"))
    text = " ".join(text.replace("<", " ").replace(">", " ").split())
    return text if len(text) <= _EXCERPT_CHARS else text[:_EXCERPT_CHARS].rstrip() + "..."


def retry_after_s(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds to wait, at most MAX_RETRY_AFTER_S; None where nothing sensible was said. `now` is Unix seconds.

    The order is `retry-after-ms`, then `retry-after` in seconds, then `retry-after` as an HTTP date.
    """
    seconds = _number(headers.get("retry-after-ms"))
    if seconds is not None:
        seconds /= 1000
    else:
        seconds = _number(headers.get("retry-after"))
    if seconds is None:
        seconds = _seconds_until(headers.get("retry-after"), now)
    return None if seconds is None else min(seconds, MAX_RETRY_AFTER_S)


_NUMBER = re.compile(r"\d{1,15}(\.\d*)?|\.\d+", re.ASCII)


def _number(value: str | None) -> float | None:
    """A plain decimal that is not negative."""
    return float(value) if value is not None and _NUMBER.fullmatch(value.strip()) else None


def _seconds_until(value: str | None, now: float) -> float | None:
    if value is None:
        return None
    try:
        seconds = parsedate_to_datetime(value).timestamp() - now
    except (ValueError, OverflowError):
        return None
    return seconds if seconds >= 0 else None
