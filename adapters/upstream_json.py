"""JSON of an upstream: what it decodes to, or the error that it can't be read. Knows no dialect."""

from collections.abc import Callable, Container, Mapping
from typing import TypeVar

import msgspec

from adapters.canonical.errors import BadUpstreamResponse

__all__ = ["UNREADABLE", "read_body", "unexpected_answer", "unmapped"]

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What a decoder raises for text that is not JSON, or not of its type."""
T = TypeVar("T")


def read_body(decode: Callable[[bytes], T], body: bytes, what: str) -> T:
    """What `decode` makes of the body. Raises BadUpstreamResponse: the upstream sent no `what`."""
    try:
        return decode(body)
    except UNREADABLE as error:
        raise BadUpstreamResponse(f"the upstream sent no {what}: {error}") from error


def unexpected_answer(error: Exception) -> BadUpstreamResponse:
    """The error for an answer, or a piece of one, that is not of the dialect."""
    return BadUpstreamResponse(f"the upstream sent an unexpected answer: {error}")


def unmapped(fields: Mapping[str, msgspec.Raw], known: Container[str]) -> dict[str, bytes]:
    """The fields that nobody maps, as they came. Null is the same as absent."""
    return {name: raw for name, value in fields.items() if name not in known and (raw := bytes(value)) != b"null"}
