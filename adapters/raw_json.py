"""JSON that stays as it came: an object as its raw fields, and these again in a body that orjson writes. Knows no
dialect."""

from collections.abc import Mapping
from typing import Any

from msgspec import Raw
from msgspec.json import Decoder
from orjson import Fragment

__all__ = ["OBJECT", "OBJECTS", "RAW_ITEMS", "add_missing", "fragments", "put_back", "raw_fields"]

OBJECT = Decoder(dict[str, Raw])
OBJECTS = Decoder(list[dict[str, Raw]])
RAW_ITEMS = Decoder(list[Raw])
raw_fields = OBJECT.decode
"""The fields of an object. Raises msgspec.DecodeError."""


def fragments(fields: Mapping[str, bytes | Raw]) -> dict[str, Any]:
    """The same fields, each to be written as it is."""
    return {name: Fragment(bytes(raw)) for name, raw in fields.items()}


def add_missing(body: dict[str, Any], fields: Mapping[str, bytes]) -> None:
    """Puts the fields into the body that it does not have already."""
    for name, raw in fields.items():
        if name not in body:
            body[name] = Fragment(raw)


def put_back(found: dict[str, Any], fields: Mapping[str, bytes]) -> None:
    """Puts unmapped fields where they stood; a dotted name belongs to the object of that name."""
    for name, raw in fields.items():
        outer, _, inner = name.partition(".")
        if inner and isinstance(found.get(outer), dict):
            found[outer][inner] = Fragment(raw)
        else:
            found[name] = Fragment(raw)
