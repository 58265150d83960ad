"""The conversation towards Converse: canonical messages -> the system's blocks and alternating turns.

Turns of one role that follow each other are one. In a user turn the results of tool calls come first. Blank text is
left out; the name of a user stands before what it said (`ann: hi`). A system message that is not first is a user's text
marked as the system's. A cache hint is a block of its own behind what it is about.
"""

from typing import Any, assert_never

import orjson
from msgspec import DecodeError, Raw
from msgspec.json import Decoder

from adapters.bedrock.media import audio_block, document_block, file_block, image_block, video_block
from adapters.bedrock.vocabulary import IDS, NAMES
from adapters.canonical.errors import InvalidRequest, UnsupportedParameter
from adapters.canonical.messages import (
    ASSISTANT,
    DEVELOPER,
    SYSTEM,
    USER,
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
    text_of,
)
from adapters.canonical.request import Request

__all__ = ["CACHE", "Conversation", "cache_point", "conversation_of"]

CACHE = "cachePoint"
_INSTRUCTIONS = (SYSTEM, DEVELOPER)
_ARGUMENTS = Decoder(dict[str, Raw])

Block = dict[str, Any]


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
        return [block["toolUse"]["toolUseId"] for block in self.blocks if "toolUse" in block]


class Conversation:
    """`called` are the names of the tools that were called, as they are sent."""

    def __init__(self, system: list[Block], turns: list[_Turn], called: list[str]) -> None:
        self.system = system
        self.turns = turns
        self.called = called

    def messages(self) -> list[dict[str, Any]]:
        return [{"role": turn.role, "content": turn.content} for turn in self.turns]

    def limit_cache_points(self, left: int) -> None:
        """Keeps at most so many: those of the system first, then the newest."""
        fixed = [block for block in self.system if CACHE in block]
        left -= len(fixed[: max(0, left)])
        moving = [block for turn in self.turns for block in turn.content if CACHE in block]
        gone = set(map(id, moving[: len(moving) - left] if left > 0 else moving))
        for turn in self.turns:
            turn.results = [block for block in turn.results if id(block) not in gone]
            turn.blocks = [block for block in turn.blocks if id(block) not in gone]


def conversation_of(request: Request, provider: str) -> Conversation:
    """`provider` is the name of the one that is asked: thoughts that another one signed stay here.

    Raises InvalidRequest for results and calls that do not belong together, naming the id.
    """
    messages = request.messages or ()
    leading = next((i for i, message in enumerate(messages) if message.role not in _INSTRUCTIONS), len(messages))
    writer = _Writer(provider)
    system: list[Block] = []
    for message in messages[:leading]:
        for part in message.parts:
            if not isinstance(part, Text):
                raise UnsupportedParameter(f"messages: a {message.role} message holds text alone", param="messages")
            system += writer.blocks(part)
    for message in messages[leading:]:
        writer.add(message)
    turns = [turn for turn in writer.turns if turn.content]
    if not turns:
        raise InvalidRequest("messages: expected a message beside the system's", param="messages")
    _check_results(turns)
    return Conversation(system, turns, writer.called)


class _Writer:
    def __init__(self, provider: str) -> None:
        self.turns: list[_Turn] = []
        self.called: list[str] = []
        self._provider = provider

    def add(self, message: Message) -> None:
        match message.role:
            case "user" | "tool":
                role = USER
            case "assistant":
                role = ASSISTANT
            case "system" | "developer":
                text = text_of(message.parts)
                if text.strip():
                    self._turn(USER).blocks.append({"text": f"<system>\n{text}\n</system>"})
                return
            case unknown:
                raise UnsupportedParameter(f"messages: Bedrock has no role {unknown}", param="messages")
        name = message.name if message.role == USER else None
        for part in message.parts:
            found = self.blocks(part)
            if name is not None and isinstance(part, Text) and found:
                found[0]["text"], name = f"{name}: {part.text}", None
            turn = self._turn(role)
            (turn.results if isinstance(part, ToolResult) else turn.blocks).extend(found)

    def _turn(self, role: str) -> _Turn:
        if not self.turns or self.turns[-1].role != role:
            self.turns.append(_Turn(role))
        return self.turns[-1]

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
                return {"toolUse": {"toolUseId": IDS.sent(part.id), "name": name, "input": _arguments(part)}}
            case ToolResult():
                return self._result(part)
            case Image():
                return image_block(part)
            case File():
                return file_block(part)
            case Document():
                return document_block(part)
            case Video():
                return video_block(part)
            case Audio():
                return audio_block(part)
            case Opaque():
                raise UnsupportedParameter(f"messages: Bedrock takes no {part.type} parts", param="messages")
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


def cache_point(hint: CacheHint) -> Block:
    point = {"type": "default"} if hint.ttl is None else {"type": "default", "ttl": hint.ttl}
    return {CACHE: point}


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
    calls: list[str] = []
    for turn in turns:
        answered: set[str] = set()
        for block in turn.results:
            if "toolResult" not in block:
                continue
            call_id = block["toolResult"]["toolUseId"]
            if call_id not in calls:
                raise _unmatched(f"the tool result '{call_id}' answers no call of the turn before it")
            if call_id in answered:
                raise _unmatched(f"the tool call '{call_id}' has two results")
            answered.add(call_id)
        _check_answered(calls, answered)
        calls = turn.calls
    _check_answered(calls, set())


def _check_answered(calls: list[str], answered: set[str]) -> None:
    for call_id in calls:
        if call_id not in answered:
            raise _unmatched(f"the tool call '{call_id}' has no result in the turn after it")


def _unmatched(what: str) -> InvalidRequest:
    return InvalidRequest(f"messages: {what}", param="messages")
