"""Google's JSON objects in a request: names in camel case or as protocol buffers have them (`inline_data`), and one
object where a list is due. Google's servers take all of these."""

from adapters.json_fields import JsonObject, decode_at, parse_object_at
from adapters.raw_json import RAW_ITEMS

__all__ = ["in_camel_case", "object_at", "take_list", "take_object", "take_objects"]

_NULL = b"null"


def _camel(name: str) -> str:
    if "_" not in name:
        return name
    first, *others = name.split("_")
    return first + "".join([word[:1].upper() + word[1:] for word in others])


def in_camel_case(found: JsonObject) -> JsonObject:
    return found.respelled(_camel) if any("_" in name for name in found.names()) else found


def object_at(raw: bytes, path: str) -> JsonObject:
    """Raw JSON that stands at this path and must be an object."""
    return in_camel_case(parse_object_at(raw, path))


def take_object(fields: JsonObject, name: str) -> JsonObject | None:
    raw = fields.take_raw(name)
    return None if raw is None else object_at(raw, fields.at(name))


def take_list(fields: JsonObject, name: str) -> list[tuple[bytes, str]] | None:
    """The raw elements of a list with their paths; one object is a list of one."""
    raw = fields.take_raw(name)
    if raw is None:
        return None
    path = fields.at(name)
    if raw.startswith(b"{"):
        return [(raw, path)]
    rows = decode_at(raw, RAW_ITEMS, path)
    return [(bytes(one), f"{path}[{i}]") for i, one in enumerate(rows)]


def take_objects(fields: JsonObject, name: str) -> list[JsonObject] | None:
    found = take_list(fields, name)
    return None if found is None else [object_at(raw, path) for raw, path in found]
