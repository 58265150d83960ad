"""OpenAI's output formats, both ways, and the other names that servers have for them. A schema passes as raw JSON,
never decoded (law 9).

Chat has `response_format`, with a schema inside an object of its own; the Responses API has a flat `text.format`. The
other names are those of vLLM 0.33 (`structured_outputs`, and `guided_*` of before), SGLang (`regex`, `ebnf`,
`json_schema`), llama.cpp (`grammar`, `json_schema`) and TensorRT-LLM (types of `response_format`), read 2026-08. They
all say one thing, so only one of them may be there.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final

import orjson
from msgspec import Meta
from msgspec.json import Decoder
from msgspec.structs import replace

from adapters.canonical.errors import InvalidRequest, UnsupportedParameter
from adapters.canonical.request import OutputFormat
from adapters.field_types import BOOL, NAME, RAW_OBJECT, TEXT
from adapters.json_fields import JsonObject, nesting_exceeds
from adapters.openai.vocabulary import CHAT, RESPONSES

__all__ = [
    "FORMAT_ALIASES",
    "FORMAT_TYPES",
    "RESPONSE_FORMAT",
    "format_fields",
    "only_format",
    "parse_output_format",
    "parse_response_format",
    "response_format_object",
]

RESPONSE_FORMAT: Final = "response_format"
_JSON_OBJECT: Final = "json_object"
_JSON_SCHEMA: Final = "json_schema"
_CHOICES: Final = Decoder(Annotated[list[Annotated[str, Meta(min_length=1)]], Meta(min_length=1)])
_MAX_DEPTH: Final = 128
"""Of a schema inside a text."""


def parse_output_format(body: JsonObject) -> OutputFormat | None:
    """The one format that a body of chat or completions asks for, under whatever name."""
    return only_format(body, parse_response_format(body))


def only_format(body: JsonObject, found: OutputFormat | None) -> OutputFormat | None:
    """`found` stands in the dialect's own field; or what stands in the body under one of the other names."""
    if not body.has_any(FORMAT_ALIASES.keys()):
        return found
    formats = [found, *(_parse_alias(body, name, read) for name, read in FORMAT_ALIASES.items() if name in body)]
    given = [one for one in formats if one is not None]
    if len(given) > 1:
        first, second = ((one.field or one.path or RESPONSE_FORMAT).partition(".")[0] for one in given[:2])
        raise InvalidRequest.at(second, f"not allowed together with {first}")
    return given[0] if given else None


def parse_response_format(body: JsonObject, field: str = RESPONSE_FORMAT) -> OutputFormat | None:
    """`{"type": "text"}` is what every model does, so it asks for nothing. A format under another name is flat."""
    raw = body.peek_raw(field)
    found = body.take_object(field)
    if found is None or raw is None:
        return None
    kind = found.require("type", TEXT)
    if kind == "text":
        return None
    if kind == _JSON_SCHEMA:
        return _parse_json_schema(found, raw, is_flat=field != RESPONSE_FORMAT)
    reader = _TYPES.get(kind)
    return OutputFormat(kind=kind, raw=raw, path=found.path) if reader is None else reader(found, raw)


def _parse_json_schema(found: JsonObject, raw: bytes, *, is_flat: bool) -> OutputFormat:
    schema = found if is_flat else found.require_object(_JSON_SCHEMA)
    return OutputFormat(
        kind=_JSON_SCHEMA,
        name=schema.require("name", NAME),
        description=schema.take("description", TEXT),
        schema=schema.take("schema", RAW_OBJECT),
        strict=schema.take("strict", BOOL),
        path=schema.at("schema"),
        raw=raw,
    )


def _json_type(found: JsonObject, raw: bytes) -> OutputFormat:
    """JSON, of a schema where there is one (TensorRT-LLM, llama.cpp)."""
    schema = found.take("schema", RAW_OBJECT)
    kind = _JSON_OBJECT if schema is None else _JSON_SCHEMA
    return OutputFormat(kind=kind, schema=schema, path=found.at("schema") if schema else found.path, raw=raw)


def _text_type(kind: str, *names: str) -> Callable[[JsonObject, bytes], OutputFormat]:
    """A type whose expression is a text, under one of these names."""

    def read(found: JsonObject, raw: bytes) -> OutputFormat:
        name = next((name for name in names if name in found), names[0])
        return OutputFormat(kind=kind, text=found.require(name, NAME), path=found.at(name), raw=raw)

    return read


def _tag_type(found: JsonObject, raw: bytes) -> OutputFormat:
    return OutputFormat(kind="structural_tag", schema=raw, path=found.path, raw=raw)


_TYPES: Final[Mapping[str, Callable[[JsonObject, bytes], OutputFormat]]] = {
    _JSON_OBJECT: _json_type,
    "json": _json_type,
    "regex": _text_type("regex", "regex", "pattern"),
    "ebnf": _text_type("grammar", "ebnf", "grammar"),
    "grammar": _text_type("grammar", "grammar"),
    "structural_tag": _tag_type,
}
"""Types of a format beside those of OpenAI."""
FORMAT_TYPES: Final = ("text", _JSON_SCHEMA, *_TYPES)
"""All of them. Any other is a server's own, and goes to servers of this dialect alone."""


def _schema(body: JsonObject, name: str) -> OutputFormat | None:
    """A schema, or the text of one."""
    text = body.take_if(name, TEXT)
    if text is None:
        schema = body.take(name, RAW_OBJECT)
    else:
        schema = _object_in(text, body.at(name)) if text else None
    return None if schema is None else OutputFormat(kind=_JSON_SCHEMA, schema=schema, path=body.at(name))


def _object_in(text: str, path: str) -> bytes:
    raw = text.strip().encode()
    if nesting_exceeds(raw, _MAX_DEPTH):
        raise InvalidRequest.at(path, f"nested too deep; the limit is {_MAX_DEPTH}")
    try:
        is_object = isinstance(orjson.loads(raw), dict)
    except orjson.JSONDecodeError as error:
        raise InvalidRequest.at(path, f"not JSON: {error}") from error
    if not is_object:
        raise InvalidRequest.at(path, "expected an object")
    return raw


def _text(kind: str) -> Callable[[JsonObject, str], OutputFormat | None]:
    def read(body: JsonObject, name: str) -> OutputFormat | None:
        text = body.take(name, TEXT)
        return OutputFormat(kind=kind, text=text, path=body.at(name)) if text else None

    return read


def _choice(body: JsonObject, name: str) -> OutputFormat | None:
    choices = body.take(name, _CHOICES)
    return None if choices is None else OutputFormat(kind="choice", choices=tuple(choices), path=body.at(name))


def _any_object(body: JsonObject, name: str) -> OutputFormat | None:
    return OutputFormat(kind=_JSON_OBJECT, path=body.at(name)) if body.take(name, BOOL) else None


def _tag(body: JsonObject, name: str) -> OutputFormat | None:
    found = _schema(body, name)
    return None if found is None else OutputFormat(kind="structural_tag", schema=found.schema, path=found.path)


_MEMBERS: Final[Mapping[str, Callable[[JsonObject, str], OutputFormat | None]]] = {
    "json": _schema,
    "regex": _text("regex"),
    "choice": _choice,
    "grammar": _text("grammar"),
    "json_object": _any_object,
    "structural_tag": _tag,
}
_OF_BACKENDS: Final = ("disable_fallback", "backend", "backend_was_auto")
"""Which library a server uses is its own business: here there is one."""


def _structured_outputs(body: JsonObject, name: str) -> OutputFormat | None:
    """vLLM's object: one constraint, and how the JSON is spaced."""
    found = body.take_object(name)
    if found is None:
        return None
    given = [one for member, read in _MEMBERS.items() if (one := read(found, member)) is not None]
    if len(given) != 1:
        names = ", ".join(_MEMBERS)
        raise InvalidRequest.at(name, f"expected one of {names}, got {len(given) or 'none'} of them")
    is_tight = found.take("disable_any_whitespace", BOOL)
    whitespace = "" if is_tight else found.take("whitespace_pattern", NAME)
    for option in _OF_BACKENDS:
        found.take_raw(option)
    unmapped = tuple(option for option, raw in found.rest().items() if raw not in (b"null", b"false"))
    return replace(given[0], whitespace=whitespace, unmapped=unmapped)


FORMAT_ALIASES: Final[Mapping[str, Callable[[JsonObject, str], OutputFormat | None]]] = {
    "structured_outputs": _structured_outputs,
    "guided_json": _schema,
    "guided_regex": _text("regex"),
    "guided_choice": _choice,
    "guided_grammar": _text("grammar"),
    "json_schema": _schema,
    "regex": _text("regex"),
    "ebnf": _text("grammar"),
    "grammar": _text("grammar"),
}


def _parse_alias(
    body: JsonObject, name: str, read: Callable[[JsonObject, str], OutputFormat | None]
) -> OutputFormat | None:
    raw = body.peek_raw(name)
    found = read(body, name)
    return None if found is None else replace(found, field=name, raw=raw)


def format_fields(wanted: OutputFormat, client: str, dialect: str = CHAT) -> dict[str, Any]:
    """The top-level field of a body that asks for it: the client's own one where it spoke this dialect."""
    if wanted.field is not None and wanted.raw is not None and client == dialect:
        return {wanted.field: orjson.Fragment(wanted.raw)}
    return {RESPONSE_FORMAT: response_format_object(wanted, client, dialect)}


def response_format_object(wanted: OutputFormat, client: str, dialect: str = CHAT) -> Any:
    """As the client spelled it, where it spoke this dialect and used its own field."""
    if wanted.raw is not None and client == dialect and wanted.field is None:
        return orjson.Fragment(wanted.raw)
    field = wanted.field or RESPONSE_FORMAT
    if wanted.kind not in (_JSON_OBJECT, _JSON_SCHEMA):
        raise UnsupportedParameter.at(field, f"{dialect} has no format {wanted.kind}")
    if wanted.whitespace is not None or wanted.unmapped:
        option = wanted.unmapped[0] if wanted.unmapped else "whitespace_pattern"
        raise UnsupportedParameter.at(f"{field}.{option}", f"{dialect} has no such option")
    if wanted.kind == _JSON_OBJECT:
        return {"type": _JSON_OBJECT}
    schema: dict[str, Any] = {"name": wanted.name or "answer"}
    if wanted.description is not None:
        schema["description"] = wanted.description
    if wanted.schema is not None:
        schema["schema"] = orjson.Fragment(wanted.schema)
    if wanted.strict is not None:
        schema["strict"] = wanted.strict
    return {"type": _JSON_SCHEMA, **schema} if dialect == RESPONSES else {"type": _JSON_SCHEMA, _JSON_SCHEMA: schema}
