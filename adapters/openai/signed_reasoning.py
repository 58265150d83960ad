"""Thoughts that a provider signed, as chat clients carry them: elements of `reasoning_details` that name their origin.

    {"type": "reasoning.text", "text", "signature", "index", "origin", "position"?}
    {"type": "reasoning.encrypted", "data", "index", "origin", "position"?}

A client that plays the message back gives the provider its thoughts as it made them. `index` counts them from 0,
`position` is their place among all parts of the answer where something else stood before them; thoughts that nobody
signed do not come back and do not count. Details without an origin are an upstream's own and opaque.
"""

from collections.abc import Iterable
from typing import Any

from msgspec import DecodeError, Struct
from msgspec.json import Decoder

from adapters.canonical.messages import Part, Reasoning

__all__ = ["parse_signed", "placed", "signed_details", "signed_object"]

_ORIGIN = b'"origin"'
_ENCRYPTED = "reasoning.encrypted"
_TEXT = "reasoning.text"


class _Detail(Struct):
    type: str
    index: int
    origin: str
    text: str = ""
    signature: str | None = None
    data: str | None = None
    position: int | None = None


_decode = Decoder(list[_Detail]).decode


def parse_signed(details: bytes) -> list[tuple[int, Reasoning]] | None:
    """The thoughts with their positions, None where the details are not of this kind."""
    if _ORIGIN not in details:
        return None
    try:
        found = _decode(details)
    except DecodeError:
        return None
    return [
        (
            detail.index if detail.position is None else detail.position,
            Reasoning(text=detail.text, signature=detail.signature, encrypted=detail.data, origin=detail.origin),
        )
        for detail in found
    ]


def placed(parts: list[Part], signed: Iterable[tuple[int, Reasoning]]) -> None:
    """Puts each thought where it stood."""
    for position, part in sorted(signed, key=lambda one: one[0]):
        parts.insert(position, part)


def signed_details(parts: Iterable[Part]) -> list[dict[str, Any]]:
    """The details of all signed thoughts of an answer."""
    found: list[dict[str, Any]] = []
    position = 0
    for part in parts:
        if isinstance(part, Reasoning):
            detail = None if part.origin is None else signed_object(part, len(found), position)
            if detail is None:
                continue
            found.append(detail)
        position += 1
    return found


def signed_object(part: Reasoning, index: int, position: int) -> dict[str, Any] | None:
    """None for a thought that nobody signed."""
    found: dict[str, Any]
    if part.encrypted is not None:
        found = {"type": _ENCRYPTED, "data": part.encrypted}
    elif part.signature is not None:
        found = {"type": _TEXT, "text": part.text, "signature": part.signature}
    else:
        return None
    found["index"] = index
    found["origin"] = part.origin
    if position != index:
        found["position"] = position
    return found
