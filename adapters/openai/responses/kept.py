"""Responses as they come back from where they were kept: references to their items, and what is left of one whose
maker died in the middle of it. Pure; knows no store.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import orjson
from msgspec import Raw, Struct
from msgspec.json import Decoder

from adapters.canonical.errors import GatewayError
from adapters.openai.responses.response_object import error_of
from adapters.openai.responses.tool_items import CODE_INTERPRETER, MCP_CALL
from adapters.openai.responses.vocabulary import (
    CUSTOM_CALL,
    ENCRYPTED,
    ENCRYPTED_CONTENT,
    FUNCTION_CALL,
    ITEM_ADDED,
    ITEM_DONE,
    ITEM_REFERENCE,
    REASONING,
)
from adapters.openai.responses.wire_events import ResponseEvent
from adapters.raw_json import fragments, raw_fields

__all__ = ["Salvaged", "id_of", "referenced_ids", "resolved_items", "salvaged", "shown_item", "with_output"]

_ARGUMENTS = {
    FUNCTION_CALL: "arguments",
    CUSTOM_CALL: "input",
    MCP_CALL: "arguments",
    f"{CODE_INTERPRETER}_call": "code",
}


class _Item(Struct):
    id: str | None = None
    type: str | None = None
    role: Raw = Raw()


class _DoneEvent(Struct):
    output_index: int
    item: Raw


_ITEM = Decoder(_Item)
_DONE_EVENT = Decoder(_DoneEvent)


def id_of(item: bytes) -> str:
    """The id of an item that has one."""
    return _ITEM.decode(item).id or ""


def referenced_ids(items: Iterable[bytes]) -> list[str]:
    """The ids that item references name. What is no item is found out by who reads it."""
    return [name for name in map(_reference, items) if name is not None]


def resolved_items(items: Iterable[bytes], references: Mapping[str, bytes]) -> list[bytes]:
    """The items, with what references stand for in their place."""
    found = []
    for item in items:
        name = _reference(item)
        found.append(item if name is None else references.get(name, item))
    return found


def _reference(raw: bytes) -> str | None:
    try:
        item = _ITEM.decode(raw)
    except ValueError:
        return None
    is_reference = item.type == ITEM_REFERENCE or (item.type is None and not bytes(item.role))
    return item.id if is_reference else None


def shown_item(item: bytes, include: Collection[str]) -> bytes:
    """The item as a list shows it: what it has sealed only where that is asked for."""
    if ENCRYPTED in include or _ITEM.decode(item).type != REASONING:
        return item
    fields = raw_fields(item)
    fields.pop(ENCRYPTED_CONTENT, None)
    return orjson.dumps(fragments(fields))


class Salvaged(NamedTuple):
    """The failed response, its items, and the last event of its log."""

    body: bytes
    items: list[bytes]
    event: ResponseEvent


def salvaged(body: bytes, events: Sequence[ResponseEvent], error: GatewayError | None) -> Salvaged:
    """What is left of a response that was being made: `body` is its object as last written, `events` its whole log.

    It failed with the error; None: it was cancelled.
    """
    output = _Output()
    for event in events:
        output.take(event)
    items = output.items()
    fields = fragments(raw_fields(body))
    told = {
        "status": "cancelled" if error is None else "failed",
        "error": None if error is None else error_of(error),
        "output": [orjson.Fragment(item) for item in items],
    }
    failed = orjson.dumps({**fields, **told})
    number = events[-1].sequence_number + 1 if events else 0
    head = {"type": "response.failed", "sequence_number": number, "response": orjson.Fragment(failed)}
    return Salvaged(failed, items, ResponseEvent(number, "response.failed", orjson.dumps(head)))


def with_output(body: bytes, items: Sequence[bytes]) -> bytes:
    """The response with these items as its output."""
    fields = fragments(raw_fields(body))
    return orjson.dumps({**fields, "output": [orjson.Fragment(item) for item in items]})


class _Output:
    """Folds a log into items; one without an end is incomplete."""

    def __init__(self) -> None:
        self._items: dict[int, dict[str, Any]] = {}
        self._done: dict[int, bytes] = {}

    def take(self, event: ResponseEvent) -> None:
        if event.name == ITEM_DONE:
            done = _DONE_EVENT.decode(event.data)
            self._done[done.output_index] = bytes(done.item)
        elif event.name == ITEM_ADDED:
            added = orjson.loads(event.data)
            self._items[added["output_index"]] = added["item"]
        elif event.name.endswith(".delta") or event.name.endswith("part.added"):
            self._grow(orjson.loads(event.data))

    def items(self) -> list[bytes]:
        return [
            self._done.get(index) or orjson.dumps({**item, "status": "incomplete"})
            for index, item in sorted(self._items.items())
        ]

    def _grow(self, told: dict[str, Any]) -> None:
        item = self._items.get(told.get("output_index", -1))
        if item is None:
            return
        of_content = "content_index" in told
        parts = item.setdefault("content" if of_content else "summary", []) if self._has_parts(told) else []
        number = told.get("content_index", told.get("summary_index", 0))
        if "part" in told:
            parts.append(told["part"])
        elif number < len(parts):
            field = "refusal" if parts[number]["type"] == "refusal" else "text"
            parts[number][field] += told["delta"]
        elif (field := _ARGUMENTS.get(item["type"], "")) in item:
            item[field] = (item[field] or "") + told["delta"]  # an upstream's code begins as null

    @staticmethod
    def _has_parts(told: dict[str, Any]) -> bool:
        return "content_index" in told or "summary_index" in told
