"""Messages of /api/chat from a client: JSON -> canonical messages.

Calls without an id get one by their place, the same in every request. A result without one answers the open call of its
tool's name, or, where it names no tool, the first that is open.
"""

from typing import Literal

from msgspec import Raw
from msgspec.json import Decoder

from adapters.canonical.errors import InvalidRequest
from adapters.canonical.messages import (
    ASSISTANT,
    TOOL,
    Image,
    MediaSource,
    Message,
    Part,
    ProviderData,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
)
from adapters.field_types import NAME, TEXT, TEXTS
from adapters.inline_media import resolved
from adapters.json_fields import JsonObject
from adapters.minted_ids import MINTED
from adapters.ollama.vocabulary import CHAT, SAYS_NOTHING

__all__ = ["take_messages"]

_ROLE = Decoder(Literal["system", "user", "assistant", "tool"])
_ARGUMENTS = Decoder(dict[str, Raw] | str)


def take_messages(body: JsonObject) -> tuple[Message, ...]:
    found: list[Message] = []
    calls: list[ToolCall] = []
    for number, row in enumerate(body.require_objects("messages")):
        role = row.require("role", _ROLE)
        parts: list[Part] = []
        if role == ASSISTANT:
            calls = _take_calls(row, number)
            thinking = row.take("thinking", TEXT)
            if thinking:
                parts.append(Reasoning(text=thinking))
        content = row.take("content", TEXT)
        if content:
            parts.append(Text(text=content))
        parts += [Image(source=resolved(MediaSource(data=data))) for data in row.take("images", TEXTS) or ()]
        if role == ASSISTANT:
            parts += calls
        elif role == TOOL:
            parts = [ToolResult(call_id=_answered(row, calls), parts=tuple(parts))]
        extras = {name: raw for name, raw in row.rest().items() if raw not in SAYS_NOTHING}
        found.append(Message(role=role, parts=tuple(parts), extras=ProviderData(CHAT, extras) if extras else None))
    return tuple(found)


def _take_calls(row: JsonObject, number: int) -> list[ToolCall]:
    """The arguments are passed on as they came, as text."""
    found: list[ToolCall] = []
    for place, call in enumerate(row.take_objects("tool_calls") or ()):
        function = call.require_object("function")
        raw = function.peek_raw("arguments")
        arguments = function.take("arguments", _ARGUMENTS)
        text = arguments if isinstance(arguments, str) else (raw or b"").decode()
        found.append(
            ToolCall(
                id=call.take("id", TEXT) or f"{MINTED}{number}_{place}",
                name=function.require("name", NAME),
                arguments=text if arguments is not None and text else "{}",
            )
        )
    return found


def _answered(row: JsonObject, calls: list[ToolCall]) -> str:
    """The id of the open call that a result answers; it is open no more. `name` is what older examples say."""
    older = row.take("name", TEXT)
    name, call_id = row.take("tool_name", TEXT) or older, row.take("tool_call_id", TEXT)
    if call_id:
        found = next((call for call in calls if call.id == call_id), None)
    elif name:
        found = next((call for call in calls if call.name == name), None)
    else:
        found = calls[0] if calls else None
    if found is None:
        raise InvalidRequest.at(row.path, "it answers no tool call of the turn before it")
    calls.remove(found)
    return found.id
