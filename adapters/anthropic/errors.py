"""Anthropic's error object, both ways: `{"type": "error", "error": {"type", "message"}}`.

Which error an upstream's type, code and status mean is stated here, once.
"""

from typing import Any

import orjson
from msgspec import Struct
from msgspec.json import Decoder

from adapters.anthropic.vocabulary import NO_THREADS, frame
from adapters.canonical.errors import (
    AuthenticationFailed,
    BodyTooLarge,
    GatewayError,
    InsufficientQuota,
    InvalidRequest,
    ModelNotFound,
    NotFound,
    NotReady,
    PermissionDenied,
    QueueFull,
    RateLimited,
    UpstreamAuth,
    UpstreamConflict,
    UpstreamInternal,
    UpstreamOverloaded,
    UpstreamQuota,
    UpstreamRateLimited,
    UpstreamTimeout,
)
from adapters.error_words import told_in, words_of
from adapters.upstream_errors import error_class_of, upstream_failure
from adapters.upstream_json import UNREADABLE

__all__ = ["error_frame", "error_from_event", "parse_error", "render_error"]

_CODES: dict[str, type[GatewayError]] = {
    # `details.error_code` is the most specific word: these spend limits do not pass by waiting.
    "enforced_spend_limit_reached": UpstreamQuota,
    "contract_spend_limit_reached": UpstreamQuota,
    "linked_organization_spend_limit_reached": UpstreamQuota,
    "linked_organization_billing_unavailable": UpstreamQuota,
}
_TYPES: dict[str, type[GatewayError]] = {
    "invalid_request_error": InvalidRequest,
    "authentication_error": UpstreamAuth,
    "billing_error": UpstreamQuota,
    "permission_error": UpstreamAuth,
    "not_found_error": ModelNotFound,
    "conflict_error": UpstreamConflict,
    "request_too_large": InvalidRequest,
    "rate_limit_error": UpstreamRateLimited,
    "timeout_error": UpstreamTimeout,
    "api_error": UpstreamInternal,
    "overloaded_error": UpstreamOverloaded,
}
_WORDS: tuple[tuple[type[GatewayError], str], ...] = (
    # The client's words for our errors, the most specific class first.
    (BodyTooLarge, "request_too_large"),
    (InvalidRequest, "invalid_request_error"),
    (AuthenticationFailed, "authentication_error"),
    (PermissionDenied, "permission_error"),
    (NotFound, "not_found_error"),
    (InsufficientQuota, "billing_error"),
    (RateLimited, "rate_limit_error"),
    (QueueFull, "rate_limit_error"),
    (UpstreamRateLimited, "rate_limit_error"),
    (UpstreamOverloaded, "overloaded_error"),
    (NotReady, "overloaded_error"),
    (UpstreamTimeout, "timeout_error"),
)


class _ErrorObject(Struct):
    type: Any = None
    message: Any = None
    details: Any = None


class _ErrorBody(Struct):
    error: _ErrorObject | str | None = None


_decode_body = Decoder(_ErrorBody).decode


def render_error(error: GatewayError) -> bytes:
    """The JSON body of an error answer. `param` and `code` are the gateway's additions."""
    return orjson.dumps({"type": "error", **_told(error)})


def error_frame(error: GatewayError) -> bytes:
    """The event that ends a stream in an error."""
    return frame("error", _told(error))


def _told(error: GatewayError) -> dict[str, Any]:
    word = next((word for kind, word in _WORDS if isinstance(error, kind)), "api_error")
    found: dict[str, Any] = {"type": word, "message": error.message}
    if error.param is not None:
        found["param"] = error.param
    if error.code is not None:
        found["code"] = error.code
    if error.code == NO_THREADS:
        found["details"] = {"error_code": NO_THREADS, "unsupported": [error.param]}
    return {"error": found}


def parse_error(status: int, body: bytes) -> GatewayError:
    """The error that an upstream answered with this HTTP status and JSON body."""
    return _build(status, _read(body))


def error_from_event(payload: bytes) -> GatewayError:
    """The error in an object that came inside a 200: its type alone says what it is."""
    return _build(None, _read(payload))


def _read(body: bytes) -> _ErrorObject:
    try:
        found = _decode_body(body).error
    except UNREADABLE:
        found = None
    if isinstance(found, str):
        return _ErrorObject(message=found)
    found = found or _ErrorObject()
    found.message = words_of(found.message) or told_in(body)
    return found


def _build(status: int | None, found: _ErrorObject) -> GatewayError:
    details = found.details if isinstance(found.details, dict) else {}
    code = details.get("error_code")
    by_code = _CODES.get(code) if isinstance(code, str) else None
    by_type = _TYPES.get(found.type) if isinstance(found.type, str) else None
    if by_type is InvalidRequest and status is not None:
        by_type = None  # the vaguest of them: a status that says more (401, 429, 500) is right
    error_class = by_code or by_type or error_class_of(status)
    return upstream_failure(error_class, found.message, status=status)
