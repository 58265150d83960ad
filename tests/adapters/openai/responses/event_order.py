"""What every stream of the Responses API must be, checked event by event, for any test that has one.

    response = checked(frames)          # bytes of a whole stream -> the final response
    response = check_events(events)     # the same for decoded events

Order (PROTOCOL 42), numbers without a gap (43), names equal to types (44), what the SDK would break on (45), items that
begin empty and end whole (48), joined deltas (49), exactly one terminal event with the response in its final state (50
to 52). `starts_at` is the number of the first event, for a reader that resumed.
"""

import json
from collections.abc import Sequence
from typing import Any

__all__ = ["check_events", "checked", "events_in"]

_LIFECYCLE = ("response.created", "response.queued", "response.in_progress")
_TERMINAL = {
    "response.completed": ("completed",),
    "response.incomplete": ("incomplete",),
    "response.failed": ("failed", "cancelled"),
}
_TEXTS = {
    # delta event: (done event, field of the whole text, index inside the item)
    "response.output_text.delta": ("response.output_text.done", "text", "content_index"),
    "response.refusal.delta": ("response.refusal.done", "refusal", "content_index"),
    "response.reasoning_text.delta": ("response.reasoning_text.done", "text", "content_index"),
    "response.reasoning.delta": ("response.reasoning.done", "text", "content_index"),
    "response.reasoning_summary_text.delta": ("response.reasoning_summary_text.done", "text", "summary_index"),
    "response.function_call_arguments.delta": ("response.function_call_arguments.done", "arguments", ""),
    "response.custom_tool_call_input.delta": ("response.custom_tool_call_input.done", "input", ""),
    "response.mcp_call_arguments.delta": ("response.mcp_call_arguments.done", "arguments", ""),
    "response.code_interpreter_call_code.delta": ("response.code_interpreter_call_code.done", "code", ""),
}
_DONE = {done: (field, index) for done, field, index in _TEXTS.values()}
_PARTS = {
    "response.content_part": "content_index",
    "response.reasoning_summary_part": "summary_index",
}
_CALLS = {"function_call": "arguments", "custom_tool_call": "input"}
_OWN_TEXTS = {**_CALLS, "mcp_call": "arguments", "code_interpreter_call": "code"}
_STATES = {
    # What hosted items go through, in this order; the last word is one of the names behind the bar.
    "response.mcp_list_tools": ("in_progress", "completed|failed"),
    "response.mcp_call": ("in_progress", "completed|failed"),
    "response.web_search_call": ("in_progress", "searching", "completed"),
    "response.file_search_call": ("in_progress", "searching", "completed"),
    "response.code_interpreter_call": ("in_progress", "interpreting", "completed"),
}


def events_in(frames: bytes, *, ends_in_done: bool = True) -> list[dict[str, Any]]:
    """The events of a stream's bytes: framing, names, and the mark at the end are checked."""
    blocks = [block for block in frames.decode().split("\n\n") if block and not block.startswith(":")]
    assert frames.endswith(b"\n\n")
    if ends_in_done:
        assert blocks.pop() == "data: [DONE]"
    events = []
    for block in blocks:
        name, data = block.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        events.append(event)
    return events


def checked(frames: bytes) -> dict[str, Any]:
    return check_events(events_in(frames))


def check_events(events: Sequence[dict[str, Any]], *, starts_at: int = 0) -> dict[str, Any]:
    """The response of the terminal event."""
    assert [event["sequence_number"] for event in events] == list(range(starts_at, starts_at + len(events)))
    *before, last = events
    assert last["type"] in _TERMINAL, last
    assert not any(event["type"] in _TERMINAL or event["type"] == "error" for event in before)
    items: dict[int, _Item] = {}
    if starts_at == 0:
        _check_start(before)
        for event in before:
            if event["type"] not in _LIFECYCLE:
                _take(event, items)
    ids = {event["response"]["id"] for event in events if "response" in event}
    assert len(ids) == 1
    response: dict[str, Any] = last["response"]
    assert response["status"] in _TERMINAL[last["type"]]
    _check_final(response, items if starts_at == 0 else None)
    return response


def _check_start(events: Sequence[dict[str, Any]]) -> None:
    names = [event["type"] for event in events]
    assert names[0] == "response.created"
    head = [name for name in names if name in _LIFECYCLE]
    assert head == list(names[: len(head)]), "a lifecycle event after an item"
    assert head in (
        list(_LIFECYCLE),
        ["response.created", "response.in_progress"],
        ["response.created", "response.queued"],
    )
    for event in events[: len(head)]:
        assert event["response"]["output"] == []
        assert event["response"]["status"] in ("queued", "in_progress")


def _take(event: dict[str, Any], items: dict[int, "_Item"]) -> None:
    index = event["output_index"]
    if event["type"] == "response.output_item.added":
        assert index == len(items), "an output index that is not the next one"
        items[index] = _Item(event["item"])
    else:
        assert index in items, f"{event['type']} before its item"
        items[index].take(event)


def _check_final(response: dict[str, Any], items: dict[int, "_Item"] | None) -> None:
    status, output = response["status"], response["output"]
    if status == "completed":
        assert response["error"] is None
        assert response["incomplete_details"] is None
        assert all(item.get("status", "completed") != "in_progress" for item in output)
    elif status == "incomplete":
        assert response["error"] is None
        assert response["incomplete_details"]["reason"]
        assert all(item.get("status") != "incomplete" for item in output[:-1]), "the cut item is the last"
    elif status == "failed":
        assert set(response["error"]) >= {"code", "message"}
    else:
        assert response["error"] is None
    ids = [item["id"] for item in output]
    assert len(set(ids)) == len(ids)
    if items is not None:
        assert len(items) == len(output)
        for index, item in items.items():
            assert item.done is not None or status in ("failed", "cancelled"), "an item that never ended"
            assert output[index]["id"] == item.added["id"]
            assert item.done is None or output[index] == item.done


class _Item:
    """One item from `added` to `done`."""

    def __init__(self, added: dict[str, Any]) -> None:
        self.added = added
        self.done: dict[str, Any] | None = None
        self._texts: dict[tuple[str, int], str] = {}
        self._told: dict[tuple[str, int], str] = {}
        self._parts: dict[str, list[dict[str, Any] | None]] = {prefix: [] for prefix in _PARTS}
        self._states: list[str] = []
        kind = added["type"]
        if kind in ("message", "reasoning", *_CALLS):
            assert added["status"] == "in_progress"
        if kind == "message":
            assert (added["content"], added["role"]) == ([], "assistant")
        elif kind == "reasoning":
            assert added["summary"] == []
            assert not added.get("content")
        elif kind in _CALLS:
            assert added["name"]
            assert added["call_id"]
            assert added[_CALLS[kind]] == ""

    def take(self, event: dict[str, Any]) -> None:
        name = event["type"]
        assert self.done is None, f"{name} after the item's end"
        if name == "response.output_item.done":
            self._end(event["item"])
            return
        assert event["item_id"] == self.added["id"]
        prefix, _, verb = name.rpartition(".")
        if prefix in _PARTS:
            self._take_part(prefix, verb, event)
        elif name in _TEXTS:
            done, _, index = _TEXTS[name]
            key = (done, event[index] if index else 0)
            self._check_open(index, key[1])
            assert key not in self._told, "a delta after the whole text"
            self._texts[key] = self._texts.get(key, "") + event["delta"]
            if name == "response.output_text.delta":
                assert isinstance(event["logprobs"], list)
        elif name in _DONE:
            field, index = _DONE[name]
            key = (name, event[index] if index else 0)
            assert key not in self._told
            assert event[field] == self._texts.get(key, "")
            self._told[key] = event[field]
        elif prefix in _STATES:
            expected = _STATES[prefix][len(self._states)]
            assert verb in expected.split("|"), f"{name} where {expected} was due"
            assert verb not in ("completed", "searching", "interpreting", "failed") or set(self._texts) <= set(
                self._told
            )
            self._states.append(verb)

    def _ended_as(self, item: dict[str, Any]) -> str:
        """The status that the item's own events lead to."""
        if self.added["type"] == "mcp_list_tools":
            assert self._states[-1] == ("failed" if item.get("error") else "completed")
            return "completed"
        if self._states[-1] in ("completed", "failed"):
            return self._states[-1]
        assert item["status"] in ("failed", "incomplete"), "a call that never ended"
        return str(item["status"])

    def _check_open(self, index: str, number: int) -> None:
        prefix = next((prefix for prefix, name in _PARTS.items() if name == index), None)
        if prefix is not None:
            parts = self._parts[prefix]
            assert number < len(parts), "a delta before its part"
            assert parts[number] is None, "a delta after its part"

    def _take_part(self, prefix: str, verb: str, event: dict[str, Any]) -> None:
        parts = self._parts[prefix]
        number = event[_PARTS[prefix]]
        if verb == "added":
            assert number == len(parts), "a part that is not the next one"
            parts.append(None)
            return
        assert parts[number] is None
        part = event["part"]
        text = part.get("text", part.get("refusal"))
        told = [whole for (_, index), whole in self._told.items() if index == number and whole == text]
        assert told, "a part that ends before its text"
        parts[number] = part

    def _end(self, item: dict[str, Any]) -> None:
        self.done = item
        kind = self.added["type"]
        assert item["type"] == kind
        assert item["id"] == self.added["id"]
        assert set(self._texts) <= set(self._told), "a text without an end"
        if kind == "message":
            assert item["content"] == self._parts["response.content_part"]
        elif kind == "reasoning":
            assert item["summary"] == self._parts["response.reasoning_summary_part"]
            assert item.get("content", []) == self._parts["response.content_part"]
        elif kind in _CALLS:
            assert (item["call_id"], item["name"]) == (self.added["call_id"], self.added["name"])
        if kind in _OWN_TEXTS and (kind in _CALLS or self._told):
            (whole,) = self._told.values()
            assert item[_OWN_TEXTS[kind]] == whole
        if self._states:
            assert item.get("status", "completed") == self._ended_as(item)
        if kind in ("message", "reasoning", *_CALLS):
            assert item["status"] in ("completed", "incomplete")
