"""Canonical messages -> input items, towards an upstream that speaks the Responses API.

Items carry no ids: what an upstream kept under them is not there, since nothing is stored at it. A user's name stands
before what it said (`ann: hi`), because items have no names.
"""

from collections.abc import Sequence
from typing import Any

import orjson

from adapters.canonical.errors import UnsupportedParameter
from adapters.canonical.messages import (
    ASSISTANT,
    SYSTEM,
    TOOL,
    USER,
    Message,
    Opaque,
    Part,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
    told_parts,
)
from adapters.canonical.tool_kinds import CUSTOM
from adapters.openai.responses.content import add_own_fields, content_objects, named_namespace
from adapters.openai.responses.item_list import as_given
from adapters.openai.responses.vocabulary import (
    CUSTOM_CALL,
    CUSTOM_OUTPUT,
    ENCRYPTED_CONTENT,
    FUNCTION_CALL,
    FUNCTION_OUTPUT,
    MESSAGE,
    REASONING,
)
from adapters.openai.tools import bare_name
from adapters.openai.vocabulary import RESPONSES, arguments_field

__all__ = ["input_objects", "instructions_of", "own_thought"]

_SEPARATOR = ":"
"""Between a reasoning item's id and what its maker encrypted: the one is worth nothing without the other."""


def own_thought(item_id: str, encrypted: str) -> str:
    """What proves a reasoning item to the upstream that made it, in one text."""
    return f"{item_id}{_SEPARATOR}{encrypted}"


def instructions_of(messages: Sequence[Message]) -> str | None:
    """The system message that leads others, where it is plain text."""
    if (
        len(messages) < 2
        or messages[0].role != SYSTEM
        or messages[0].name is not None
        or messages[0].extras is not None
    ):
        return None
    parts = messages[0].parts
    if len(parts) != 1 or type(parts[0]) is not Text or parts[0].provider_data is not None:
        return None
    return parts[0].text or None


def input_objects(messages: Sequence[Message], provider: str, *, plain_thoughts: bool = True) -> list[Any]:
    """`provider` is the name of the one that is asked: thoughts that another one proved stay here, and those without
    proof where the model takes no `plain_thoughts`."""
    found: list[Any] = []
    custom = {
        part.id for message in messages for part in message.parts if isinstance(part, ToolCall) and part.kind == CUSTOM
    }
    for message in messages:
        said: list[Part] = []
        first = len(found)
        for part in message.parts:
            if isinstance(part, Reasoning | ToolCall | ToolResult | Opaque):
                if said:
                    _add_message(message, said, found)
                said = []
                if isinstance(part, Reasoning):
                    item = _thought(part, provider, plain=plain_thoughts)
                else:
                    item = _item(part, custom)
                if item is not None:
                    found.append(item)
            elif said and _phase(said[-1], message) != _phase(part, message):
                _add_message(message, said, found)
                said = [part]
            else:
                said.append(part)
        if said or (len(found) == first and message.role not in (ASSISTANT, TOOL)):
            _add_message(message, said, found)
    return found


def _phase(part: Part, message: Message) -> Any:
    """The phase of a text as raw JSON: its own, or else its message's."""
    if isinstance(part, Text) and part.provider_data is not None and part.provider_data.origin == RESPONSES:
        own = part.provider_data.fields.get("phase")
        if own is not None:
            return own
    return None if message.phase is None else orjson.dumps(message.phase)


def _add_message(message: Message, said: list[Part], found: list[Any]) -> None:
    """One plain text is a string: what a model said as a list of parts, but without the id that it had, is refused by
    servers that check the types of OpenAI's SDK."""
    output = message.role == ASSISTANT
    only = said[0] if len(said) == 1 else None
    if message.name is not None and message.role == USER:
        said = _named(message.name, said)
        only = None
    content: Any
    if isinstance(only, Text) and not (_has_more(only, message) if output else only.provider_data is not None):
        content = only.text
    elif not output and not said:
        content = ""
    else:
        content = content_objects(said, output=output)
        for part in content:
            part.pop("phase", None)
    item: dict[str, Any] = {"type": MESSAGE, "role": message.role, "content": content}
    phase = _phase(said[0], message) if said else None
    if phase is not None:
        item["phase"] = orjson.Fragment(phase)
    add_own_fields(item, message.extras)
    found.append(item)


def _has_more(text: Text, message: Message) -> bool:
    """Whether what a model said is more than its text, and the phase that stands beside it."""
    fields = () if text.provider_data is None else text.provider_data.fields.keys() - {"phase"}
    return bool(fields or text.annotations or text.citations or message.extras)


def _named(name: str, said: list[Part]) -> list[Part]:
    for place, part in enumerate(said):
        if isinstance(part, Text | Refusal):
            return [*said[:place], Text(text=f"{name}: {part.text}"), *said[place + 1 :]]
    return [Text(text=f"{name}:"), *said]


def _item(part: ToolCall | ToolResult | Opaque, custom: set[str]) -> Any:
    match part:
        case ToolCall():
            return _call(part)
        case ToolResult():
            return _result(part, custom)
        case Opaque() if part.origin == RESPONSES:
            return orjson.Fragment(as_given(part.raw))
        case Opaque():
            raise UnsupportedParameter.at("input", "a part of another dialect has no place here")


def _thought(part: Reasoning, provider: str, *, plain: bool) -> dict[str, Any] | None:
    """None for one that says this upstream nothing: without proof, and without a text that it reads."""
    item: dict[str, Any] = {"type": REASONING}
    item["summary"] = [{"type": "summary_text", "text": text} for text in part.summary]
    if part.encrypted is not None and part.origin == provider:
        item["id"], _, item[ENCRYPTED_CONTENT] = part.encrypted.partition(_SEPARATOR)
    elif not (part.text and plain):
        return None
    if part.text and plain:
        item["content"] = [{"type": "reasoning_text", "text": part.text}]
    add_own_fields(item, part.provider_data)
    return item


def _call(part: ToolCall) -> dict[str, Any]:
    name = part.name
    data = part.provider_data
    namespace = named_namespace(data)
    if namespace is not None:
        name = bare_name(namespace, name)
    item: dict[str, Any] = {"type": CUSTOM_CALL if part.kind == CUSTOM else FUNCTION_CALL, "call_id": part.id}
    item["name"] = name
    item[arguments_field(part.kind)] = part.arguments
    add_own_fields(item, data)
    return item


def _result(part: ToolResult, custom: set[str]) -> dict[str, Any]:
    """One plain text is a string."""
    output: Any
    told = told_parts(part)
    if not told:
        output = ""
    elif len(told) == 1 and isinstance(told[0], Text) and told[0].provider_data is None:
        output = told[0].text
    else:
        output = content_objects(told, output=False)
    kind = CUSTOM_OUTPUT if part.call_id in custom else FUNCTION_OUTPUT
    item: dict[str, Any] = {"type": kind, "call_id": part.call_id, "output": output}
    add_own_fields(item, part.provider_data)
    if (
        part.provider_data is not None
        and part.provider_data.origin == RESPONSES
        and "type" in part.provider_data.fields
    ):
        item["type"] = orjson.Fragment(part.provider_data.fields["type"])
    return item
