"""Constraints in a JSON Schema that a target does not hold its answers to: where they stand, and the schema without.

Knows how schemas nest and nothing of what keywords mean. A schema that lacks nothing is never decoded and rebuilt for
the target (law 9).
"""

from collections.abc import Iterator, Mapping
from typing import Any

import orjson

__all__ = ["Lacks", "unenforced", "without_unenforced"]

Lacks = Mapping[str, tuple[object, ...]]
"""Keywords, each with the values that are kept all the same."""

_SCHEMA_BY_NAME = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_SCHEMA = ("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames")
_SCHEMAS = ("anyOf", "allOf", "oneOf", "prefixItems")


def unenforced(schema: bytes, lacks: Lacks) -> list[str]:
    """Where they stand, as dotted paths from the schema's root."""
    if not lacks or not any(f'"{keyword}"'.encode() in schema for keyword in lacks):
        return []
    return [path for path, _, _ in _found(_decoded(schema), lacks, "")]


def without_unenforced(schema: bytes, lacks: Lacks) -> bytes:
    decoded = _decoded(schema)
    for _, holder, keyword in list(_found(decoded, lacks, "")):
        del holder[keyword]
    return orjson.dumps(decoded)


def _decoded(schema: bytes) -> Any:
    try:
        return orjson.loads(schema)
    except orjson.JSONDecodeError:  # numbers over 64 bits: nobody else is worse off
        return {}


def _found(schema: Any, lacks: Lacks, path: str) -> Iterator[tuple[str, dict[str, Any], str]]:
    if not isinstance(schema, dict):
        return
    for keyword, value in schema.items():
        at = f"{path}.{keyword}" if path else keyword
        if keyword in lacks and value not in lacks[keyword]:
            yield at, schema, keyword
        elif keyword in _SCHEMA_BY_NAME and isinstance(value, dict):
            for name, inner in value.items():
                yield from _found(inner, lacks, f"{at}.{name}")
        elif keyword in _SCHEMA:
            yield from _found(value, lacks, at)
        elif keyword in _SCHEMAS and isinstance(value, list):
            for number, inner in enumerate(value):
                yield from _found(inner, lacks, f"{at}[{number}]")
