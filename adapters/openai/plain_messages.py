"""Chat messages as nearly all of them come: text, calls of functions and their results, decoded in one step.

What has anything else in it goes the general way, field by field (`adapters.openai.content`). Both give the same
message; neither is seen from outside.
"""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType, ValidationError
from msgspec.json import Decoder

from adapters.canonical.messages import (
    ASSISTANT,
    DEVELOPER,
    SYSTEM,
    TOOL,
    USER,
    Message,
    Part,
    Text,
    ToolCall,
    ToolResult,
)
from adapters.field_types import Name
from adapters.json_fields import JsonObject

__all__ = ["PlainMessages", "plain_message", "plain_messages", "told_plainly"]


class _TextPart(Struct, forbid_unknown_fields=True):
    type: Literal["text"]
    text: str


_Content = str | Annotated[list[_TextPart], Meta(min_length=1)]


class _Function(Struct, forbid_unknown_fields=True):
    name: Name
    arguments: str


class _Call(Struct, forbid_unknown_fields=True):
    id: Name
    type: Literal["function"]
    function: _Function


class _Said(Struct, forbid_unknown_fields=True, tag_field="role"):
    content: _Content


class _System(_Said, tag=SYSTEM):
    pass


class _Developer(_Said, tag=DEVELOPER):
    pass


class _User(_Said, tag=USER):
    pass


class _Answer(Struct, forbid_unknown_fields=True, tag_field="role", tag=ASSISTANT):
    content: _Content | UnsetType | None = UNSET
    tool_calls: list[_Call] | None = None
    refusal: None = None  # clients give back whole messages, with what was not in them
    annotations: Annotated[list[Raw], Meta(max_length=0)] | None = None
    audio: None = None
    function_call: None = None

    def __post_init__(self) -> None:
        if self.content is UNSET and not self.tool_calls:
            raise ValueError("says nothing")


class _Result(Struct, forbid_unknown_fields=True, tag_field="role", tag=TOOL):
    tool_call_id: Name
    content: _Content


_Plain = _System | _Developer | _User | _Answer | _Result
PlainMessages = Annotated[list[_Plain], Meta(min_length=1)]
_decode = Decoder(_Plain).decode
_ALL = Decoder(PlainMessages)
_ROLES: dict[type[Struct], str] = {_System: SYSTEM, _Developer: DEVELOPER, _User: USER}


def plain_messages(body: JsonObject) -> tuple[Message, ...] | None:
    """All messages of a body. None: one of them, at least, has to be read the general way; they stay in the body."""
    found = body.take_if("messages", _ALL)
    return None if found is None else told_plainly(found)


def told_plainly(found: PlainMessages) -> tuple[Message, ...]:
    """The messages of a decoded list."""
    return tuple([_message(one) for one in found])


def plain_message(raw: Raw) -> Message | None:
    """None: it has to be read the general way, which also says what is wrong."""
    try:
        return _message(_decode(raw))
    except ValidationError:
        return None


def _message(found: _Plain) -> Message:
    parts = _parts(found.content)
    role = _ROLES.get(type(found))
    if role is not None:
        return Message(role=role, parts=parts)
    if isinstance(found, _Result):
        return Message(role=TOOL, parts=(ToolResult(call_id=found.tool_call_id, parts=parts),))
    if isinstance(found, _Answer) and found.tool_calls:
        parts += tuple([_call(call) for call in found.tool_calls])
    return Message(role=ASSISTANT, parts=parts)


def _call(found: _Call) -> ToolCall:
    return ToolCall(id=found.id, name=found.function.name, arguments=found.function.arguments)


def _parts(content: _Content | UnsetType | None) -> tuple[Part, ...]:
    if isinstance(content, str):
        return (Text(text=content),) if content else ()
    return tuple([Text(text=part.text) for part in content]) if content else ()
