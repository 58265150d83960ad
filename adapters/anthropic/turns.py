"""The conversation towards Anthropic: canonical messages -> the system prompt and alternating turns.

Turns of one role that follow each other are one. In a user turn the results of tool calls come first. Text that says
nothing is left out; the name of a user stands before what it said (`ann: hi`). System messages that lead are the system
prompt; later ones stay where they are for a client of this dialect, and are a user's text marked as the system's for
others.
"""

from collections.abc import Iterator
from typing import Any, assert_never

import orjson
from msgspec import DecodeError, Raw
from msgspec.json import Decoder

from adapters.anthropic.media import document_block, file_block, image_block
from adapters.anthropic.tools import cache_object
from adapters.anthropic.vocabulary import MESSAGES
from adapters.canonical.errors import InvalidRequest, UnsupportedParameter
from adapters.canonical.messages import (
    ASSISTANT,
    DEVELOPER,
    SYSTEM,
    USER,
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
    text_of,
)
from adapters.canonical.request import Request

__all__ = ["Conversation", "conversation_of"]

_INSTRUCTIONS = (SYSTEM, DEVELOPER)
_ARGUMENTS = Decoder(dict[str, Raw])
_THOUGHTS = ("thinking", "redacted_thinking")

Block = dict[str, Any] | orjson.Fragment
"""A block, or one that only its own dialect understands, as it came."""


class _Turn:
    __slots__ = ("blocks", "results", "role")

    def __init__(self, role: str) -> None:
        self.role = role
        self.results: list[Block] = []
        self.blocks: list[Block] = []

    @property
    def content(self) -> list[Block]:
        return self.results + self.blocks

    @property
    def calls(self) -> list[str]:
        return [block["id"] for block in _known(self.blocks) if block["type"] == "tool_use"]


class Conversation:
    """`system` and the content of `turns` are blocks."""

    def __init__(self, system: list[Block], turns: list[_Turn]) -> None:
        self.system = system
        self._turns = turns

    def messages(self) -> list[dict[str, Any]]:
        return [{"role": turn.role, "content": _content(turn.content)} for turn in self._turns]

    def blocks(self) -> Iterator[dict[str, Any]]:
        """Those of all turns that we know, in order."""
        for turn in self._turns:
            yield from _known(turn.content)

    @property
    def lost_its_thoughts(self) -> bool:
        """Whether the turn that goes on (its calls were just answered) does not begin with what the model thought."""
        if len(self._turns) < 2 or not self._turns[-1].results:
            return False
        called = self._turns[-2].blocks
        return not isinstance(called[0], dict) or called[0]["type"] not in _THOUGHTS


def conversation_of(request: Request, provider: str) -> Conversation:
    """`provider` is the name of the one that is asked: thoughts that another one signed stay here.

    Raises InvalidRequest for results and calls that do not belong together, naming the id.
    """
    messages = request.messages or ()
    leading = next((i for i, message in enumerate(messages) if message.role not in _INSTRUCTIONS), len(messages))
    system = [block for message in messages[:leading] for block in _text_blocks(message)]
    writer = _Writer(request.dialect, provider)
    for message in messages[leading:]:
        writer.add(message)
    turns = writer.turns
    if not turns:
        raise InvalidRequest("messages: expected a message beside the system's", param="messages")
    _check_results(turns)
    return Conversation(system, turns)


class _Writer:
    def __init__(self, dialect: str, provider: str) -> None:
        self.turns: list[_Turn] = []
        self._dialect = dialect
        self._provider = provider

    def add(self, message: Message) -> None:
        match message.role:
            case "user" | "tool":
                role = USER
            case "assistant":
                role = ASSISTANT
            case "system" | "developer":
                self._add_instruction(message)
                return
            case unknown:
                raise UnsupportedParameter(f"messages: Anthropic has no role {unknown}", param="messages")
        name = message.name if message.role == USER else None
        for part in message.parts:
            block = self._block(part)
            if block is None:
                continue
            if name is not None and isinstance(part, Text) and isinstance(block, dict):
                block["text"], name = f"{name}: {part.text}", None
            turn = self._turn(role)
            (turn.results if isinstance(part, ToolResult) else turn.blocks).append(block)

    def _turn(self, role: str) -> _Turn:
        if not self.turns or self.turns[-1].role != role:
            self.turns.append(_Turn(role))
        return self.turns[-1]

    def _add_instruction(self, message: Message) -> None:
        if self._dialect == MESSAGES:
            blocks = _text_blocks(message)
            if blocks:
                self._turn(SYSTEM).blocks += blocks
            return
        text = text_of(message.parts)
        if text.strip():
            self._turn(USER).blocks.append({"type": "text", "text": f"<system>\n{text}\n</system>"})

    def _block(self, part: Part) -> Block | None:
        """None for what says nothing, or is not this provider's to read."""
        found: dict[str, Any] | None
        match part:
            case Text() | Refusal():
                found = _text_block(part)
            case Reasoning():
                return self._thought(part)
            case ToolCall():
                arguments = _arguments(part)
                found = {"type": "tool_use", "id": part.id, "name": part.name, "input": arguments}
            case ToolResult():
                found = self._result(part)
            case Image():
                found = image_block(part)
            case File():
                found = file_block(part)
            case Document():
                found = document_block(part)
            case Opaque() if part.origin == MESSAGES:
                return orjson.Fragment(part.raw)
            case Opaque() | Audio() | Video():
                kind = type(part).__name__.lower()
                raise UnsupportedParameter(f"messages: Anthropic takes no {kind} parts of this kind", param="messages")
            case _:
                assert_never(part)
        if found is not None:
            _add_fields(found, part)
        return found

    def _thought(self, part: Reasoning) -> Block | None:
        """Signed by this provider, or (a client of this dialect does not say) by whom is not known. As it came."""
        is_own = part.origin == self._provider or (part.origin is None and self._dialect == MESSAGES)
        if not is_own:
            return None
        if part.encrypted is not None:
            return {"type": "redacted_thinking", "data": part.encrypted}
        if part.signature is None:
            return None
        return {"type": "thinking", "thinking": part.text, "signature": part.signature}

    def _result(self, part: ToolResult) -> dict[str, Any]:
        found: dict[str, Any] = {"type": "tool_result", "tool_use_id": part.call_id}
        blocks = [block for inner in part.parts if (block := self._block(inner)) is not None]
        if blocks:
            found["content"] = _content(blocks)
        if part.is_error is not None:
            found["is_error"] = part.is_error
        return found


def _known(blocks: list[Block]) -> list[dict[str, Any]]:
    return [block for block in blocks if isinstance(block, dict)]


def _content(blocks: list[Block]) -> Any:
    """One plain text is a string; anything else a list of blocks."""
    if len(blocks) == 1:
        only = blocks[0]
        if isinstance(only, dict) and only.keys() == {"type", "text"}:
            return only["text"]
    return blocks


def _text_blocks(message: Message) -> list[Block]:
    """The blocks of an instruction, which are text."""
    found: list[Block] = []
    for part in message.parts:
        if not isinstance(part, Text):
            raise UnsupportedParameter(f"messages: a {message.role} message holds text alone", param="messages")
        block = _text_block(part)
        if block is not None:
            _add_fields(block, part)
            found.append(block)
    return found


def _text_block(part: Text | Refusal) -> dict[str, Any] | None:
    """None for blank text, which the API refuses."""
    if not part.text.strip():
        return None
    found: dict[str, Any] = {"type": "text", "text": part.text}
    if isinstance(part, Text) and part.annotated_by == MESSAGES:
        found["citations"] = [orjson.Fragment(raw) for raw in part.annotations]
    return found


def _add_fields(block: dict[str, Any], part: Part) -> None:
    """The cache hint, and unmapped fields of this dialect."""
    if part.cache is not None:
        block["cache_control"] = cache_object(part.cache)
    if part.provider_data is not None and part.provider_data.origin == MESSAGES:
        for name, raw in part.provider_data.fields.items():
            block.setdefault(name, orjson.Fragment(raw))


def _arguments(call: ToolCall) -> orjson.Fragment:
    """The input object, as the text that it came in."""
    text = call.arguments.strip() or "{}"
    try:
        _ARGUMENTS.decode(text)
    except (DecodeError, RecursionError) as error:
        raise InvalidRequest(
            f"messages: the arguments of the tool call '{call.id}' are not a JSON object", param="messages"
        ) from error
    return orjson.Fragment(text)


def _check_results(turns: list[_Turn]) -> None:
    """Every call of a turn is answered in the next one, once, and nothing else is."""
    said = [turn for turn in turns if turn.role != SYSTEM]
    calls: list[str] = []
    for turn in said:
        answered: set[str] = set()
        for result in turn.results:
            call_id = result["tool_use_id"] if isinstance(result, dict) else ""
            if call_id not in calls:
                raise _unmatched(f"the tool result '{call_id}' answers no call of the turn before it")
            if call_id in answered:
                raise _unmatched(f"the tool call '{call_id}' has two results")
            answered.add(call_id)
        for call_id in calls:
            if call_id not in answered:
                raise _unmatched(f"the tool call '{call_id}' has no result in the turn after it")
        calls = turn.calls
    for call_id in calls:
        raise _unmatched(f"the tool call '{call_id}' has no result in the turn after it")


def _unmatched(what: str) -> InvalidRequest:
    return InvalidRequest(f"messages: {what}", param="messages")
