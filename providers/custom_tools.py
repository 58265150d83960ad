"""Custom tools, whose input is any text, for models that know functions alone: functions of one parameter, that text.

A call of such a function is the custom tool's call again for the client. A grammar that the input has to follow is told
to the model; nobody here holds it to that.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, Final

import msgspec
import orjson
from msgspec.structs import replace

from adapters.call_objects import INPUT_MEMBER
from adapters.canonical.errors import InvalidRequest
from adapters.canonical.events import Event, ToolArgumentsDelta, ToolCallFinished, ToolCallStarted
from adapters.canonical.messages import Message, Part, ToolCall
from adapters.canonical.request import Request, Tool
from adapters.canonical.tool_kinds import CUSTOM, FUNCTION
from adapters.text.custom_input import InputReader
from providers.base import Batch

__all__ = [
    "Grammar",
    "as_function",
    "custom_calls",
    "custom_names",
    "grammar_of",
    "grammar_place",
    "with_function_calls",
]

_PLACES: Final = {"openai.chat": "custom.format.grammar"}


class Grammar(msgspec.Struct):
    """What the input of a custom tool has to follow, as the client says it."""

    syntax: str | None = None
    definition: str | None = None


class _Format(msgspec.Struct):
    type: str = "text"
    grammar: Grammar | None = None


def custom_names(request: Request) -> frozenset[str]:
    return frozenset([tool.name for tool in request.tools or () if tool.kind == CUSTOM])


def grammar_place(dialect: str) -> str:
    """Where a grammar stands in the client's declaration of a tool."""
    return _PLACES.get(dialect, "format")


def grammar_of(tool: Tool) -> Grammar | None:
    """None where the input is free. Raises InvalidRequest for a format that is none."""
    if tool.grammar is None:
        return None
    try:
        found = msgspec.json.decode(tool.grammar, type=_Format)
    except msgspec.ValidationError as error:
        raise InvalidRequest.at("tools", f"the format of '{tool.name}': {error}") from error
    return (found.grammar or Grammar()) if found.type == "grammar" else None


def as_function(tool: Tool) -> Tool:
    """The function of a custom tool; another tool as it is. Its grammar stays with it."""
    if tool.kind != CUSTOM:
        return tool
    said: dict[str, Any] = {"type": "string"}
    grammar = grammar_of(tool)
    if grammar is not None and grammar.definition is not None:
        said["description"] = f"Text that follows this grammar ({grammar.syntax}):\n{grammar.definition}"
    schema = {
        "type": "object",
        "properties": {INPUT_MEMBER: said},
        "required": [INPUT_MEMBER],
        "additionalProperties": False,
    }
    return replace(tool, kind=FUNCTION, parameters=orjson.dumps(schema))


def with_function_calls(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The conversation with calls of those functions in place of calls of custom tools."""
    return tuple([_with_function_calls(message) for message in messages])


def _with_function_calls(message: Message) -> Message:
    if not any(type(part) is ToolCall and part.kind == CUSTOM for part in message.parts):
        return message
    return replace(message, parts=tuple([_function_call(part) for part in message.parts]))


def _function_call(part: Part) -> Part:
    if not isinstance(part, ToolCall) or part.kind != CUSTOM:
        return part
    arguments = orjson.dumps({INPUT_MEMBER: part.arguments}).decode()
    return replace(part, kind=FUNCTION, arguments=arguments, provider_data=None)


async def custom_calls(batches: AsyncGenerator[Batch, None], names: frozenset[str]) -> AsyncGenerator[Batch, None]:
    """The answer with calls of custom tools of these `names` in place of calls of their functions."""
    readers: dict[tuple[int, int], InputReader] = {}
    async with aclosing(batches):
        async for batch in batches:
            told = [event for each in batch for event in _told(each, names, readers)]
            if told:
                yield told


def _told(event: Event, names: frozenset[str], readers: dict[tuple[int, int], InputReader]) -> Sequence[Event]:
    match event:
        case ToolCallStarted() if event.kind == FUNCTION and event.name in names:
            readers[event.choice, event.part] = InputReader()
            return (ToolCallStarted(event.choice, event.part, event.id, event.name, CUSTOM, event.provider_data),)
        case ToolArgumentsDelta() if (reader := readers.get((event.choice, event.part))) is not None:
            text = reader.feed(event.text)
            return (ToolArgumentsDelta(event.choice, event.part, text),) if text else ()
        case ToolCallFinished() if (reader := readers.pop((event.choice, event.part), None)) is not None:
            rest = reader.flush()
            return (ToolArgumentsDelta(event.choice, event.part, rest), event) if rest else (event,)
        case _:
            return (event,)
