"""A conversation for an API in which the user and the model take turns: canonical messages -> turns of blocks.

Turns of one role that follow each other are one, and one that says nothing is none. In a user's turn the results of
tool calls come first, and they answer all calls of the turn before, each once; no two calls share an id. The name of a
user stands before what it said (`ann: hi`). Instructions that lead stand apart; later ones are a user's text, marked as
the system's.

Knows no wire words: how a part is written is the dialect's (`PartWriter`).
"""

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import orjson

from adapters.call_ids import with_own_ids
from adapters.canonical.errors import InvalidRequest, UnsupportedParameter
from adapters.canonical.messages import (
    ASSISTANT,
    DEVELOPER,
    SYSTEM,
    TOOL,
    USER,
    Message,
    Part,
    ProviderData,
    Text,
    ToolCall,
    ToolResult,
    joined_data,
    text_of,
)

__all__ = ["Block", "PartWriter", "Turn", "alternating_turns", "first_of_loop", "is_instruction", "parted", "texts_in"]

_INSTRUCTIONS = (SYSTEM, DEVELOPER)
_ROLES = {USER: USER, TOOL: USER, ASSISTANT: ASSISTANT}
_PARAM = "messages"

Block = dict[str, Any] | orjson.Fragment
"""What a part is on the wire, or one that only its own dialect understands, as it came."""


class Turn:
    """`calls` are the ids of the calls in it, `results` the blocks that answer those of the turn before, by id.
    `extras` are unmapped fields of its messages."""

    __slots__ = ("blocks", "calls", "extras", "results", "role")

    def __init__(self, role: str) -> None:
        self.role = role
        self.extras: ProviderData | None = None
        self.calls: list[str] = []
        self.results: dict[str, list[Block]] = {}
        self.blocks: list[Block] = []

    @property
    def content(self) -> list[Block]:
        if not self.results:
            return self.blocks
        return [block for blocks in self.results.values() for block in blocks] + self.blocks


class PartWriter(Protocol):
    """One dialect's way to write parts. `vendor` is what errors call its API."""

    vendor: str

    def written(self, message: Message) -> Iterable[tuple[Part, Sequence[Block]]]:
        """The blocks of each part, in order; none for what says nothing, or is not this provider's to read."""
        ...

    def text(self, text: str) -> Block:
        """A text that no part holds."""
        ...


def is_instruction(message: Message) -> bool:
    return message.role in _INSTRUCTIONS


def parted(messages: Sequence[Message]) -> tuple[Sequence[Message], Sequence[Message]]:
    """The instructions that lead, and the rest. Raises InvalidRequest where there is no rest."""
    for place, message in enumerate(messages):
        if not is_instruction(message):
            return messages[:place], messages[place:]
    raise InvalidRequest.at(_PARAM, "expected a message beside the system's")


def texts_in(message: Message) -> list[Text]:
    """The parts of an instruction, which are text. Raises UnsupportedParameter for others."""
    texts = [part for part in message.parts if isinstance(part, Text)]
    if len(texts) != len(message.parts):
        raise UnsupportedParameter.at(_PARAM, f"a {message.role} message holds text alone")
    return texts


def alternating_turns(
    messages: Sequence[Message], writer: PartWriter, *, keeps_instructions: bool = False
) -> list[Turn]:
    """The turns of a conversation without its leading instructions.

    `keeps_instructions`: the API takes those that come later as turns of their own role, each for itself. Raises
    InvalidRequest for results and calls that do not belong together, naming the id, and where nothing is said at all.
    """
    turns: list[Turn] = []
    for message in with_own_ids(messages):
        role = _ROLES.get(message.role)
        if role is not None:
            _add(message, role, turns, writer)
        elif not is_instruction(message):
            raise UnsupportedParameter.at(_PARAM, f"{writer.vendor} has no role {message.role}")
        elif keeps_instructions:
            turns.append(Turn(SYSTEM))
            _add(message, SYSTEM, turns, writer)
            if not turns[-1].blocks and turns[-1].extras is None:
                turns.pop()
        elif (text := text_of(message.parts)).strip():
            _turn_of(USER, turns).blocks.append(writer.text(f"<system>\n{text}\n</system>"))
    if not turns:
        raise InvalidRequest.at(_PARAM, "expected a message beside the system's")
    _check_results([turn for turn in turns if turn.role != SYSTEM])
    return turns


def first_of_loop(turns: Sequence[Turn]) -> Turn | None:
    """The model's turn with which the calls began that the last turn's results go on with; None: it has no results."""
    said = [turn for turn in turns if turn.role != SYSTEM]
    if len(said) < 2 or not said[-1].results:
        return None
    place = len(said) - 2
    while place >= 2 and said[place - 1].results:
        place -= 2
    return said[place]


def _add(message: Message, role: str, turns: list[Turn], writer: PartWriter) -> None:
    name = message.name if message.role == USER else None
    for part, blocks in writer.written(message):
        if not blocks:
            continue
        turn = _turn_of(role, turns)
        if isinstance(part, ToolResult):
            if part.call_id in turn.results:
                raise _unmatched(f"the tool call '{part.call_id}' has two results")
            turn.results[part.call_id] = list(blocks)
            continue
        if isinstance(part, ToolCall):
            turn.calls.append(part.id)
        elif name is not None and isinstance(part, Text) and isinstance(blocks[0], dict):
            blocks[0]["text"], name = f"{name}: {part.text}", None
        turn.blocks += blocks
    if message.extras is not None and turns and turns[-1].role == role:
        turns[-1].extras = joined_data(turns[-1].extras, message.extras)


def _turn_of(role: str, turns: list[Turn]) -> Turn:
    if not turns or turns[-1].role != role:
        turns.append(Turn(role))
    return turns[-1]


def _check_results(turns: Sequence[Turn]) -> None:
    """Every call of a turn is answered in the next one, once, and nothing else is."""
    calls: list[str] = []
    for turn in turns:
        known = set(calls)
        for call_id in turn.results:
            if call_id not in known:
                raise _unmatched(f"the tool result '{call_id}' answers no call of the turn before it")
        _check_answered(calls, turn.results)
        calls = turn.calls
    _check_answered(calls, {})


def _check_answered(calls: Iterable[str], results: dict[str, list[Block]]) -> None:
    for call_id in calls:
        if call_id not in results:
            raise _unmatched(f"the tool call '{call_id}' has no result in the turn after it")


def _unmatched(what: str) -> InvalidRequest:
    return InvalidRequest.at(_PARAM, what)
