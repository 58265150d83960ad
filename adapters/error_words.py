"""What the JSON of an error says, where it is not in its dialect's own form: hosts and what stands before them (a web
framework, a cloud's front) each have another. Knows no dialect."""

from typing import Any

from msgspec.json import Decoder

from adapters.upstream_json import UNREADABLE

__all__ = ["told_in", "words_of"]

_NAMES = (
    *("error", "message", "Message", "detail", "error_message", "error_msg", "msg"),
    *("errors", "fault", "faultstring"),
)
_MAX_DEPTH = 4
_decode = Decoder().decode


def told_in(body: bytes) -> str | None:
    """The words in a body of JSON."""
    try:
        return words_of(_decode(body))
    except UNREADABLE:
        return None


def words_of(value: Any, depth: int = 0) -> str | None:
    """The words in decoded JSON. A list of what is wrong becomes one text."""
    if isinstance(value, str):
        return value or None
    if depth == _MAX_DEPTH:
        return None
    if isinstance(value, list):
        return "; ".join([found for row in value if (found := _row(row, depth))]) or None
    if isinstance(value, dict):
        return next((found for name in _NAMES if (found := words_of(value.get(name), depth + 1))), None)
    return None


def _row(row: Any, depth: int) -> str | None:
    """With the place that FastAPI names."""
    found = words_of(row, depth + 1)
    loc = row.get("loc") if isinstance(row, dict) else None
    names = [str(name) for name in loc if name != "body"] if isinstance(loc, list) else []
    return f"{'.'.join(names)}: {found}" if names and found else found
