"""The conversation towards Converse: canonical messages -> the system's blocks and alternating turns.

Blank text is left out. A cache hint is a block of its own behind what it is about. A turn with a document says a text
as well, as the API demands: its name, where the client says none.
"""

from collections.abc import Iterator
from typing import Any, assert_never

from adapters.alternating_turns import Block, Turn, alternating_turns, first_of_loop, parted, texts_in
from adapters.bedrock.media import (
    DocumentNames,
    audio_block,
    document_block,
    file_block,
    image_block,
    video_block,
)
from adapters.bedrock.vocabulary import IDS, NAMES
from adapters.call_objects import arguments_object
from adapters.canonical.errors import UnsupportedParameter
from adapters.canonical.messages import (
    Audio,
    CacheHint,
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

__all__ = ["CACHE", "Conversation", "cache_point", "conversation_of"]

CACHE = "cachePoint"


class Conversation:
    """`called` are the names of the tools that were called, as they are sent."""

    def __init__(self, system: list[Block], turns: list[Turn], called: list[str]) -> None:
        self.system = system
        self.turns = turns
        self.called = called

    def messages(self) -> list[dict[str, Any]]:
        return [{"role": turn.role, "content": _with_text(turn.content)} for turn in self.turns]

    @property
    def lost_its_thoughts(self) -> bool:
        """Whether the calls that were just answered did not begin with what the model thought."""
        first = first_of_loop(self.turns)
        return first is not None and "reasoningContent" not in first.blocks[0]

    def limit_cache_points(self, left: int) -> None:
        """Keeps at most so many: those of the system first, then the newest."""
        fixed = [block for block in self.system if _is_cache_point(block)]
        left -= len(fixed[: max(0, left)])
        moving = [block for turn in self.turns for block in turn.content if _is_cache_point(block)]
        gone = set(map(id, moving[: len(moving) - left] if left > 0 else moving))
        for turn in self.turns:
            for call_id, blocks in turn.results.items():
                turn.results[call_id] = [block for block in blocks if id(block) not in gone]
            turn.blocks = [block for block in turn.blocks if id(block) not in gone]


def conversation_of(request: Request, provider: str) -> Conversation:
    """`provider` is the name of the one that is asked: thoughts that another one signed stay here.

    Raises InvalidRequest for results and calls that do not belong together, naming the id.
    """
    leading, rest = parted(request.messages or ())
    writer = _Writer(provider)
    system = [block for message in leading for part in texts_in(message) for block in writer.blocks(part)]
    return Conversation(system, alternating_turns(rest, writer), writer.called)


class _Writer:
    vendor = "Bedrock"

    def __init__(self, provider: str) -> None:
        self.called: list[str] = []
        self._documents = DocumentNames()
        self._provider = provider

    def written(self, message: Message) -> Iterator[tuple[Part, list[Block]]]:
        for part in message.parts:
            yield part, self.blocks(part)

    def text(self, text: str) -> Block:
        return {"text": text}

    def blocks(self, part: Part) -> list[Block]:
        """The part, and its cache point; empty for what says nothing, or is not this provider's to read."""
        found = self._block(part)
        if found is None:
            return []
        return [found] if part.cache is None else [found, cache_point(part.cache)]

    def _block(self, part: Part) -> Block | None:
        match part:
            case Text() | Refusal():
                return {"text": part.text} if part.text.strip() else None
            case Reasoning():
                return self._thought(part)
            case ToolCall():
                name = NAMES.sent(part.name)
                self.called.append(name)
                return {"toolUse": {"toolUseId": IDS.sent(part.id), "name": name, "input": arguments_object(part)}}
            case ToolResult():
                return self._result(part)
            case Image():
                return image_block(part)
            case File():
                return file_block(part, self._documents)
            case Document():
                return document_block(part, self._documents)
            case Video():
                return video_block(part)
            case Audio():
                return audio_block(part)
            case Opaque():
                raise UnsupportedParameter.at("messages", f"Bedrock takes no {part.type} parts")
            case _:
                assert_never(part)

    def _thought(self, part: Reasoning) -> Block | None:
        if part.origin != self._provider:
            return None
        if part.encrypted is not None:
            return {"reasoningContent": {"redactedContent": part.encrypted}}
        if part.signature is None:
            return None
        return {"reasoningContent": {"reasoningText": {"text": part.text, "signature": part.signature}}}

    def _result(self, part: ToolResult) -> Block:
        content = [block for inner in part.parts if (block := self._block(inner)) is not None]
        found: dict[str, Any] = {"toolUseId": IDS.sent(part.call_id), "content": content}
        if part.is_error is not None:
            found["status"] = "error" if part.is_error else "success"
        return {"toolResult": found}


def _with_text(content: list[Block]) -> list[Block]:
    """The content of a turn, in which no document stands without a text."""
    blocks = [block for block in content if isinstance(block, dict)]
    document = next((block["document"] for block in blocks if "document" in block), None)
    if document is None or any("text" in block for block in blocks):
        return content
    return [*content, {"text": document["name"]}]


def cache_point(hint: CacheHint) -> Block:
    point = {"type": "default"} if hint.ttl is None else {"type": "default", "ttl": hint.ttl}
    return {CACHE: point}


def _is_cache_point(block: Block) -> bool:
    return isinstance(block, dict) and CACHE in block
