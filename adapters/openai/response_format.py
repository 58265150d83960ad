"""OpenAI's output formats, both ways. A schema passes as raw JSON, never decoded (law 9).

Chat has `response_format`, with a schema inside an object of its own; the Responses API has a flat `text.format`.
"""

from typing import Any

import orjson

from adapters.canonical.errors import InvalidRequest, UnsupportedParameter
from adapters.canonical.request import OutputFormat
from adapters.json_fields import JsonObject
from adapters.openai.vocabulary import BOOL, CHAT, NAME, RAW_OBJECT, RESPONSES, TEXT

__all__ = ["parse_response_format", "response_format_object"]

_FIELD = "response_format"
_JSON_OBJECT = "json_object"
_JSON_SCHEMA = "json_schema"


def parse_response_format(body: JsonObject, field: str = _FIELD) -> OutputFormat | None:
    """`{"type": "text"}` is what every model does, so it asks for nothing. A format under another name is flat."""
    raw = body.peek_raw(field)
    found = body.take_object(field)
    if found is None or raw is None:
        return None
    kind = found.require("type", TEXT)
    if kind == "text":
        return None
    if kind != _JSON_SCHEMA:
        return OutputFormat(kind=kind, raw=raw)
    schema = found.take_object(_JSON_SCHEMA) if field == _FIELD else found
    if schema is None:
        path = found.at(_JSON_SCHEMA)
        raise InvalidRequest(f"{path}: this field is required", param=path)
    return OutputFormat(
        kind=kind,
        name=schema.require("name", NAME),
        description=schema.take("description", TEXT),
        schema=schema.take("schema", RAW_OBJECT),
        strict=schema.take("strict", BOOL),
        raw=raw,
    )


def response_format_object(wanted: OutputFormat, client: str, dialect: str = CHAT) -> Any:
    """As the client spelled it, where it spoke this dialect."""
    if wanted.raw is not None and client == dialect:
        return orjson.Fragment(wanted.raw)
    if wanted.kind == _JSON_OBJECT:
        return {"type": _JSON_OBJECT}
    if wanted.kind != _JSON_SCHEMA:
        raise UnsupportedParameter(f"{_FIELD}: {dialect} has no format {wanted.kind}", param=_FIELD)
    schema: dict[str, Any] = {"name": wanted.name or "answer"}
    if wanted.description is not None:
        schema["description"] = wanted.description
    if wanted.schema is not None:
        schema["schema"] = orjson.Fragment(wanted.schema)
    if wanted.strict is not None:
        schema["strict"] = wanted.strict
    return {"type": _JSON_SCHEMA, **schema} if dialect == RESPONSES else {"type": _JSON_SCHEMA, _JSON_SCHEMA: schema}
