"""Answers with fields that we do not map: told apart, so that a client of the same dialect still gets them.

The typed decoder of a chunk forbids unknown fields, which costs nothing while there are none; only a chunk that has
some comes here and is read again, slowly.
"""

from typing import Any

import msgspec
from msgspec import Raw
from msgspec.json import Decoder

from adapters.canonical.errors import BadUpstreamResponse

__all__ = ["decode_known"]

_OBJECT = Decoder(dict[str, Raw])
_OBJECTS = Decoder(list[dict[str, Raw]] | None)


def decode_known(payload: bytes, decoder: Decoder[Any]) -> tuple[Any, list[tuple[int | None, dict[str, bytes]]]]:
    """The chunk without its unknown fields, and those fields: of the whole (None) or of the choice at a position.

    A field of a choice's delta or message is named `delta.<name>`. Raises BadUpstreamResponse where a known field has
    the wrong type.
    """
    try:
        top = _OBJECT.decode(payload)
        chunk_type = decoder.type
        choice_type = _member(chunk_type, "choices")
        unmapped: list[tuple[int | None, dict[str, bytes]]] = []
        extra = _split(top, chunk_type)
        if extra:
            unmapped.append((None, extra))
        choices = _OBJECTS.decode(top["choices"]) if "choices" in top else None
        for position, choice in enumerate(choices or ()):
            fields = _split(choice, choice_type)
            for name in ("delta", "message"):
                if name in choice and bytes(choice[name]) != b"null":
                    inner = _OBJECT.decode(choice[name])
                    found = _split(inner, _member(choice_type, name))
                    fields.update({f"delta.{key}": raw for key, raw in found.items()})
                    choice[name] = Raw(msgspec.json.encode(inner))
            if fields:
                unmapped.append((position, fields))
        if choices is not None:
            top["choices"] = Raw(msgspec.json.encode(choices))
        return decoder.decode(msgspec.json.encode(top)), unmapped
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadUpstreamResponse(f"the upstream sent an unexpected answer: {error}") from error


def _split(fields: dict[str, Raw], known: Any) -> dict[str, bytes]:
    """Takes the fields out that the type does not have."""
    names = known.__struct_fields__
    return {name: bytes(fields.pop(name)) for name in [name for name in fields if name not in names]}


def _member(struct: Any, name: str) -> Any:
    """The Struct type inside a field's annotation (`list[X] | None`, `X | None`), None-like where there is none."""
    for field in msgspec.structs.fields(struct):
        if field.name == name:
            return _struct_in(field.type)
    raise KeyError(name)


def _struct_in(annotation: Any) -> Any:
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return annotation
    for argument in getattr(annotation, "__args__", ()):
        found = _struct_in(argument)
        if found is not None:
            return found
    return None
