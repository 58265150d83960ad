"""Input items -> canonical messages.

Neighbouring items of one assistant turn (its reasoning, messages, calls) become one message, as templates and other
dialects have it (PROTOCOL 59). Items that this project does not map stay whole and go to their own dialect alone. Where
each message stands in the client's body is told beside it.
"""

from collections.abc import Mapping, Sequence

import orjson
from msgspec.structs import replace

from adapters.canonical.errors import InvalidRequest
from adapters.canonical.messages import (
    ASSISTANT,
    TOOL,
    USER,
    Message,
    Opaque,
    Part,
    ProviderData,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
    joined_data,
)
from adapters.canonical.request import Tool
from adapters.canonical.tool_kinds import CUSTOM, FUNCTION
from adapters.field_types import NAME, TEXT
from adapters.json_fields import JsonObject, parse_object_at
from adapters.openai.responses.content import NAMESPACE, own_fields, parse_content, texts_in
from adapters.openai.responses.plain_items import PlainCall, PlainMessage, PlainOutput, plain_item, texts
from adapters.openai.responses.sealing import ClientSeal
from adapters.openai.responses.vocabulary import (
    COMPACTION,
    CUSTOM_CALL,
    CUSTOM_OUTPUT,
    ENCRYPTED_CONTENT,
    FUNCTION_OUTPUT,
    ITEM_REFERENCE,
    MESSAGE,
    REASONING,
)
from adapters.openai.tools import declared_tools, full_name
from adapters.openai.vocabulary import RESPONSES, arguments_field
from adapters.raw_json import RAW_ITEMS

__all__ = ["InputReader"]

_GIVEN = ("_output", "_response", "_trigger", "_update")
"""What ends the types of opaque items that the client, not the model, made."""
_PHASE = "phase"
_ABSENT = (None, b"null")


class _Turn:
    """An assistant's turn that is still open."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.parts: list[Part] = []
        self.phase: str | None = None
        self.extras: ProviderData | None = None
        self.has_message = False
        self.has_call = False

    def take_trailing_thoughts(self) -> list[Part]:
        """What was thought after the last thing said belongs to what is said next."""
        kept = len(self.parts)
        while kept and isinstance(self.parts[kept - 1], Reasoning):
            kept -= 1
        thoughts = self.parts[kept:]
        del self.parts[kept:]
        return thoughts


class InputReader:
    """Collects messages, and the tools that are declared among them, each with its path. `seal` opens what this gateway
    sealed; `references` are stored items by id (raw JSON)."""

    def __init__(self, seal: ClientSeal, references: Mapping[str, bytes]) -> None:
        self.messages: list[Message] = []
        self.paths: list[str] = []
        self.tools: list[tuple[Tool, str]] = []
        self._seal = seal
        self._references = references
        self._turn: _Turn | None = None

    def add_message(self, message: Message, path: str) -> None:
        """A message that is not an open turn of the assistant."""
        self.close()
        self.messages.append(message)
        self.paths.append(path)

    def add_all(self, items: Sequence[bytes], path: str) -> None:
        """Items that stand behind one thing in the body: kept ones, or what a compaction holds."""
        for raw in items:
            self.add(raw, path)

    def add(self, raw: bytes, path: str) -> None:
        """One item. Raises InvalidRequest, naming the path."""
        plain = plain_item(raw)
        match plain:
            case PlainMessage():
                self._say(plain.role, texts(plain.content), path, phase=plain.phase)
            case PlainCall():
                self._call(plain.call_id, plain.name, plain.arguments, path)
            case PlainOutput():
                self._answer(plain.call_id, texts(plain.output), path)
            case None:
                self._add_item(raw, path)

    def _add_item(self, raw: bytes, path: str) -> None:
        """One that is read the general way."""
        item = parse_object_at(raw, path)
        kind = item.take("type", TEXT) or (MESSAGE if "role" in item else ITEM_REFERENCE if "id" in item else None)
        match kind:
            case None:
                raise InvalidRequest.at(f"{path}.type", "this field is required")
            case "message":
                self._add_message(item)
            case "reasoning":
                self._add_thought(item, raw)
            case "function_call" | "custom_tool_call":
                self._add_call(item, kind)
            case "function_call_output" | "custom_tool_call_output":
                self._add_result(item, kind, raw)
            case "item_reference":
                self._add_referenced(item)
            case "compaction":
                self._add_compaction(item, raw)
            case "additional_tools" | "tool_search_output":
                self._add_tools(item, kind, raw)
            case _:
                self._add_opaque(kind, raw, path)

    def close(self) -> None:
        """Ends the open turn."""
        turn, self._turn = self._turn, None
        if turn is not None and turn.parts:
            message = Message(role=ASSISTANT, parts=tuple(turn.parts), phase=turn.phase, extras=turn.extras)
            self.messages.append(message)
            self.paths.append(turn.path)

    def _open(self, path: str) -> _Turn:
        if self._turn is None:
            self._turn = _Turn(path)
        return self._turn

    def _add_message(self, item: JsonObject) -> None:
        role = item.require("role", NAME)
        if "content" not in item:
            raise InvalidRequest.at(item.at("content"), "this field is required")
        parts = parse_content(item, "content")
        phase = item.take(_PHASE, TEXT)
        _forget(item)
        self._say(role, parts, item.path, phase=phase, extras=own_fields(item))

    def _say(
        self,
        role: str,
        parts: tuple[Part, ...],
        path: str,
        *,
        phase: str | None = None,
        extras: ProviderData | None = None,
    ) -> None:
        if role != ASSISTANT:
            self.add_message(Message(role=role, parts=parts, phase=phase, extras=extras), path)
            return
        turn = self._open(path)
        if turn.has_message and not turn.has_call:
            thoughts = turn.take_trailing_thoughts()
            self.close()
            turn = self._open(path)
            turn.parts += thoughts
        if turn.has_message and phase != turn.phase and phase is not None:
            own = ProviderData(RESPONSES, {_PHASE: orjson.dumps(phase)})
            parts = tuple([replace(part, provider_data=own) if isinstance(part, Text) else part for part in parts])
        else:
            turn.phase = phase
        turn.has_message = True
        turn.extras = extras or turn.extras
        turn.parts += parts

    def _add_thought(self, item: JsonObject, raw: bytes) -> None:
        blob = item.take(ENCRYPTED_CONTENT, TEXT)
        text = "".join(texts_in(item, "content", "reasoning_text"))
        summary = tuple(texts_in(item, "summary", "summary_text"))
        turn = self._open(item.path)
        if not blob:
            if text or summary:
                turn.parts.append(Reasoning(text=text, summary=summary))
        elif self._seal.is_ours(blob):
            turn.parts.append(self._seal.open_thought(blob, item.at(ENCRYPTED_CONTENT)))
        else:
            turn.parts.append(Opaque(type=REASONING, raw=raw, origin=RESPONSES))

    def _add_call(self, item: JsonObject, kind: str) -> None:
        call_kind = CUSTOM if kind == CUSTOM_CALL else FUNCTION
        call_id = item.require("call_id", NAME)
        name = item.require("name", NAME)
        arguments = item.take(arguments_field(call_kind), TEXT) or ""
        namespace = item.take(NAMESPACE, TEXT)
        _forget(item)
        data = own_fields(item)
        if namespace:
            name = full_name(namespace, name)
            data = joined_data(data, ProviderData(RESPONSES, {NAMESPACE: orjson.dumps(namespace)}))
        self._call(call_id, name, arguments, item.path, kind=call_kind, data=data)

    def _call(
        self,
        call_id: str,
        name: str,
        arguments: str,
        path: str,
        *,
        kind: str = FUNCTION,
        data: ProviderData | None = None,
    ) -> None:
        turn = self._open(path)
        turn.has_call = True
        turn.parts.append(ToolCall(id=call_id, name=name, arguments=arguments, kind=kind, provider_data=data))

    def _add_result(self, item: JsonObject, kind: str, raw: bytes) -> None:
        """One without a call, which names its tool, stays whole."""
        if "output" not in item:
            raise InvalidRequest.at(item.at("output"), "this field is required")
        if kind == FUNCTION_OUTPUT and item.peek_raw("call_id") in _ABSENT and "name" in item:
            self._add_opaque(kind, raw, item.path)
            return
        call_id = item.require("call_id", NAME)
        parts = parse_content(item, "output")
        _forget(item)
        data = own_fields(item)
        if kind == CUSTOM_OUTPUT:
            data = joined_data(data, ProviderData(RESPONSES, {"type": orjson.dumps(kind)}))
        self._answer(call_id, parts, item.path, data)

    def _answer(self, call_id: str, parts: tuple[Part, ...], path: str, data: ProviderData | None = None) -> None:
        result = ToolResult(call_id=call_id, parts=parts, provider_data=data)
        self.add_message(Message(role=TOOL, parts=(result,)), path)

    def _add_referenced(self, item: JsonObject) -> None:
        item_id = item.require("id", NAME)
        found = self._references.get(item_id)
        if found is None:
            raise InvalidRequest.at(item.path, f"there is no stored item '{item_id[:100]}'", code="item_not_found")
        self.add(found, item.path)

    def _add_compaction(self, item: JsonObject, raw: bytes) -> None:
        blob = item.require(ENCRYPTED_CONTENT, TEXT)
        if self._seal.is_ours(blob):
            self.add_all(self._seal.open_items(blob, item.at(ENCRYPTED_CONTENT)), item.path)
        else:
            self._add_opaque(COMPACTION, raw, item.path)

    def _add_tools(self, item: JsonObject, kind: str, raw: bytes) -> None:
        """Tools from here on; newer Codex declares all of its tools so."""
        where = item.at("tools")
        declared = declared_tools(item.require("tools", RAW_ITEMS), where, RESPONSES)
        self.tools += [(replace(tool, in_messages=True), where) for tool in declared]
        part = Opaque(type=kind, raw=raw, origin=RESPONSES, is_told=True)
        self.add_message(Message(role=USER, parts=(part,)), item.path)

    def _add_opaque(self, kind: str, raw: bytes, path: str) -> None:
        part = Opaque(type=kind, raw=raw, origin=RESPONSES)
        if kind.endswith(_GIVEN) or kind == COMPACTION:
            self.add_message(Message(role=USER, parts=(part,)), path)
        else:
            self._open(path).parts.append(part)


def _forget(item: JsonObject) -> None:
    """What an item says about itself only because it was played back."""
    item.take_raw("id")
    item.take_raw("status")
    item.take_raw("created_by")
