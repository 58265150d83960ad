"""OpenAI's error object, both ways: `{"error": {"message", "type", "param", "code"}}`; a flat one is understood too.

Which error an upstream's status and code mean is stated here, once, for every OpenAI-shaped provider.
"""

from typing import Any

import orjson
from msgspec import Struct
from msgspec.json import Decoder

from adapters.canonical.errors import (
    ContentRefused,
    ContextOverflow,
    GatewayError,
    InvalidRequest,
    ModelNotFound,
    UpstreamAuth,
    UpstreamOverloaded,
    UpstreamQuota,
    UpstreamRateLimited,
)
from adapters.error_words import told_in, words_of
from adapters.upstream_errors import error_class_of, upstream_failure
from adapters.upstream_json import UNREADABLE

__all__ = ["IMAGE_CODES", "error_from_object", "error_from_payload", "error_object", "parse_error", "render_error"]

_CODES: dict[str, type[GatewayError]] = {
    # The upstream's own code is more specific than its status.
    "context_length_exceeded": ContextOverflow,
    "exceed_context_size_error": ContextOverflow,  # llama.cpp puts it into type
    "content_filter": ContentRefused,
    "content_policy_violation": ContentRefused,
    "insufficient_quota": UpstreamQuota,
    "billing_hard_limit_reached": UpstreamQuota,
    "billing_not_active": UpstreamQuota,
    "invalid_api_key": UpstreamAuth,
    "model_not_found": ModelNotFound,
    "overloaded_error": UpstreamOverloaded,
}
IMAGE_CODES = frozenset(
    (
        "invalid_image", "invalid_image_format", "invalid_base64_image", "invalid_image_url", "image_too_large",
        "image_too_small", "image_parse_error", "invalid_image_mode", "image_file_too_large",
        "unsupported_image_media_type", "empty_image_file", "failed_to_download_image", "image_file_not_found",
    )
)  # fmt: skip
"""Of images that the upstream could not take."""
_CODES_INSIDE: dict[str, type[GatewayError]] = {
    # Those that tell more than a status which is not there: of failed responses, above all.
    "rate_limit_exceeded": UpstreamRateLimited,
    "invalid_prompt": InvalidRequest,
    "bio_policy": ContentRefused,
    "misalignment_policy_violation": ContentRefused,
    **dict.fromkeys(IMAGE_CODES, InvalidRequest),
    "image_content_policy_violation": ContentRefused,
}


class _ErrorObject(Struct):
    message: Any = None
    type: Any = None
    param: Any = None
    code: Any = None
    metadata: Any = None


class _ErrorBody(_ErrorObject):
    error: Any = None
    errors: Any = None


_decode_body = Decoder(_ErrorBody | list[_ErrorBody]).decode


def error_object(error: GatewayError) -> dict[str, Any]:
    return {"message": error.message, "type": error.type, "param": error.param, "code": error.code}


def render_error(error: GatewayError) -> bytes:
    """The JSON body of an error answer, and the data of an error frame inside a stream."""
    return orjson.dumps({"error": error_object(error)})


def parse_error(status: int, body: bytes) -> GatewayError:
    """The error that an upstream answered with this HTTP status and JSON body."""
    try:
        read = _decode_body(body)
        found = read if isinstance(read, _ErrorBody) else read[0]  # Google's servers put the body in a list
    except (*UNREADABLE, IndexError):
        found = _ErrorBody(message=f"the upstream answered {status} without a readable error body")
    if found.error is not None:
        return _build(status, _error_object(found.error))
    if isinstance(found.errors, list) and found.errors:  # Cloudflare
        return _build(status, _error_object(found.errors[0]))
    found.message = words_of(found.message) or told_in(body)
    return _build(status, found)


def error_from_object(value: Any) -> GatewayError:
    """The error in an error object that came inside a 200 (a body, or an event of a stream).

    A numeric code from 400 to 599 is its status; anything else counts as a fault of the upstream.
    """
    found = _error_object(value)
    code = found.code
    if isinstance(code, str) and code.isascii() and code.isdigit():
        code = int(code)
    if isinstance(code, int) and not isinstance(code, bool) and 400 <= code <= 599:
        return _build(code, found)
    return _build(502, found, _CODES_INSIDE.get(code) if isinstance(code, str) else None)


def error_from_payload(payload: bytes) -> GatewayError:
    """The error in a JSON object that is itself an error object."""
    return error_from_object(orjson.loads(payload))


def _error_object(value: Any) -> _ErrorObject:
    """The decoded value of an `error` field: an object, or words alone."""
    if isinstance(value, dict):
        found = _ErrorObject(*[value.get(name) for name in _ErrorObject.__struct_fields__])
        found.message = words_of(found.message) or words_of(value)
        return found
    return _ErrorObject(message=words_of(value))


def _build(status: int, found: _ErrorObject, known: type[GatewayError] | None = None) -> GatewayError:
    code = found.code if isinstance(found.code, str) and not found.code.isdigit() else None
    kind = found.type if isinstance(found.type, str) else None
    by_code = _CODES.get(code or "") or _CODES.get(kind or "")
    error_class = known or by_code or error_class_of(status)
    text = found.message
    inner = found.metadata.get("raw") if isinstance(found.metadata, dict) else None
    if isinstance(text, str) and isinstance(inner, str) and inner:  # OpenRouter: what the host behind it said
        text = f"{text}: {inner}"
    param = found.param if isinstance(found.param, str) else None
    return upstream_failure(error_class, text, status=status, param=param, code=code)
