"""The conversation towards Anthropic: canonical messages -> the system prompt and alternating turns.

Text that says nothing is left out. System messages that are not first stay where they are for a client of this dialect,
and are a user's text marked as the system's for others.
"""

from collections.abc import Iterator
from typing import Any, assert_never

import orjson
from msgspec.structs import replace

from adapters.alternating_turns import Block, Turn, alternating_turns, first_of_loop, parted, texts_in
from adapters.anthropic.media import document_block, file_block, image_block
from adapters.anthropic.tools import cache_object
from adapters.anthropic.vocabulary import MESSAGES
from adapters.call_objects import arguments_object
from adapters.canonical.errors import UnsupportedParameter
from adapters.canonical.messages import (
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
from adapters.canonical.request import Request
from adapters.raw_json import add_missing

__all__ = ["Conversation", "content_of", "conversation_of"]

_THOUGHTS = ("thinking", "redacted_thinking")


class Conversation:
    """`system` and the content of turns are blocks."""

    def __init__(self, system: list[Block], turns: list[Turn]) -> None:
        self.system = system
        self._turns = turns

    def messages(self) -> list[dict[str, Any]]:
        return [_message(turn) for turn in self._turns]

    def blocks(self) -> Iterator[dict[str, Any]]:
        """Those of all turns that we know, in order."""
        for turn in self._turns:
            yield from [block for block in turn.content if isinstance(block, dict)]

    @property
    def lost_its_thoughts(self) -> bool:
        """Whether the calls that were just answered did not begin with what the model thought."""
        first = first_of_loop(self._turns)
        if first is None:
            return False
        block = first.blocks[0]
        return not isinstance(block, dict) or block["type"] not in _THOUGHTS


def _message(turn: Turn) -> dict[str, Any]:
    found = {"role": turn.role, "content": content_of(turn.content)}
    if turn.extras is not None and turn.extras.origin == MESSAGES:
        add_missing(found, turn.extras.fields)
    return found


def conversation_of(request: Request, provider: str) -> Conversation:
    """`provider` is the name of the one that is asked: thoughts that another one signed stay here.

    Raises InvalidRequest for results and calls that do not belong together, naming the id.
    """
    leading, rest = parted(request.messages or ())
    writer = _Writer(request.dialect, provider)
    system = [block for message in leading for part in _instructions(message) for block in writer.blocks(part)]
    return Conversation(system, alternating_turns(rest, writer, keeps_instructions=request.dialect == MESSAGES))


def _instructions(message: Message) -> list[Part]:
    """What Anthropic alone reads of it, then its text."""
    own = [part for part in message.parts if isinstance(part, Opaque)]
    rest = tuple([part for part in message.parts if not isinstance(part, Opaque)]) if own else message.parts
    return [*own, *texts_in(replace(message, parts=rest))]


class _Writer:
    vendor = "Anthropic"

    def __init__(self, dialect: str, provider: str) -> None:
        self._dialect = dialect
        self._provider = provider

    def written(self, message: Message) -> Iterator[tuple[Part, list[Block]]]:
        for part in message.parts:
            yield part, self.blocks(part)

    def text(self, text: str) -> Block:
        return {"type": "text", "text": text}

    def blocks(self, part: Part) -> list[Block]:
        """One block, or none for what says nothing, or is not this provider's to read."""
        block = self._block(part)
        return [] if block is None else [block]

    def _block(self, part: Part) -> Block | None:
        found: dict[str, Any] | None
        match part:
            case Text() | Refusal():
                found = _text_block(part)
            case Reasoning():
                return self._thought(part)
            case ToolCall():
                found = {"type": "tool_use", "id": part.id, "name": part.name, "input": arguments_object(part)}
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
                raise UnsupportedParameter.at("messages", f"Anthropic takes no {kind} parts")
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
            found["content"] = content_of(blocks)
        if part.is_error is not None:
            found["is_error"] = part.is_error
        return found


def content_of(blocks: list[Block]) -> Any:
    """One plain text is a string; anything else a list of blocks."""
    if len(blocks) == 1:
        only = blocks[0]
        if isinstance(only, dict) and only.keys() == {"type", "text"}:
            return only["text"]
    return blocks


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
        add_missing(block, part.provider_data.fields)
