"""JSON at the door: a body becomes named raw fields, and each is taken out with its type.

Values are decoded only when a parser takes them, so what is not taken stays as it came (schemas, provider data, unknown
fields, numbers of any size). Every error is an InvalidRequest that names the path. Knows no dialect.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec
from msgspec import Raw
from msgspec.json import Decoder

from adapters.canonical.errors import InvalidRequest

__all__ = ["JsonObject", "decode_at", "nesting_exceeds", "parse_object"]

T = TypeVar("T")

_OBJECT = Decoder(dict[str, Raw])
_OBJECTS = Decoder(list[dict[str, Raw]])
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]', re.DOTALL)
_BRACKETS = b"[]{}"
_NOT_BRACKETS = bytes(set(range(256)) - set(_BRACKETS))
_NULL = b"null"


class JsonObject:
    """The fields of one JSON object, taken out one by one. `path` says where the object stands (`messages[2]`)."""

    __slots__ = ("_fields", "path")

    def __init__(self, fields: dict[str, Raw], path: str = "") -> None:
        self._fields = fields
        self.path = path

    def at(self, name: str) -> str:
        """The path of a field of this object."""
        return f"{self.path}.{name}" if self.path else name

    def take(self, name: str, decoder: "Decoder[T]") -> T | None:
        """The field's value, None where it is absent or null."""
        raw = self._fields.pop(name, None)
        if raw is None:
            return None
        try:
            return decoder.decode(raw)
        except (msgspec.DecodeError, RecursionError) as error:
            if bytes(raw) == _NULL:
                return None
            raise _invalid(error, self.at(name)) from error

    def require(self, name: str, decoder: "Decoder[T]") -> T:
        value = self.take(name, decoder)
        if value is None:
            raise InvalidRequest(f"{self.at(name)}: this field is required", param=self.at(name))
        return value

    def take_raw(self, name: str) -> bytes | None:
        """The field as it came, None where it is absent or null."""
        raw = self._fields.pop(name, None)
        if raw is None:
            return None
        value = bytes(raw)
        return None if value == _NULL else value

    def peek_raw(self, name: str) -> bytes | None:
        """The field as it came, left in place."""
        raw = self._fields.get(name)
        return None if raw is None else bytes(raw)

    def take_object(self, name: str) -> "JsonObject | None":
        fields = self.take(name, _OBJECT)
        return None if fields is None else JsonObject(fields, self.at(name))

    def take_objects(self, name: str) -> "list[JsonObject] | None":
        """A list of objects."""
        rows = self.take(name, _OBJECTS)
        if rows is None:
            return None
        path = self.at(name)
        return [JsonObject(row, f"{path}[{i}]") for i, row in enumerate(rows)]

    def names(self) -> list[str]:
        """The names of the fields that nobody took yet."""
        return list(self._fields)

    def __contains__(self, name: str) -> bool:
        return name in self._fields

    def rest(self) -> dict[str, bytes]:
        """What nobody took, as it came."""
        fields = self._fields
        return {name: bytes(raw) for name, raw in fields.items()} if fields else {}


def parse_object(body: bytes, *, max_depth: int) -> JsonObject:
    """The object in a request body, or InvalidRequest: not UTF-8, broken JSON, nested too deep, lone surrogates."""
    if not body.isascii():
        try:
            body.decode()
        except UnicodeDecodeError as error:
            raise InvalidRequest(
                f"the body is not valid UTF-8 at byte {error.start}", code="invalid_unicode"
            ) from error
    if nesting_exceeds(body, max_depth):
        raise InvalidRequest(f"the body is nested too deep; the limit is {max_depth}", code="nesting_too_deep")
    if _SURROGATE.search(body):
        _refuse_lone_surrogates(body)
    try:
        return JsonObject(_OBJECT.decode(body))
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"the body must be a JSON object: {error}", code="invalid_json") from error
    except msgspec.DecodeError as error:
        where = "" if "byte" in str(error) else f" (byte {len(body)})"
        raise InvalidRequest(f"the body is not valid JSON: {error}{where}", code="invalid_json") from error


def decode_at(raw: bytes, decoder: "Decoder[T]", path: str) -> T:
    """The value of raw JSON that stands at `path` of a request."""
    try:
        return decoder.decode(raw)
    except (msgspec.DecodeError, RecursionError) as error:
        raise _invalid(error, path) from error


def nesting_exceeds(data: bytes, max_depth: int) -> bool:
    """Whether JSON text nests deeper than this. Brackets in strings do not count. Never recurses."""
    if data.count(b"[") + data.count(b"{") <= max_depth:
        return False
    brackets = data.translate(None, _NOT_BRACKETS)
    for _ in range(min(max_depth, 32)):  # each pass takes the innermost level away, in C
        shorter = brackets.replace(b"{}", b"").replace(b"[]", b"")
        if not shorter:
            return False
        if len(shorter) == len(brackets):
            break
        brackets = shorter
    depth = 0
    for token in _TOKEN.finditer(data):  # exact, and leaves as soon as the limit is passed
        byte = data[token.start()]
        if byte in b"[{":
            depth += 1
            if depth > max_depth:
                return True
        elif byte in b"]}":
            depth -= 1
    return False


def _invalid(error: Exception, path: str) -> InvalidRequest:
    """msgspec's message, with its own inner path (`$[0].name`) joined to ours."""
    text, _, inner = str(error).partition(" - at `$")
    path += inner.removesuffix("`")
    text = text.replace("`", "")
    return InvalidRequest(f"{path}: {text[:1].lower()}{text[1:]}", param=path)


def _refuse_lone_surrogates(body: bytes) -> None:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return  # broken JSON, or an integer of thousands of digits; the typed decoder names it
    for path, text in _strings(document):
        if any("\ud800" <= char <= "\udfff" for char in text):
            raise InvalidRequest(
                f"{path}: the string holds a lone surrogate, which is not valid Unicode",
                param=path,
                code="invalid_unicode",
            )


def _strings(document: Any) -> Iterator[tuple[str, str]]:
    """Every string of a decoded document with its path, keys included. Iterative."""
    todo: list[tuple[str, Any]] = [("", document)]
    while todo:
        path, value = todo.pop()
        if isinstance(value, str):
            yield path, value
        elif isinstance(value, dict):
            for key, item in value.items():
                yield path or "$", key
                todo.append((f"{path}.{key}" if path else key, item))
        elif isinstance(value, list):
            todo.extend((f"{path}[{i}]", item) for i, item in enumerate(value))
