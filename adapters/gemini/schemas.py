"""Google's older schemas (a subset of OpenAPI 3) as JSON Schema, for targets that know only that.

A client's JSON Schema passes as it came; only this older form has to be read and written anew.
"""

from typing import Any

import orjson

from adapters.canonical.errors import InvalidRequest

__all__ = ["json_schema_of"]

_NAMED = ("properties", "$defs", "defs")
_NESTED = ("items", "additionalProperties")
_LISTED = ("anyOf", "any_of", "prefixItems")
_SPELLINGS = {
    "any_of": "anyOf",
    "min_items": "minItems",
    "max_items": "maxItems",
    "min_length": "minLength",
    "max_length": "maxLength",
    "min_properties": "minProperties",
    "max_properties": "maxProperties",
    "property_ordering": "propertyOrdering",
    "additional_properties": "additionalProperties",
    "defs": "$defs",
    "ref": "$ref",
}
_COUNTS = ("minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties")
"""Google's JSON has 64-bit counts as text."""


def json_schema_of(raw: bytes, path: str) -> bytes:
    """Types in lower case, `nullable` as a type, counts as numbers. Raises InvalidRequest, naming the path."""
    try:
        found = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise InvalidRequest.at(path, f"not JSON that can be read: {error}") from error
    if not isinstance(found, dict):
        raise InvalidRequest.at(path, "expected an object")
    return orjson.dumps(_converted(found))


def _converted(schema: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for spelled, value in schema.items():
        name = _SPELLINGS.get(spelled, spelled)
        if spelled in _NAMED and isinstance(value, dict):
            found[name] = {key: _inner(inner) for key, inner in value.items()}
        elif spelled in _NESTED:
            found[name] = _inner(value)
        elif spelled in _LISTED and isinstance(value, list):
            found[name] = [_inner(inner) for inner in value]
        elif name in _COUNTS and isinstance(value, str) and value.isdigit():
            found[name] = int(value)
        elif name == "type" and isinstance(value, str):
            found[name] = value.lower()
        else:
            found[name] = value
    if found.pop("nullable", None) is True:
        _allow_null(found)
    return found


def _inner(value: Any) -> Any:
    return _converted(value) if isinstance(value, dict) else value


def _allow_null(schema: dict[str, Any]) -> None:
    if isinstance(schema.get("type"), str):
        schema["type"] = [schema["type"], "null"]
        if isinstance(schema.get("enum"), list) and None not in schema["enum"]:
            schema["enum"] = [*schema["enum"], None]
    elif isinstance(schema.get("anyOf"), list):
        schema["anyOf"] = [*schema["anyOf"], {"type": "null"}]
