"""JSON Schema as far as the local engine holds its answers to it: what it leaves out, and where a fault in one stands.

Says nothing about what keywords mean; that is llguidance's business (1.9, tried keyword by keyword, 2026-11).
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

__all__ = ["SCHEMA_LACKS", "subschemas"]

SCHEMA_LACKS: Final[Mapping[str, tuple[object, ...]]] = {
    **dict.fromkeys(
        (
            "contains", "minContains", "maxContains", "not", "if", "then", "else", "dependencies", "dependentRequired",
            "dependentSchemas", "propertyNames", "unevaluatedItems", "unevaluatedProperties", "$dynamicRef",
            "$recursiveRef",
        ),
        (),
    ),
    "uniqueItems": (False,),
    "format": (
        "date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uri", "uuid",
    ),
}  # fmt: skip
"""See `providers.base.Capabilities.schema_lacks`."""
_MAPS: Final = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_LISTS: Final = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
_SINGLE: Final = (
    "items", "additionalProperties", "additionalItems", "not", "if", "then", "else", "contains", "propertyNames",
    "unevaluatedItems", "unevaluatedProperties",
)  # fmt: skip


def subschemas(schema: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Every place where a schema belongs, with what stands there, outer ones first. Never recurses."""
    todo: list[tuple[str, Any]] = [("", schema)]
    while todo:
        path, one = todo.pop()
        if path:
            yield path, one
        if not isinstance(one, dict):
            continue
        for keyword, value in one.items():
            if keyword in _MAPS and isinstance(value, dict):
                todo += [(f"{path}.{keyword}.{name}", inner) for name, inner in value.items()]
            elif keyword in _LISTS and isinstance(value, list):
                todo += [(f"{path}.{keyword}[{place}]", inner) for place, inner in enumerate(value)]
            elif keyword in _SINGLE:
                todo.append((f"{path}.{keyword}", value))
