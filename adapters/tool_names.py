"""Names of tools, and ids of calls and users, that an upstream forbids, as it allows them; names of tools also back.

What a name becomes depends on the name alone, so that it is the same in every request: what is forbidden in it is
replaced, and a piece of its hash keeps two names apart. A name that is allowed stays as it is.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Protocol

from msgspec.json import Decoder, encode
from msgspec.structs import replace

from adapters.canonical.messages import Message, Part, ToolCall, ToolResult
from adapters.canonical.request import Request, Tool, ToolChoice

__all__ = ["FixedIds", "Ids", "NameRule", "decode_reference", "named_in", "renamed", "short"]

_HASH_CHARS = 8
decode_reference = Decoder(dict[str, Any]).decode
"""A reference to a tool, as a choice has it."""


class NameRule:
    """`allowed` are characters as a regular expression's class has them, `first` those that may begin a name."""

    def __init__(self, *, first: str, allowed: str, max_length: int) -> None:
        self._legal = re.compile(rf"[{first}][{allowed}]{{0,{max_length - 1}}}")
        self._first = re.compile(rf"[{first}]")
        self._forbidden = re.compile(rf"[^{allowed}]")
        self._kept = max_length - _HASH_CHARS - 2
        self.sent = lru_cache(maxsize=1024)(self._sent)
        """The name as the upstream gets it."""

    def _sent(self, name: str) -> str:
        if self._legal.fullmatch(name):
            return name
        clean = self._forbidden.sub("_", name)[: self._kept]
        if not self._first.match(clean):
            clean = f"_{clean}"
        return f"{clean}_{blake2b(name.encode(), digest_size=_HASH_CHARS // 2).hexdigest()}"

    def originals(self, request: Request) -> Mapping[str, str]:
        """The client's names by those that the upstream got in their place; empty where all are allowed."""
        names = [tool.name for tool in request.tools or () if tool.raw is None]
        return {sent: name for name in names if (sent := self.sent(name)) != name}


def short(max_length: int) -> NameRule:
    """A rule that forbids nothing but length."""
    return NameRule(first=r"\s\S", allowed=r"\s\S", max_length=max_length)


class FixedIds:
    """Ids for an upstream that demands letters and digits of one length: what is not of this kind becomes its hash."""

    def __init__(self, length: int) -> None:
        self._legal = re.compile(rf"[a-zA-Z0-9]{{{length}}}")
        self._length = length

    def sent(self, call_id: str) -> str:
        if self._legal.fullmatch(call_id):
            return call_id
        return blake2b(call_id.encode(), digest_size=16).hexdigest()[: self._length]


class Ids(Protocol):
    """What the ids of calls become."""

    def sent(self, call_id: str, /) -> str: ...


def renamed(request: Request, names: NameRule | None, ids: Ids | None) -> Request:
    """The request with names of tools, and ids of calls, as an upstream allows them; itself where all are allowed."""
    if names is None and ids is None:
        return request
    changed: dict[str, Any] = {}
    if names is not None:
        if request.tools is not None:
            tools = tuple([_named(tool, names) for tool in request.tools])
            if tools != request.tools:
                changed["tools"] = tools
        if request.tool_choice is not None:
            choice = _choice(request.tool_choice, names)
            if choice is not request.tool_choice:
                changed["tool_choice"] = choice
    if request.messages is not None:
        messages = tuple([_message(message, names, ids) for message in request.messages])
        if messages != request.messages:
            changed["messages"] = messages
    return replace(request, **changed) if changed else request


def _named(tool: Tool, names: NameRule) -> Tool:
    if tool.raw is not None or (sent := names.sent(tool.name)) == tool.name:
        return tool
    return replace(tool, name=sent)


def _choice(choice: ToolChoice, names: NameRule) -> ToolChoice:
    if choice.name is not None and (sent := names.sent(choice.name)) != choice.name:
        choice = replace(choice, name=sent)
    if choice.allowed is not None:
        allowed = tuple([_reference(raw, names) for raw in choice.allowed])
        if allowed != choice.allowed:
            choice = replace(choice, allowed=allowed)
    return choice


def named_in(reference: dict[str, Any]) -> dict[str, Any]:
    """What holds the name in a reference to a tool: dialects put it at different depths."""
    inner = reference.get(str(reference.get("type")))
    return inner if isinstance(inner, dict) else reference


def _reference(raw: bytes, names: NameRule) -> bytes:
    found = decode_reference(raw)
    holder = named_in(found)
    name = holder.get("name")
    if not isinstance(name, str) or names.sent(name) == name:
        return raw
    holder["name"] = names.sent(name)
    return encode(found)


def _message(message: Message, names: NameRule | None, ids: Ids | None) -> Message:
    parts = tuple([_part(part, names, ids) for part in message.parts])
    return message if parts == message.parts else replace(message, parts=parts)


def _part(part: Part, names: NameRule | None, ids: Ids | None) -> Part:
    if isinstance(part, ToolCall):
        name = part.name if names is None else names.sent(part.name)
        call_id = part.id if ids is None else ids.sent(part.id)
        return part if (name, call_id) == (part.name, part.id) else replace(part, name=name, id=call_id)
    if isinstance(part, ToolResult) and ids is not None and (call_id := ids.sent(part.call_id)) != part.call_id:
        return replace(part, call_id=call_id)
    return part
