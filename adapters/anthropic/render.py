"""Messages to the client: events as frames, a result as one object."""

from collections.abc import Mapping, Sequence
from typing import Any, assert_never

import orjson
from msgspec.structs import replace

from adapters.anthropic.blocks import DELTA_TAIL, Blocks
from adapters.anthropic.citations import citation_objects
from adapters.anthropic.errors import error_frame
from adapters.anthropic.usage import usage_object
from adapters.anthropic.vocabulary import MESSAGES, frame, stop_word
from adapters.call_objects import told_arguments
from adapters.canonical.errors import GatewayError
from adapters.canonical.events import (
    ChoiceFinished,
    Event,
    MediaDelta,
    PartReported,
    PromptReported,
    ProviderReported,
    Started,
    TextDelta,
    UsageReported,
)
from adapters.canonical.messages import (
    Audio,
    Document,
    File,
    Image,
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
from adapters.canonical.result import Result
from adapters.canonical.stop_reason import StopReason
from adapters.canonical.usage import Usage
from adapters.front import AnswerHead
from adapters.origin_marks import marked
from adapters.raw_json import fragments
from adapters.thought_text import thought_text
from adapters.upstream_errors import given_up, no_finish
from adapters.usage_fields import told_apart

__all__ = ["MessagesStreamRenderer", "render_messages_result"]

_USAGE = "usage"


class MessagesStreamRenderer:
    """One message: its start, blocks, a delta with the stop reason and the usage, its stop."""

    def __init__(self, request: Request, head: AnswerHead) -> None:
        self._head = head
        self._started = False
        self._fields: dict[str, bytes] = {}
        self._usage: Usage | None = None
        self._usage_fields: dict[str, bytes] = {}
        self._finish: ChoiceFinished | None = None
        self._blocks = Blocks()

    def feed(self, events: Sequence[Event]) -> bytes:
        out: list[bytes] = []
        blocks = self._blocks
        for event in events:
            if type(event) is TextDelta and event.part == blocks.part and blocks.kind == "text":
                if event.text:
                    out += (blocks.delta_head, orjson.dumps(event.text), DELTA_TAIL)
            else:
                self._feed_other(event, out)
        return b"".join(out)

    def finish(self) -> bytes:
        out: list[bytes] = [] if self._started else [self._start()]
        blocks = self._blocks
        blocks.finish(out)
        finish = self._finish
        if finish is None:
            raise no_finish()
        delta = _stop_object(finish, called=blocks.called, refused=blocks.refused)
        delta.update(fragments(self._fields))
        out.append(frame("message_delta", {"delta": delta, "usage": usage_object(self._usage, self._usage_fields)}))
        out.append(frame("message_stop", {}))
        return b"".join(out)

    def fail(self, error: GatewayError) -> bytes:
        return error_frame(error)

    def _start(self) -> bytes:
        self._started = True
        message = _message_object(self._head, [], _NO_STOP, usage_object(self._usage, self._usage_fields))
        message.update(fragments(self._fields))
        self._fields = {}
        return frame("message_start", {"message": message})

    def _feed_other(self, event: Event, out: list[bytes]) -> None:
        match event:
            case UsageReported():
                self._usage = event.usage
            case ChoiceFinished():
                _stop_object(event, called=False, refused=False)  # an answer that was given up ends before its finish
                self._finish = event
            case ProviderReported():
                if event.origin == MESSAGES:
                    fields, usage_fields = told_apart(event.fields, _USAGE)
                    self._fields.update(fields)
                    self._usage_fields.update(usage_fields)
            case Started() | PartReported() | PromptReported() | MediaDelta():
                pass  # no word in this dialect, whose clients can ask for no media
            case _:
                before = len(out)
                self._blocks.feed(event, out)
                if not self._started and len(out) > before:
                    out.insert(before, self._start())


def render_messages_result(request: Request, result: Result, head: AnswerHead) -> bytes:
    choice = result.choices[0]
    fields, usage_fields = told_apart(result.fields_of(MESSAGES), _USAGE)
    content = [block for part in choice.parts for block in _blocks(part)]
    called = any(isinstance(part, ToolCall) for part in choice.parts)
    refused = any(isinstance(part, Refusal) and part.text for part in choice.parts)
    stop = _stop_object(choice.finish, called=called, refused=refused)
    message = _message_object(head, content, stop, usage_object(result.usage, usage_fields))
    for name, value in fragments(fields).items():
        message.setdefault(name, value)
    return orjson.dumps(message)


_NO_STOP: dict[str, Any] = {"stop_reason": None, "stop_sequence": None}


def _message_object(
    head: AnswerHead, content: list[Any], stop: Mapping[str, Any], usage: dict[str, Any]
) -> dict[str, Any]:
    return {
        "id": head.id,
        "type": "message",
        "role": "assistant",
        "model": head.model,
        "content": content,
        **stop,
        "usage": usage,
    }


def _stop_object(finish: ChoiceFinished, *, called: bool, refused: bool) -> dict[str, Any]:
    """Raises UpstreamError for a finish that is none. `native_stop_reason` is an upstream's word that nobody knows."""
    word = stop_word(finish, called=called, refused=refused)
    if word is None:
        raise given_up(finish.word)
    sequence = finish.stop if word == "stop_sequence" else None
    found: dict[str, Any] = {"stop_reason": word, "stop_sequence": sequence}
    if finish.reason is StopReason.OTHER and finish.raw is not None:
        found["native_stop_reason"] = finish.raw
    return found


def _blocks(part: Part) -> list[Any]:
    """A thought that is both shown and hidden is two blocks, as it is in a stream."""
    if isinstance(part, Reasoning) and part.encrypted is not None:
        shown = _block(replace(part, encrypted=None))
        hidden = {"type": "redacted_thinking", "data": marked(part.encrypted, part.origin)}
        return [hidden] if shown is None else [shown, hidden]
    block = _block(part)
    return [] if block is None else [block]


def _block(part: Part) -> Any:
    """None for what says nothing, or has no word in this dialect."""
    match part:
        case Text():
            return _text_block(part)
        case Refusal():
            return {"type": "text", "text": part.text} if part.text else None
        case Reasoning():
            thought = thought_text(part)
            if not thought and part.signature is None:
                return None
            signature = "" if part.signature is None else marked(part.signature, part.origin)
            return {"type": "thinking", "thinking": thought, "signature": signature}
        case ToolCall():
            block: dict[str, Any] = {
                "type": "tool_use",
                "id": part.id,
                "name": part.name,
                "input": told_arguments(part.arguments),
            }
            if part.provider_data is not None and part.provider_data.origin == MESSAGES:
                block.update(fragments(part.provider_data.fields))
            return block
        case Opaque():
            return orjson.Fragment(part.raw) if part.origin == MESSAGES else None
        case Image() | Audio() | Video() | File() | Document() | ToolResult():
            return None
        case _:
            assert_never(part)


def _text_block(part: Text) -> dict[str, Any] | None:
    citations: Sequence[Any] = citation_objects(part.citations)
    if part.annotated_by == MESSAGES:
        citations = [orjson.Fragment(raw) for raw in part.annotations]
    if not part.text and not citations:
        return None
    found: dict[str, Any] = {"type": "text", "text": part.text}
    if citations:
        found["citations"] = citations
    return found
