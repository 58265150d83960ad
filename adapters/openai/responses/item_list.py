"""Input items as a list shows them, and a store keeps them: each with an id, a type and a status.

An id that the client gave stays. Another follows from the response's id and the item's place, apart from those of the
output. What else an item says stays as it came.
"""

import re
from collections.abc import Iterable
from typing import Any

import orjson
from msgspec import Raw

from adapters.field_types import TEXT
from adapters.openai.responses.output import item_id
from adapters.openai.responses.vocabulary import (
    COMPACTION,
    CUSTOM_CALL,
    CUSTOM_OUTPUT,
    FUNCTION_CALL,
    FUNCTION_OUTPUT,
    ITEM_REFERENCE,
    MESSAGE,
    REASONING,
)
from adapters.raw_json import OBJECTS, fragments, raw_fields
from adapters.sse import on_one_line

__all__ = ["FIRST_INPUT", "as_given", "listed_items"]

FIRST_INPUT = 0x8000
"""From this place on, ids are those of input items."""
_PREFIXES = {
    MESSAGE: "msg",
    REASONING: "rs",
    FUNCTION_CALL: "fc",
    FUNCTION_OUTPUT: "fco",
    CUSTOM_CALL: "ctc",
    CUSTOM_OUTPUT: "ctco",
    COMPACTION: "cmp",
}
_WITH_STATUS = frozenset((MESSAGE, FUNCTION_CALL, FUNCTION_OUTPUT, CUSTOM_CALL, CUSTOM_OUTPUT))
_MADE_ID = re.compile(rb'"[a-z]+_[0-9a-f]{24}[89a-f][0-9a-f]{3}"')
"""An id of an input item: what ids of responses have at random, and a place from FIRST_INPUT on."""
_NULL = b"null"


def listed_items(items: Iterable[bytes], response_id: str) -> list[bytes]:
    """The items (raw JSON objects that `Asked.request` took without complaint), in order, each on one line."""
    return [_listed(raw_fields(raw), response_id, place) for place, raw in enumerate(items)]


def as_given(item: bytes) -> bytes:
    """The item without an id that it got here: OpenAI refuses an id of another form than its own, and encrypted content
    beside another id than the one it was made with."""
    fields = raw_fields(item)
    if _MADE_ID.fullmatch(bytes(fields.get("id", b""))) is None:
        return item
    return orjson.dumps({name: orjson.Fragment(bytes(raw)) for name, raw in fields.items() if name != "id"})


def _listed(fields: dict[str, Raw], response_id: str, place: int) -> bytes:
    known = {name: raw for name, raw in fields.items() if bytes(raw) != _NULL}
    kind = TEXT.decode(known["type"]) if "type" in known else MESSAGE if "role" in known else ITEM_REFERENCE
    found: dict[str, Any] = {"id": None, "type": kind}
    found.update(fragments(known))
    if "id" not in known:
        found["id"] = item_id(_PREFIXES.get(kind, "item"), response_id, FIRST_INPUT + place)
    if kind in _WITH_STATUS:
        found.setdefault("status", "completed")
    if kind == MESSAGE and "content" in known:
        found["content"] = _content(known["content"], output=bytes(known.get("role", Raw())) == b'"assistant"')
    elif kind == REASONING:
        found.setdefault("summary", [])
    return on_one_line(orjson.dumps(found))


def _content(raw: Raw, *, output: bool) -> Any:
    """Text as the list of one part that it stands for."""
    if not bytes(raw).startswith(b'"'):
        if not output:
            return orjson.Fragment(bytes(raw))
        parts = [fragments(part) for part in OBJECTS.decode(raw)]
        return [{"annotations": [], **part} if "text" in part else part for part in parts]
    text = orjson.Fragment(bytes(raw))
    if output:
        return [{"type": "output_text", "text": text, "annotations": []}]
    return [{"type": "input_text", "text": text}]
