"""The turns of a conversation, between the client's messages and the dicts of a chat template: what each says, in
order, and how turns become one. Knows no templates but for the roles that they name.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any, assert_never

from adapters.call_objects import INPUT_MEMBER
from adapters.canonical.errors import UnsupportedParameter
from adapters.canonical.messages import (
    DEVELOPER,
    SYSTEM,
    TOOL,
    Audio,
    Document,
    File,
    Image,
    Message,
    Opaque,
    Part,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
    Video,
)
from providers.local.chat_template import ChatTemplate

__all__ = [
    "INSTRUCTIONS",
    "Content",
    "Foreign",
    "Picture",
    "Turn",
    "joined",
    "quoted_turn",
    "quoted_value",
    "read_turns",
    "run_together",
    "with_text",
]

INSTRUCTIONS = (SYSTEM, DEVELOPER)
"""Roles of those who run the application."""
_BLANK_LINE = "\n\n"
_UNSAFE_IN_NAME = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029<>|\[\]{}]")


@dataclass(frozen=True, slots=True)
class Picture:
    """An image in a turn. Which one it is, its place among all tells."""


@dataclass(frozen=True, slots=True)
class Foreign:
    """A part of a kind that the template knows and we do not, as the client's JSON has it."""

    fields: Mapping[str, Any]


Content = tuple[str | Picture | Foreign, ...]


@dataclass(frozen=True, slots=True)
class Turn:
    """One dict of the template's `messages`, before it is written. `index` is the client's message it came from."""

    index: int
    role: str
    parts: Content = ()
    name: str | None = None
    reasoning: str = ""
    calls: tuple[Mapping[str, Any], ...] = ()
    call_id: str | None = None

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple([part for part in self.parts if isinstance(part, str)])

    @property
    def text(self) -> str:
        return "".join(self.texts)

    @property
    def pictures(self) -> tuple[Picture, ...]:
        return tuple([part for part in self.parts if isinstance(part, Picture)])

    @property
    def others(self) -> tuple[Picture | Foreign, ...]:
        """What is no text."""
        return tuple([part for part in self.parts if not isinstance(part, str)])


def read_turns(messages: Sequence[Message], template: ChatTemplate, *, reads_images: bool) -> list[Turn]:
    """The messages as turns; the system messages that lead are one turn."""
    reader = _MessageReader(template, reads_images)
    turns = [turn for i, message in enumerate(messages) for turn in reader.turns(message, i)]
    leading = list(takewhile(lambda turn: turn.role in INSTRUCTIONS, turns))
    if len(leading) < 2:
        return turns
    role = SYSTEM if any(turn.role == SYSTEM for turn in leading) else DEVELOPER
    return [joined(leading, role), *turns[len(leading) :]]


class _MessageReader:
    """Messages to turns, one after the other: the name of a call is known to its result."""

    def __init__(self, template: ChatTemplate, reads_images: bool) -> None:
        self._template = template
        self._reads_images = reads_images
        self._called: dict[str, str] = {}

    def turns(self, message: Message, index: int) -> Iterator[Turn]:
        """One turn, or more where the message holds tool results: each is one."""
        role = message.role
        if role == DEVELOPER and not self._template.knows_role(DEVELOPER):
            role = SYSTEM
        turn = Turn(index, role, name=_clean_name(message.name))
        pending = turn
        answered = False
        for j, part in enumerate(message.parts):
            match part:
                case Reasoning():
                    pending = replace(pending, reasoning=pending.reasoning + part.text)
                case ToolCall():
                    self._called[part.id] = part.name
                    pending = replace(pending, calls=(*pending.calls, _call(part, index)))
                case ToolResult():
                    if pending != turn:
                        yield pending
                    pending, answered = turn, True
                    name = _clean_name(self._called.get(part.call_id, message.name))
                    yield Turn(
                        index, TOOL, self._result(part, f"messages[{index}].content[{j}]"), name, call_id=part.call_id
                    )
                case _:
                    pending = replace(
                        pending, parts=(*pending.parts, *self._said(part, f"messages[{index}].content[{j}]"))
                    )
        if pending != turn or not answered:
            yield pending

    def _result(self, result: ToolResult, where: str) -> Content:
        """What the result says; a failed call says so, since templates have no other place for it."""
        failed = ("Error: ",) if result.is_error else ()
        return (*failed, *(said for part in result.parts for said in self._said(part, where)))

    def _said(self, part: Part, where: str) -> Content:
        """Nothing of an empty text."""
        if self._reads_images and isinstance(part, Image):
            return (Picture(),)
        if isinstance(part, Opaque) and part.type in self._template.part_kinds:
            return (Foreign(json.loads(part.raw)),)
        text = _text(part, where, "text and images" if self._reads_images else "text")
        return (text,) if text else ()


def _text(part: Part, where: str, taken: str) -> str:
    """What the part says as text; a part that is none is refused by its place. taken: what is."""
    match part:
        case Text() | Refusal():
            return part.text
        case Audio() if part.transcript is not None:
            return part.transcript
        case Document() if part.text is not None:
            return _BLANK_LINE.join(filter(None, [part.title, part.context, part.text]))
        case Image() | Audio() | Video() | File() | Document():
            kind = type(part).__name__.lower()
        case Reasoning() | ToolCall() | ToolResult():
            kind = "this part inside a tool result"
        case Opaque():
            kind = part.type
        case _:
            assert_never(part)
    raise UnsupportedParameter.at(where, f"this model takes {taken} only, not {kind}")


def _call(call: ToolCall, index: int) -> Mapping[str, Any]:
    match call.kind:
        case "function":
            arguments = _arguments(call.arguments)
        case "custom":
            arguments = {INPUT_MEMBER: call.arguments}
        case other:
            raise UnsupportedParameter.at(f"messages[{index}].tool_calls", f"this model knows no {other} tools")
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _arguments(text: str) -> Mapping[str, Any] | str:
    """Templates want a mapping. What is no JSON object stays as the model wrote it."""
    if not text.strip():
        return {}
    try:
        arguments = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return arguments if isinstance(arguments, dict) else text


def _clean_name(name: str | None) -> str | None:
    """A name without the characters that could end its line or be read as a marker; None if nothing is left."""
    return (_UNSAFE_IN_NAME.sub("", name).strip() or None) if name else None


def quoted_turn(turn: Turn, quote: Callable[[str], str]) -> Turn:
    return replace(
        turn,
        role=quote(turn.role),
        parts=tuple([_quoted_part(part, quote) for part in turn.parts]),
        name=None if turn.name is None else quote(turn.name),
        reasoning=quote(turn.reasoning),
        calls=tuple(quoted_value(call, quote) for call in turn.calls),
        call_id=None if turn.call_id is None else quote(turn.call_id),
    )


def _quoted_part(part: str | Picture | Foreign, quote: Callable[[str], str]) -> str | Picture | Foreign:
    match part:
        case str():
            return quote(part)
        case Foreign():
            return Foreign(quoted_value(part.fields, quote))
        case Picture():
            return part


def quoted_value(value: Any, quote: Callable[[str], str]) -> Any:
    """A JSON value with every text in it quoted, names of members too."""
    match value:
        case str():
            return quote(value)
        case dict():
            return {quote(name): quoted_value(member, quote) for name, member in value.items()}
        case list():
            return [quoted_value(item, quote) for item in value]
        case _:
            return value


def with_text(turn: Turn, text: str) -> Turn:
    """With this in place of its texts, behind what is no text."""
    return replace(turn, parts=(*turn.others, text))


def joined(turns: Sequence[Turn], role: str) -> Turn:
    first = turns[0]
    return replace(
        first,
        role=role,
        parts=run_together(turns),
        name=first.name if all(turn.name == first.name for turn in turns) else None,
        reasoning=_BLANK_LINE.join([turn.reasoning for turn in turns if turn.reasoning]),
        calls=tuple(call for turn in turns for call in turn.calls),
    )


def run_together(turns: Sequence[Turn]) -> Content:
    """What the turns say, in order: a blank line between two texts of different turns, nothing between two of one."""
    parts: list[str | Picture | Foreign] = []
    for turn in turns:
        said = [part for part in turn.parts if part]
        for place, part in enumerate(said):
            before = parts[-1] if parts else None
            if isinstance(part, str) and isinstance(before, str):
                parts[-1] = before + ("" if place else _BLANK_LINE) + part
            else:
                parts.append(part)
    return tuple(parts)
