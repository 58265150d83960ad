"""Which constraints of a JSON Schema the makers of models do not hold structured answers to.

By keyword, with the values that are kept all the same. Sources: the schema transform of anthropic's SDK 2.14; the
lists of supported keywords in Gemini's and in Cohere's references (2026-11).
"""

from collections.abc import Mapping

__all__ = ["ANTHROPIC", "COHERE", "GEMINI"]

_FORMATS = ("date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid")
_NUMBERS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_TEXTS = ("minLength", "maxLength", "pattern")
_OBJECTS = ("minProperties", "maxProperties", "patternProperties", "propertyNames", "dependentRequired")
_ARRAYS = ("uniqueItems", "contains", "minContains", "maxContains")
_LOGIC = ("not", "if", "dependentSchemas")

_NO_VALUE: tuple[object, ...] = ()

ANTHROPIC: Mapping[str, tuple[object, ...]] = {
    **dict.fromkeys((*_NUMBERS, *_TEXTS, *_OBJECTS, *_ARRAYS, *_LOGIC, "maxItems"), _NO_VALUE),
    "minItems": (0, 1),
    "format": _FORMATS,
}
GEMINI: Mapping[str, tuple[object, ...]] = dict.fromkeys(
    ("exclusiveMinimum", "exclusiveMaximum", "multipleOf", *_TEXTS, *_OBJECTS, *_ARRAYS, *_LOGIC), _NO_VALUE
)
COHERE: Mapping[str, tuple[object, ...]] = dict.fromkeys(
    (*_NUMBERS, "minLength", "maxLength", *_OBJECTS, *_ARRAYS, *_LOGIC, "minItems", "maxItems"), _NO_VALUE
)
