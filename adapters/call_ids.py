"""Ids of calls that stand twice in a conversation: hosts that count calls anew in each answer repeat them (`call_0`).

APIs that look calls up by their ids refuse such a conversation, and clients lose results in it.
"""

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from adapters.canonical.messages import Message, Part, ToolCall, ToolResult

__all__ = ["OwnIds", "with_own_ids"]


class OwnIds:
    """The ids of the calls of one answer: what its upstream gives, and what `mint` gives where that is nothing, or
    stands in the answer or its conversation already (which is looked through when the first is asked for)."""

    __slots__ = ("_messages", "_mint", "_taken")

    def __init__(self, mint: Callable[[], str], messages: Sequence[Message] | None) -> None:
        self._mint = mint
        self._messages = messages or ()
        self._taken: set[str] | None = None

    def of(self, given: str | None) -> str:
        """For the next call."""
        taken = self._taken
        if taken is None:
            taken = self._taken = set(_ids_in(self._messages))
        own = given if given and given not in taken else self._mint()
        taken.add(own)
        return own


def with_own_ids(messages: Sequence[Message]) -> Sequence[Message]:
    """The conversation in which no two calls share an id, itself where none do. Results follow their calls: of
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
