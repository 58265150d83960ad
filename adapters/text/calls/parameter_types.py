"""What a tool's JSON Schema says of the types of its parameters: as much as it takes to tell a text from JSON."""

from collections.abc import Mapping
from typing import Any, Final

import orjson

__all__ = ["TYPE_OF", "parameter_types"]

_MAX_DEPTH: Final = 16
TYPE_OF: Final[Mapping[type, str]] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    type(None): "null",
    list: "array",
    dict: "object",
}
"""The JSON type of a decoded value."""


def parameter_types(schema: bytes | None) -> Mapping[str, frozenset[str]]:
    """The JSON types that each property may have. A property is left out where its schema does not say."""
    found: Any = None if schema is None else orjson.loads(schema)
    properties = found.get("properties") if isinstance(found, dict) else None
    if not isinstance(properties, dict):
        return {}
    types = {name: _types(inner, 0) for name, inner in properties.items()}
    return {name: allowed for name, allowed in types.items() if allowed}


def _types(schema: Any, depth: int) -> frozenset[str]:
    """Empty: not known."""
    if not isinstance(schema, dict) or depth > _MAX_DEPTH:
        return frozenset()
    named = schema.get("type")
    if isinstance(named, str):
        return frozenset((named,))
    if isinstance(named, list):
        return frozenset(name for name in named if isinstance(name, str))
    values = schema["enum"] if isinstance(schema.get("enum"), list) else [schema["const"]] if "const" in schema else []
    if values:
        return frozenset(TYPE_OF[type(value)] for value in values)
    for union in ("anyOf", "oneOf"):
        if isinstance(schema.get(union), list):
            members = [_types(inner, depth + 1) for inner in schema[union]]
            return frozenset().union(*members) if all(members) else frozenset()
    return frozenset()
