"""Google's error object, both ways: `{"error": {"code", "message", "status", "details"}}`.

Which error an upstream's reason, status word and HTTP status mean is stated here, once.
"""

import re
from typing import Any

import orjson
from msgspec import Struct
from msgspec.json import Decoder

from adapters.canonical.errors import (
    GatewayError,
    InvalidRequest,
    ModelNotFound,
    UpstreamAuth,
    UpstreamConflict,
    UpstreamError,
    UpstreamInternal,
    UpstreamOverloaded,
    UpstreamQuota,
    UpstreamRateLimited,
    UpstreamTimeout,
)
from adapters.error_words import told_in, words_of
from adapters.upstream_errors import error_class_of, upstream_failure
from adapters.upstream_json import UNREADABLE

__all__ = ["error_from_event", "parse_error", "render_error"]

_REASONS: dict[str, type[GatewayError]] = {
    # `details[].reason` is the most specific word.
    "API_KEY_INVALID": UpstreamAuth,
    "API_KEY_SERVICE_BLOCKED": UpstreamAuth,
    "ACCESS_TOKEN_EXPIRED": UpstreamAuth,
    "SERVICE_DISABLED": UpstreamAuth,
    "BILLING_DISABLED": UpstreamQuota,
}
_STATUSES: dict[str, type[GatewayError]] = {
    "INVALID_ARGUMENT": InvalidRequest,
    "OUT_OF_RANGE": InvalidRequest,
    "UNIMPLEMENTED": InvalidRequest,
    "FAILED_PRECONDITION": UpstreamQuota,  # the account lacks billing, or its country is not served
    "UNAUTHENTICATED": UpstreamAuth,
    "PERMISSION_DENIED": UpstreamAuth,
    "NOT_FOUND": ModelNotFound,
    "ALREADY_EXISTS": UpstreamConflict,
    "ABORTED": UpstreamConflict,
    "RESOURCE_EXHAUSTED": UpstreamRateLimited,
    "CANCELLED": UpstreamError,
    "UNKNOWN": UpstreamInternal,
    "INTERNAL": UpstreamInternal,
    "DATA_LOSS": UpstreamInternal,
    "UNAVAILABLE": UpstreamOverloaded,
    "DEADLINE_EXCEEDED": UpstreamTimeout,
}
_WORDS = {
    # The client's words for our errors, by HTTP status.
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    405: "UNIMPLEMENTED",
    409: "ABORTED",
    413: "INVALID_ARGUMENT",
    415: "INVALID_ARGUMENT",
    422: "INVALID_ARGUMENT",
    429: "RESOURCE_EXHAUSTED",
    499: "CANCELLED",
    500: "INTERNAL",
    502: "UNAVAILABLE",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
_TYPE = "type.googleapis.com/google.rpc."
_SECONDS = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)s")


class _ErrorObject(Struct):
    message: Any = None
    status: Any = None
    details: Any = None


class _ErrorBody(Struct):
    error: _ErrorObject | str | None = None


_decode_body = Decoder(_ErrorBody | list[_ErrorBody]).decode


def render_error(error: GatewayError) -> bytes:
    """The JSON body of an error answer, and the last element of a stream that fails."""
    found: dict[str, Any] = {
        "code": error.status,
        "message": error.message,
        "status": _WORDS.get(error.status, "UNKNOWN"),
    }
    details: list[dict[str, Any]] = []
    if error.code is not None:
        details.append({"@type": _TYPE + "ErrorInfo", "reason": error.code.upper(), "domain": "gateway"})
    if error.param is not None:
        violation = {"field": error.param, "description": error.message}
        details.append({"@type": _TYPE + "BadRequest", "fieldViolations": [violation]})
    if error.retry_after_s is not None:
        details.append({"@type": _TYPE + "RetryInfo", "retryDelay": f"{error.retry_after_s:g}s"})
    if details:
        found["details"] = details
    return orjson.dumps({"error": found})


def parse_error(status: int, body: bytes) -> GatewayError:
    """The error that an upstream answered with this HTTP status and JSON body."""
    return _build(status, _read(body))


def error_from_event(payload: bytes) -> GatewayError:
    """The error in an object that came inside a 200: its own words alone say what it is."""
    return _build(None, _read(payload))


def _read(body: bytes) -> _ErrorObject:
    try:
        read = _decode_body(body)
        found = read.error if isinstance(read, _ErrorBody) else read[0].error  # a stream of JSON is a list
    except (*UNREADABLE, IndexError):
        found = None
    if isinstance(found, str):
        return _ErrorObject(message=found)
    found = found or _ErrorObject()
    found.message = words_of(found.message) or told_in(body)
    return found


def _build(status: int | None, found: _ErrorObject) -> GatewayError:
    rows = [row for row in found.details if isinstance(row, dict)] if isinstance(found.details, list) else []
    by_reason = next((_REASONS[row["reason"]] for row in rows if row.get("reason") in _REASONS), None)
    by_status = _STATUSES.get(found.status) if isinstance(found.status, str) else None
    error_class = by_reason or by_status or error_class_of(status)
    error = upstream_failure(error_class, found.message, status=status)
    error.retry_after_s = next((seconds for row in rows if (seconds := _delay_s(row)) is not None), None)
    return error


def _delay_s(row: dict[str, Any]) -> float | None:
    """What a RetryInfo says."""
    delay = row.get("retryDelay")
    found = _SECONDS.fullmatch(delay) if isinstance(delay, str) else None
    return None if found is None else min(float(found[1]), 86_400.0)
