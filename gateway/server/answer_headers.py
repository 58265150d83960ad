"""The headers that answers carry: an allow-list (law 17). Nothing of an upstream's headers passes unnamed."""

import math
import re
from collections.abc import Sequence
from urllib.parse import quote

from adapters.canonical.errors import GatewayError, NotReady
from gateway.http.request import Request
from gateway.limits.limiter import Standing
from gateway.routing.router import Progress

__all__ = [
    "JSON",
    "add_limits",
    "answer_headers",
    "client_request_id",
    "error_headers",
    "forwarded_headers",
    "stream_headers",
]

JSON = "application/json"
_SANE_ID = re.compile(r"[\x21-\x7e]{1,128}")
_MAX_VALUE = 2000
_WHOLE_MINUTE = "1m1s"
"""After this, without another request, nothing of the minute is taken any more."""


def client_request_id(request: Request) -> str | None:
    """The client's X-Request-Id, where it is short and printable."""
    value = request.headers.get("x-request-id")
    return value if value is not None and _SANE_ID.fullmatch(value) else None


def forwarded_headers(request: Request, names: Sequence[str]) -> dict[str, str]:
    """The headers of these names (in lower case) that are printable and not endless."""
    found = {name: request.headers.get(name) for name in names}
    return {name: value for name, value in found.items() if value and len(value) <= _MAX_VALUE and _is_plain(value)}


def answer_headers(request_id: str, progress: Progress | None, upstream_request_id: str | None) -> dict[str, str]:
    """What is said about an answer beside its body."""
    headers = {"Content-Type": JSON, "Server": "gateway", "x-request-id": request_id}
    if progress is None:
        return headers
    if progress.cache is not None:
        headers["x-gateway-cache"] = progress.cache
    target = progress.target
    if target is not None:
        headers["x-gateway-provider"] = target.provider.name
        if target.model:  # some calls name none
            headers["x-gateway-upstream-model"] = _printable(target.model)
        if upstream_request_id is not None:
            headers["x-gateway-upstream-request-id"] = _printable(upstream_request_id)
    if progress.dropped:
        headers["x-gateway-dropped-params"] = ", ".join(map(_printable, progress.dropped))[:_MAX_VALUE]
    return headers


def add_limits(headers: dict[str, str], standing: Standing) -> None:
    """Adds what is left of the minute, as OpenAI's API tells it."""
    if standing.limit_requests is not None:
        headers["x-ratelimit-limit-requests"] = str(standing.limit_requests)
        headers["x-ratelimit-remaining-requests"] = str(standing.remaining_requests)
        headers["x-ratelimit-reset-requests"] = _WHOLE_MINUTE
    if standing.limit_tokens is not None:
        headers["x-ratelimit-limit-tokens"] = str(standing.limit_tokens)
        headers["x-ratelimit-remaining-tokens"] = str(standing.remaining_tokens)
        headers["x-ratelimit-reset-tokens"] = _WHOLE_MINUTE


def stream_headers(headers: dict[str, str], content_type: str) -> dict[str, str]:
    """The same for a stream of events, which nobody on the way may cache or gather."""
    headers["Content-Type"] = content_type
    headers["Cache-Control"] = "no-cache"
    headers["X-Accel-Buffering"] = "no"
    return headers


def error_headers(headers: dict[str, str], error: GatewayError) -> dict[str, str]:
    """With what a client needs to decide whether, and when, it tries again."""
    if error.retry_after_s is not None:
        headers["retry-after"] = str(math.ceil(error.retry_after_s))
        headers["retry-after-ms"] = str(math.ceil(error.retry_after_s * 1000))
    should_retry = error.should_retry
    if should_retry is None and (error.status == 409 or error.status >= 500) and not error.retryable:
        # SDKs would try again. A model that is still loading is worth it.
        should_retry = None if isinstance(error, NotReady) else False
    if should_retry is not None:
        headers["x-should-retry"] = "true" if should_retry else "false"
    if error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return headers


def _printable(value: str) -> str:
    return (value if _is_plain(value) else quote(value, safe=" /:,.[]"))[:_MAX_VALUE]


def _is_plain(value: str) -> bool:
    return value.isascii() and value.isprintable()
