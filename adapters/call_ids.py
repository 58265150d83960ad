"""Ids of calls that stand twice in a conversation: hosts that count calls anew in each answer repeat them (`call_0`).

APIs that look calls up by their ids refuse such a conversation, and clients lose results in it.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from adapters.canonical.messages import Message, Part, ToolCall, ToolResult

__all__ = ["EarlierIds", "with_own_ids"]


class EarlierIds:
    """The ids of the calls in a conversation, which are looked for when the first is asked about."""

    __slots__ = ("_found", "_messages")

    def __init__(self, messages: Sequence[Message] | None) -> None:
        self._messages = messages or ()
        self._found: frozenset[str] | None = None

    def __contains__(self, call_id: object) -> bool:
        if self._found is None:
            self._found = frozenset(_ids_in(self._messages))
        return call_id in self._found


def with_own_ids(messages: Sequence[Message]) -> Sequence[Message]:
    """The conversation in which no two calls share an id, themselves where none do. Results follow their calls: of
    calls that share an id and are open at once, each result answers the next."""
    ids = _ids_in(messages)
    if len(set(ids)) == len(ids):
        return messages
    owner = _Owner(set(ids))
    return tuple([_renamed(message, owner) for message in messages])


class _Owner:
    """What the id of each call and result becomes, asked for in the order of the conversation."""

    def __init__(self, taken: set[str]) -> None:
        self._taken = taken
        self._seen: set[str] = set()
        self._open: dict[str, list[str]] = {}
        self._answered: dict[str, str] = {}

    def of_call(self, call_id: str) -> str:
        own, number = call_id, 1
        while own in self._seen or (number > 1 and own in self._taken):
            number += 1
            own = f"{call_id}_{number}"
        self._seen.add(own)
        self._open.setdefault(call_id, []).append(own)
        return own

    def of_result(self, call_id: str) -> str:
        waiting = self._open.get(call_id)
        if waiting:
            self._answered[call_id] = waiting.pop(0)
        return self._answered.get(call_id, call_id)


def _ids_in(messages: Sequence[Message]) -> list[str]:
    return [part.id for message in messages for part in message.parts if type(part) is ToolCall]


def _renamed(message: Message, owner: _Owner) -> Message:
    parts = tuple([_part(part, owner) for part in message.parts])
    same = all(new is old for new, old in zip(parts, message.parts, strict=True))
    return message if same else replace(message, parts=parts)


def _part(part: Part, owner: _Owner) -> Part:
    if isinstance(part, ToolCall):
        own = owner.of_call(part.id)
        return part if own == part.id else replace(part, id=own)
    if isinstance(part, ToolResult):
        own = owner.of_result(part.call_id)
        return part if own == part.call_id else replace(part, call_id=own)
    return part
