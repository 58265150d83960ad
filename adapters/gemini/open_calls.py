"""Calls that no result answered yet."""

from collections import defaultdict, deque

from adapters.canonical.messages import ToolCall
from adapters.minted_ids import MINTED

__all__ = ["OpenCalls"]


class OpenCalls:
    """Those of one turn, in order. Adding and taking cost the same however many there are."""

    def __init__(self) -> None:
        self._open: dict[int, ToolCall] = {}
        self._added = 0
        self._places: defaultdict[tuple[str, str], deque[int]] = defaultdict(deque)

    def add(self, call: ToolCall) -> None:
        self._open[self._added] = call
        self._places["id", call.id].append(self._added)
        self._places["name", call.name].append(self._added)
        if call.id.startswith(MINTED):
            self._places["minted", call.name].append(self._added)
        self._added += 1

    def take(self, call_id: str | None, name: str) -> ToolCall | None:
        """The call that a result answers: the one with its id, or the first of its name: of those that had no id where
        the result has one, since Gemini CLI answers them under ids of its own."""
        keys = [("id", call_id), ("minted", name)] if call_id else [("name", name)]
        for key in keys:
            places = self._places.get(key)
            while places:
                found = self._open.pop(places.popleft(), None)
                if found is not None:
                    return found
        return None
