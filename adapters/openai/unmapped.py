"""Fields of answers that we do not map: told apart, and placed again for a client of the same dialect.

The typed decoder of a chunk forbids unknown fields, which costs nothing while there are none; only a chunk that has
some comes here and is read again, slowly.
"""

from functools import cache
from typing import Any

import msgspec
import orjson
from msgspec import Raw
from msgspec.json import Decoder

from adapters.canonical.messages import ProviderData
from adapters.openai.usage import USAGE
from adapters.openai.vocabulary import CHAT
from adapters.raw_json import raw_fields
from adapters.upstream_json import UNREADABLE, unexpected_answer

__all__ = ["decode_known", "place_data", "place_fields"]

_encode = msgspec.json.Encoder().encode
_DELTA = "delta."
_OBJECTS = Decoder(list[dict[str, Raw]] | None)


def decode_known(payload: bytes, decoder: Decoder[Any]) -> tuple[Any, list[tuple[int | None, dict[str, bytes]]]]:
    """The chunk without its unknown fields, and those fields: of the whole (None) or of the choice at a position.

    A field of a choice's delta or message is named `delta.<name>`, one of the usage `usage.<name>`. Numbers may be
    written as strings, and whole ones as `5.0`. Raises BadUpstreamResponse where a known field has the wrong type.
    """
    chunk_type: Any = decoder.type
    unmapped: list[tuple[int | None, dict[str, bytes]]] = []
    try:
        top = raw_fields(payload)
        extra = _split(top, chunk_type)
        extra.update(_split_inner(top, USAGE, f"{USAGE}.", chunk_type))
        if extra:
            unmapped.append((None, extra))
        choices = (_OBJECTS.decode(top["choices"]) if "choices" in top else None) or ()
        for position, choice in enumerate(choices):
            fields = _split_choice(choice, _member(chunk_type, "choices"))
            if fields:
                unmapped.append((position, fields))
                top["choices"] = Raw(_encode(choices))
        return _lenient(chunk_type).decode(_encode(top)), unmapped
    except UNREADABLE as error:
        raise unexpected_answer(error) from error


@cache
def _lenient(chunk_type: Any) -> Decoder[Any]:
    return Decoder(chunk_type, strict=False)


def place_fields(fields: Any, body: dict[str, Any], delta: dict[str, Any]) -> None:
    """Unmapped fields of a choice; `delta.` in a name says that it stood inside the delta (or message)."""
    for name, raw in fields.items():
        inner = name.removeprefix(_DELTA)
        (body if inner == name else delta).setdefault(inner, orjson.Fragment(raw))


def place_data(data: ProviderData | None, call: dict[str, Any]) -> None:
    """Opaque fields of a call, when they are of this dialect."""
    if data is not None and data.origin == CHAT:
        place_fields(data.fields, call, call)


def _split_choice(choice: dict[str, Raw], choice_type: Any) -> dict[str, bytes]:
    """Takes the fields out that a choice, or its delta or message, does not have."""
    fields = _split(choice, choice_type)
    for name in ("delta", "message"):
        fields.update(_split_inner(choice, name, _DELTA, choice_type))
    return fields


def _split_inner(outer: dict[str, Raw], name: str, prefix: str, outer_type: Any) -> dict[str, bytes]:
    """Takes the fields out that the object of this name does not have; `prefix` stands before their names."""
    raw = outer.get(name)
    if raw is None or bytes(raw) == b"null":
        return {}
    inner = raw_fields(raw)
    found = _split(inner, _member(outer_type, name))
    if found:
        outer[name] = Raw(_encode(inner))
    return {prefix + key: value for key, value in found.items()}


def _split(fields: dict[str, Raw], known: Any) -> dict[str, bytes]:
    """Takes the fields out that the type does not have."""
    names = _names(known)
    unknown = [name for name in fields if name not in names]
    return {name: bytes(fields.pop(name)) for name in unknown}


@cache
def _names(struct: Any) -> frozenset[str]:
    return frozenset(struct.__struct_fields__)


@cache  # of the few types of chunks; looking into a type costs more than reading a chunk
def _member(struct: Any, name: str) -> Any:
    """The Struct type inside a field's annotation (`list[X] | None`, `X | None`), None where there is none."""
    found = next((field for field in msgspec.structs.fields(struct) if field.name == name), None)
    return None if found is None else _struct_in(found.type)


def _struct_in(annotation: Any) -> Any:
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return annotation
    for argument in getattr(annotation, "__args__", ()):
        found = _struct_in(argument)
        if found is not None:
            return found
    return None
