"""JSON Schema as far as the local engine holds its answers to it: what it leaves out, what is said otherwise for the
compiler, and where a fault in one stands.

What keywords mean is llguidance's business (1.9, tried keyword by keyword, 2026-11).
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from providers.local.schema_patterns import as_rust, looks_around

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
_OF_OTHERS: Final = frozenset(
    ("additionalProperties", "patternProperties", "unevaluatedProperties", "minProperties", "propertyNames")
)
"""Keywords that speak of properties without naming them."""
_JOINING: Final = frozenset(("allOf", "anyOf", "oneOf", "$ref", "$dynamicRef", "if", "dependentSchemas"))
"""Keywords with which a schema has more to say of the same value."""
_REACH: Final = 2**63 - 1024
"""The compiler fails on bounds beyond: the next number of 64 bits that a float holds exactly is 2**63."""


def for_compiler(schema: Any, *, lenient: bool = False) -> Any:
    """A schema for the compiler whose answers all satisfy this one.

    It is the same, with patterns in the compiler's own syntax, counts that are whole (3.0) as such, and what nothing
    satisfies as false; but bounds which allow more than the compiler's numbers reach become those, and objects have the
    properties that they name and no others, unless they say something of others: models go on and on with their own.
    Where schemas of objects are joined to one, none can say what the whole has, so all stay open.

    lenient: patterns that no grammar can hold a text to are left out.
    """
    closes = isinstance(schema, dict) and not _joins_objects(schema)
    return _Writer(closes=closes, lenient=lenient).schema(schema)


class _Writer:
    """`closes`: objects have no properties but those that they name."""

    def __init__(self, *, closes: bool, lenient: bool) -> None:
        self._closes = closes
        self._lenient = lenient

    def schema(self, schema: Any) -> Any:
        if not isinstance(schema, dict):
            return schema
        if schema.get("not") == {} or schema.get("not") is True:
            return False
        found = {keyword: self._value(keyword, value, schema) for keyword, value in schema.items()}
        pattern = schema.get("pattern")
        if self._lenient and isinstance(pattern, str) and looks_around(pattern):
            del found["pattern"]
        if self._closes and _names_all(schema):
            found["additionalProperties"] = False
        return found

    def _value(self, keyword: str, value: Any, schema: Mapping[str, Any]) -> Any:
        match value:
            case dict() if keyword in _MAPS:
                as_name = as_rust if keyword == "patternProperties" else str
                return {as_name(name): self.schema(inner) for name, inner in value.items()}
            case list() if keyword in _LISTS:
                return [self.schema(inner) for inner in value]
            case dict() if keyword in _SINGLE:
                return self.schema(value)
            case _:
                return _for_compiler(keyword, value, schema)


def _names_all(schema: Mapping[str, Any]) -> bool:
    """Whether an object's schema names its properties, all that it requires or none, and says nothing of others."""
    named, required = schema.get("properties"), schema.get("required", [])
    if not isinstance(named, dict) or not isinstance(required, list):
        return False
    return not _OF_OTHERS & schema.keys() and all(isinstance(name, str) and name in named for name in required)


def _joins_objects(schema: Mapping[str, Any]) -> bool:
    """Whether several schemas may say something of one object: more than one has to hold, or no more than one."""
    for one in (schema, *(inner for _, inner in subschemas(schema))):
        if isinstance(one, dict):
            lists = [one[keyword] for keyword in ("allOf", "oneOf") if isinstance(one.get(keyword), list)]
            if any(len(each) > 1 for each in lists) or ("properties" in one and _JOINING & one.keys()):
                return True
    return False


def _for_compiler(keyword: str, value: Any, schema: Mapping[str, Any]) -> Any:
    """The value of one keyword that holds no schemas."""
    match value:
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
