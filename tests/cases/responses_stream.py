"""A stream of the Responses API, checked as a state machine and put together as clients do."""

from collections.abc import Sequence
from typing import Any

__all__ = ["final_response"]

_TERMINAL = ("response.completed", "response.incomplete", "response.failed")


def final_response(events: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """The response of the terminal event. The order of events, their numbers and their ids hold what is promised."""
    names = [name for name, _ in events]
    assert names[:2] == ["response.created", "response.in_progress"]
    assert [name for name in names if name in _TERMINAL] == names[-1:]
    assert [data["sequence_number"] for _, data in events] == list(range(len(events)))
    assert all(data["type"] == name for name, data in events)
    ids = {data["response"]["id"] for _, data in events if "response" in data}
    assert len(ids) == 1
    items: dict[int, _Item] = {}
    for name, data in events:
        if name == "response.output_item.added":
            assert data["output_index"] == len(items)
            items[data["output_index"]] = _Item(data["item"])
        elif "output_index" in data:
            items[data["output_index"]].take(name, data)
    final: dict[str, Any] = events[-1][1]["response"]
    assert all(item.done is not None for item in items.values())
    assert final["output"] == [items[index].done for index in range(len(items))]
    return final


class _Item:
    """One output item while its events come."""

    def __init__(self, added: dict[str, Any]) -> None:
        assert added["status"] == "in_progress"
        self.id = added["id"]
        self.done: dict[str, Any] | None = None
        self._parts: dict[int, str] = {}
        self._open: set[int] = set()
        self._told: set[int] = set()
        self._arguments = ""
        self._arguments_done = added["type"] != "function_call"

    def take(self, name: str, data: dict[str, Any]) -> None:
        assert self.done is None, f"{name} after the item's end"
        if name == "response.output_item.done":
            assert data["item"]["id"] == self.id
            assert not self._open
            assert self._arguments_done
            self.done = data["item"]
            if self.done["type"] == "message":
                assert [part["text"] for part in self.done["content"]] == list(self._parts.values())
            return
        assert data["item_id"] == self.id
        if "content_index" not in data:
            self._take_arguments(name, data)
            return
        index = data["content_index"]
        match name:
            case "response.content_part.added":
                assert index == len(self._parts)
                self._parts[index] = ""
                self._open.add(index)
            case "response.output_text.delta":
                assert index in self._open, "a delta without an open part"
                assert isinstance(data["logprobs"], list)
                self._parts[index] += data["delta"]
            case "response.output_text.done":
                assert data["text"] == self._parts[index]
                self._told.add(index)
            case "response.content_part.done":
                assert data["part"]["text"] == self._parts[index]
                assert index in self._told
                self._open.remove(index)

    def _take_arguments(self, name: str, data: dict[str, Any]) -> None:
        if name == "response.function_call_arguments.delta":
            self._arguments += data["delta"]
        elif name == "response.function_call_arguments.done":
            assert data["arguments"] == self._arguments
            self._arguments_done = True
