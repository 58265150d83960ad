"""JSON at the door: a body becomes named raw fields, and each is taken out with its type.

Values are decoded only when a parser takes them, so what is not taken stays as it came (schemas, provider data, unknown
fields, numbers of any size). Of a name that stands twice in an object the last counts; inside a value that nobody takes
both stay. Every error is an InvalidRequest that names the path. Knows no dialect.
"""

import json
import re
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from itertools import accumulate
from typing import Any, Literal, Protocol, TypeVar

import msgspec
from msgspec import Raw
from msgspec.json import Decoder

from adapters.canonical.errors import InvalidRequest
from adapters.nearest_name import did_you_mean
from adapters.raw_json import OBJECT, OBJECTS, RAW_ITEMS, raw_fields

__all__ = [
    "Decodes",
    "JsonObject",
    "RawDecoder",
    "decode_at",
    "nesting_exceeds",
    "parse_object",
    "parse_object_at",
    "told",
]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")  # +1 and -1 as signed bytes
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_NULL = b"null"
_SHORT_BYTES = 4096
_QUOTED = re.compile("`([^`]*)`")
_WORDS = {"str": "string", "int": "integer", "float": "number", "bool": "boolean"}
"""Python's words for kinds of JSON."""


class Decodes(Protocol[T_co]):
    """A typed decoder: msgspec's, or a RawDecoder."""

    def decode(self, raw: Raw, /) -> T_co: ...


class RawDecoder:
    """Gives a value as it came, when it is of this kind of JSON."""

    __slots__ = ("_kind", "_opening")

    def __init__(self, kind: Literal["object", "array"]) -> None:
        self._kind = kind
        self._opening = b"{" if kind == "object" else b"["

    def decode(self, raw: Raw, /) -> bytes:
        value = bytes(raw)
        if not value.startswith(self._opening):
            raise msgspec.ValidationError(f"Expected `{self._kind}`")
        return value


class JsonObject:
    """The fields of one JSON object, taken out one by one. `path` says where the object stands (`messages[2]`)."""

    __slots__ = ("_fields", "_missed", "path")

    def __init__(self, fields: dict[str, Raw], path: str = "") -> None:
        self._fields = fields
        self._missed: list[str] = []
        """What was asked for and is not here."""
        self.path = path

    def at(self, name: str) -> str:
        """The path of a field of this object."""
        return f"{self.path}.{name}" if self.path else name

    def take(self, name: str, decoder: Decodes[T]) -> T | None:
        """The field's value, None where it is absent or null."""
        raw = self._fields.pop(name, None)
        if raw is None:
            self._missed.append(name)
            return None
        try:
            return decoder.decode(raw)
        except (msgspec.DecodeError, RecursionError) as error:
            if bytes(raw) == _NULL:
                return None
            raise _invalid(error, self.at(name)) from error

    def require(self, name: str, decoder: Decodes[T]) -> T:
        value = self.take(name, decoder)
        if value is None:
            raise InvalidRequest.at(self.at(name), "this field is required")
        return value

    def take_if(self, name: str, decoder: Decodes[T]) -> T | None:
        """The field's value where it is of this type; otherwise None, and the field stays."""
        raw = self._fields.get(name)
        if raw is None:
            return None
        try:
            value = decoder.decode(raw)
        except (msgspec.DecodeError, RecursionError):
            return None
        del self._fields[name]
        return value

    def take_raw(self, name: str) -> bytes | None:
        """The field as it came, None where it is absent or null."""
        raw = self._fields.pop(name, None)
        if raw is None:
            self._missed.append(name)
            return None
        value = bytes(raw)
        return None if value == _NULL else value

    def peek_raw(self, name: str) -> bytes | None:
        """The field as it came, left in place."""
        raw = self._fields.get(name)
        return None if raw is None else bytes(raw)

    def take_object(self, name: str) -> "JsonObject | None":
        fields = self.take(name, OBJECT)
        return None if fields is None else JsonObject(fields, self.at(name))

    def require_object(self, name: str) -> "JsonObject":
        return JsonObject(self.require(name, OBJECT), self.at(name))

    def take_objects(self, name: str) -> "list[JsonObject] | None":
        """A list of objects."""
        rows = self.take(name, OBJECTS)
        if rows is None:
            return None
        path = self.at(name)
        return [JsonObject(row, f"{path}[{i}]") for i, row in enumerate(rows)]

    def require_objects(self, name: str) -> "list[JsonObject]":
        """A list of objects that must be there and not be empty."""
        rows = self.take_objects(name)
        if rows is None:
            raise InvalidRequest.at(self.at(name), "this field is required")
        if not rows:
            raise InvalidRequest.at(self.at(name), "the list must not be empty")
        return rows

    def respelled(self, spell: Callable[[str], str]) -> "JsonObject":
        """The same object with other names of its fields; of two that become one the last counts."""
        return JsonObject({spell(name): raw for name, raw in self._fields.items()}, self.path)

    def names(self) -> list[str]:
        """The names of the fields that nobody took yet."""
        return list(self._fields)

    def refuse_rest(self) -> None:
        """For an object that nobody else reads: what was not taken is unknown."""
        for name in self._fields:
            meant = did_you_mean(name, self._missed)
            raise InvalidRequest.at(self.at(name), f"unknown field{meant}")

    def __contains__(self, name: str) -> bool:
        return name in self._fields

    def has_any(self, names: AbstractSet[str]) -> bool:
        """Whether a field of these names is there, null or not."""
        return not names.isdisjoint(self._fields)

    def rest(self) -> dict[str, bytes]:
        """What nobody took, as it came."""
        fields = self._fields
        return {name: bytes(raw) for name, raw in fields.items()} if fields else {}

    def said(self) -> dict[str, bytes]:
        """The same where null is the same as absent."""
        return {name: raw for name, raw in self.rest().items() if raw != b"null"}


def parse_object(body: bytes, *, max_depth: int) -> JsonObject:
    """The object in a request body, or InvalidRequest: not UTF-8, broken JSON, nested too deep, lone surrogates."""
    if not body.strip():
        raise InvalidRequest("the body is empty; expected a JSON object", code="invalid_json")
    if not body.isascii():
        try:
            body.decode()
        except UnicodeDecodeError as error:
            raise InvalidRequest(
                f"the body is not valid UTF-8 at byte {error.start}", code="invalid_unicode"
            ) from error
    try:
        fields = raw_fields(body)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"the body must be a JSON object: {told(error)}", code="invalid_json") from error
    except (msgspec.DecodeError, RecursionError) as error:
        if nesting_exceeds(body, max_depth):
            raise _too_deep(max_depth) from error
        _refuse_what_is_not_json(body)
        why = str(error).removeprefix("JSON is malformed: ")
        where = "" if "byte" in why else f" (byte {len(body)})"
        raise InvalidRequest(f"the body is not valid JSON: {why}{where}", code="invalid_json") from error
    if _body_exceeds(body, fields, max_depth):
        raise _too_deep(max_depth)
    if b"\\" in body and _SURROGATE.search(body):
        _refuse_what_is_not_json(body)
    return JsonObject(fields)


def _body_exceeds(body: bytes, fields: dict[str, Raw], max_depth: int) -> bool:
    """The same as `nesting_exceeds` for a body of these fields. A long one is looked at piece by piece, where it has to
    be: most pieces (messages, tools) are so small that counting their brackets is enough. Of the others (pictures) no
    more than one is copied at a time."""
    if len(body) <= _SHORT_BYTES or _num_openings(body) <= max_depth:
        return nesting_exceeds(body, max_depth)
    for raw in fields.values():
        if bytes(memoryview(raw)[:1]) != b"[":
            if nesting_exceeds(bytes(raw), max_depth - 1):
                return True
        elif max_depth < 2 or any(nesting_exceeds(bytes(element), max_depth - 2) for element in RAW_ITEMS.decode(raw)):
            return True
    return False


def _too_deep(max_depth: int) -> InvalidRequest:
    return InvalidRequest(f"the body is nested too deep; the limit is {max_depth}", code="nesting_too_deep")


def decode_at(raw: bytes | Raw, decoder: Decoder[T], path: str) -> T:
    """The value of raw JSON that stands at `path` of a request."""
    try:
        return decoder.decode(raw)
    except (msgspec.DecodeError, RecursionError) as error:
        raise _invalid(error, path) from error


def parse_object_at(raw: bytes | Raw, path: str) -> JsonObject:
    """The object in raw JSON that stands at `path` of a request."""
    return JsonObject(decode_at(raw, OBJECT, path), path)


def nesting_exceeds(data: bytes, max_depth: int) -> bool:
    """Whether JSON text nests deeper than this. Brackets in strings do not count. Never recurses."""
    if _num_openings(data) <= max_depth:
        return False
    if b'\\"' in data:
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    outside_strings = b"".join(data.split(b'"')[::2])
    steps = outside_strings.translate(_STEPS, _NOT_BRACKETS)
    too_deep = b"\x01" * (max_depth + 1)
    return too_deep in steps or max(accumulate(memoryview(steps).cast("b")), default=0) > max_depth


def _num_openings(data: bytes) -> int:
    """How many brackets open. `count` looks at each byte, `replace` leaps to the next that it is for (Python 3.11)."""
    return 2 * len(data) - len(data.replace(b"[", b"")) - len(data.replace(b"{", b""))


def _invalid(error: Exception, path: str) -> InvalidRequest:
    """msgspec's message, with its own inner path (`$[0].name`) joined to ours."""
    _, _, inner = str(error).partition(" - at `")
    path += inner.removeprefix("key` in `").removeprefix("$").removesuffix("`").removesuffix("[...]")
    return InvalidRequest.at(path, told(error))


def told(error: Exception) -> str:
    """A decoder's message in the words of JSON, without the place: `expected string or array, got integer`."""
    text, _, _ = str(error).partition(" - at `")
    text = _QUOTED.sub(lambda found: " or ".join(_WORDS.get(w, w) for w in found[1].split(" | ")), text)
    return text[:1].lower() + text[1:]


class _NotJson:
    """Stands for the words NaN, Infinity and -Infinity in a decoded document."""

    def __init__(self, word: str) -> None:
        self.word = word


def _refuse_what_is_not_json(body: bytes) -> None:
    """Decodes slowly, only to name the path of a lone surrogate or of a number word that JSON does not have.

    Objects become tuples of pairs, so that a repeated name hides nothing; digits are not converted.
    """
    try:
        document = json.loads(body, object_pairs_hook=tuple, parse_constant=_NotJson, parse_int=len, parse_float=len)
    except (ValueError, RecursionError):
        return  # the fast decoder says what is wrong
    for path, leaf in _leaves(document):
        if isinstance(leaf, _NotJson):
            raise InvalidRequest.at(path, f"{leaf.word} is not a JSON number", code="invalid_json")
        if any("\ud800" <= char <= "\udfff" for char in leaf):
            raise InvalidRequest.at(
                path, "the string holds a lone surrogate, which is not valid Unicode", code="invalid_unicode"
            )


def _leaves(document: Any) -> Iterator[tuple[str, str | _NotJson]]:
    """Every string of a decoded document with its path, names included, and what is not JSON. Iterative."""
    todo: list[tuple[str, Any]] = [("", document)]
    while todo:
        path, value = todo.pop()
        if isinstance(value, str | _NotJson):
            yield path, value
        elif isinstance(value, tuple):
            for name, item in value:
                yield path or "$", name
                todo.append((f"{path}.{name}" if path else name, item))
        elif isinstance(value, list):
            todo.extend((f"{path}[{i}]", item) for i, item in enumerate(value))
