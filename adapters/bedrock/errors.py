"""Bedrock's errors as ours: by the name of the exception where it is told, otherwise by the status."""

from msgspec import Struct, field
from msgspec.json import Decoder

from adapters.canonical.errors import (
    GatewayError,
    InvalidRequest,
    ModelNotFound,
    UpstreamAuth,
    UpstreamError,
    UpstreamInternal,
    UpstreamOverloaded,
    UpstreamQuota,
    UpstreamRateLimited,
    UpstreamTimeout,
)
from adapters.error_words import told_in
from adapters.upstream_errors import error_class_of, upstream_failure
from adapters.upstream_json import UNREADABLE

__all__ = ["error_in_stream", "parse_error"]

_NAMES: dict[str, type[GatewayError]] = {
    "throttling": UpstreamRateLimited,
    "modelnotready": UpstreamRateLimited,
    "modeltimeout": UpstreamTimeout,
    "modelerror": UpstreamError,
    "modelstreamerror": UpstreamError,
    "serviceunavailable": UpstreamOverloaded,
    "internalserver": UpstreamInternal,
    "validation": InvalidRequest,
    "accessdenied": UpstreamAuth,
    "unrecognizedclient": UpstreamAuth,
    "expiredtoken": UpstreamAuth,
    "resourcenotfound": ModelNotFound,
    "servicequotaexceeded": UpstreamQuota,
}


class _Body(Struct):
    message: str | None = None
    upper_message: str | None = field(default=None, name="Message")
    kind: str | None = field(default=None, name="__type")


_decode = Decoder(_Body).decode


def parse_error(status: int, body: bytes) -> GatewayError:
    """The error of an HTTP status and a JSON body."""
    found = _read(body)
    known = None if found.kind is None else _class_of(found.kind)
    kind = known or error_class_of(status)
    return upstream_failure(kind, found.message, status=status)


def error_in_stream(name: str, payload: bytes) -> GatewayError:
    """An exception that came as an event inside of a 200."""
    found = _read(payload)
    return upstream_failure(_class_of(name) or UpstreamError, found.message, status=None)


def _class_of(name: str) -> type[GatewayError] | None:
    """`ThrottlingException`, `throttlingException`, `com.amazon#ThrottlingException` are one name."""
    return _NAMES.get(name.rpartition("#")[2].lower().removesuffix("exception"))


def _read(body: bytes) -> _Body:
    try:
        found = _decode(body)
    except UNREADABLE:
        found = _Body()
    found.message = found.message or found.upper_message or told_in(body)
    return found
