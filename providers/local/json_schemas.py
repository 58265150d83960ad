"""JSON Schema as far as the local engine holds its answers to it: what it leaves out, what is said otherwise for the
compiler, and where a fault in one stands.

What keywords mean is llguidance's business (1.9, tried keyword by keyword, 2026-11).
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from providers.local.schema_patterns import as_rust

__all__ = ["SCHEMA_LACKS", "for_compiler", "subschemas"]

SCHEMA_LACKS: Final[Mapping[str, tuple[object, ...]]] = {
    **dict.fromkeys(
        (
            "contains", "minContains", "maxContains", "if", "then", "else", "dependencies", "dependentRequired",
            "dependentSchemas", "propertyNames", "unevaluatedItems", "unevaluatedProperties", "$dynamicRef",
            "$recursiveRef",
        ),
        (),
    ),
    "not": ({}, True),  # what nothing satisfies
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
_COUNTS: Final = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
_LOWEST: Final = ("minimum", "exclusiveMinimum")
_HIGHEST: Final = ("maximum", "exclusiveMaximum")
_REACH: Final = 2**63 - 1024
"""The compiler fails on bounds beyond: the next number of 64 bits that a float holds exactly is 2**63."""


def for_compiler(schema: Any) -> Any:
    """The same schema as the compiler reads it: patterns in its own syntax, counts that are whole (3.0) as such, what
    nothing satisfies as false. Bounds that allow more than its numbers reach become those, so an answer fits as well.
    """
    if not isinstance(schema, dict):
        return schema
    if schema.get("not") == {} or schema.get("not") is True:
        return False
    return {keyword: _for_compiler(keyword, value, schema) for keyword, value in schema.items()}


def _for_compiler(keyword: str, value: Any, schema: Mapping[str, Any]) -> Any:
    """The value of one keyword."""
    match value:
        case dict() if keyword in _MAPS:
            as_name = as_rust if keyword == "patternProperties" else str
            return {as_name(name): for_compiler(inner) for name, inner in value.items()}
        case list() if keyword in _LISTS:
            return [for_compiler(inner) for inner in value]
        case dict() if keyword in _SINGLE:
            return for_compiler(value)
        case str() if keyword == "pattern":
            return as_rust(value)
        case float() if keyword in _COUNTS and value.is_integer():
            return int(value)
        case int() | float() if keyword in _LOWEST and not isinstance(value, bool):
            return max(value, -_REACH)
        case int() | float() if keyword in _HIGHEST and not isinstance(value, bool) and schema.get("type") != "integer":
            return min(value, _REACH)
        case _:
            return value


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
