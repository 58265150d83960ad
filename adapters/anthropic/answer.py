"""Answers of the Messages API as events: a stream's, cut anywhere, and a whole body by the same state machine.

A finish is said when the message stops: the stop word may come with usage that is still to grow.
"""

import re
from collections.abc import Mapping

import orjson

from adapters.anthropic.citations import parse_citation
from adapters.anthropic.errors import error_from_event
from adapters.anthropic.usage import RunningUsage
from adapters.anthropic.vocabulary import MESSAGES, STOP_REASONS
from adapters.anthropic.wire import (
    WireBlock,
    WireDelta,
    WireMessage,
    WireStop,
    decode_block,
    decode_event,
    decode_message,
    decode_message_delta,
    decode_stop,
)
from adapters.call_ids import OwnIds
from adapters.call_objects import arguments_text
from adapters.canonical.errors import BadUpstreamResponse, StreamTruncated
from adapters.canonical.events import (
    AnnotationAdded,
    ChoiceFinished,
    Event,
    HostedToolEvent,
    ProviderReported,
    ReasoningDelta,
    ReasoningFinished,
    Started,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallFinished,
    ToolCallStarted,
    UsageReported,
)
from adapters.canonical.messages import ProviderData
from adapters.canonical.stop_reason import StopReason, confirmed
from adapters.canonical.tool_kinds import FUNCTION
from adapters.raw_json import fragments, raw_fields
from adapters.sse_answer import SseAnswerParser, whole_answer
from adapters.upstream_json import unmapped

__all__ = ["parse_whole", "stream_parser"]

_TEXT_FIELD = re.compile(
    rb'"delta"\s*:\s*\{(?:\s*"type"\s*:\s*"\w+"\s*,)?'
    rb'\s*"(?:text|thinking|partial_json)"\s*:\s*("(?:[^"\\]|\\.)*")'
)
"""Of a block that is open; the text in the event that opens one would begin another part each time."""
_EMPTY = (b"", b"{}", b"null")


_MESSAGE_FIELDS = frozenset((*WireMessage.__struct_fields__, "role"))
_STOP_FIELDS = frozenset(WireStop.__struct_fields__)
_CALL_FIELDS = frozenset(("type", "id", "name", "input"))


class _OpenBlock:
    """A block of the stream. `part` is None until it says something; `raw` is kept of blocks that we do not know."""

    __slots__ = ("has_input", "kind", "late_input", "part", "pieces", "raw")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.part: int | None = None
        self.raw = b""
        self.pieces: list[str] = []
        self.has_input = False
        self.late_input = b""


class _Answer:
    """The state of one answer. The provider's name goes with what the model thought; `names` are the client's names of
    tools by those that were sent."""

    def __init__(self, provider: str, names: Mapping[str, str], ids: OwnIds) -> None:
        self._provider = provider
        self._names = names
        self._ids = ids
        self._blocks: dict[int, _OpenBlock] = {}
        self._parts = 0
        self._called = False
        self._usage = RunningUsage()
        self._stop: WireStop | None = None
        self._started = False
        self.finished = False

    @property
    def complete(self) -> bool:
        """Whether the upstream has said why it stopped."""
        return self._stop is not None and self._stop.stop_reason is not None

    def feed(self, payload: bytes, out: list[Event]) -> None:
        """One event of the stream. What is not known is passed over, as the API asks."""
        event = decode_event(payload)
        match event.type:
            case "content_block_delta":
                if event.delta is not None:
                    self._feed_delta(event.index or 0, event.delta, out)
            case "content_block_start":
                self._open(event.index or 0, bytes(event.content_block), out)
            case "content_block_stop":
                self._close(event.index or 0, out)
            case "message_start":
                raw = bytes(event.message) or b"{}"
                self._start(decode_message(raw), raw, out)
            case "message_delta":
                self._report_stop(bytes(decode_message_delta(payload).delta) or b"{}", out)
                self._report_usage(bytes(event.usage), out)
            case "message_stop":
                self.finish(out)
            case "error":
                raise error_from_event(payload)
            case _:
                pass  # ping, and what later versions add

    def read_whole(self, body: bytes, out: list[Event]) -> None:
        """A message that was not streamed: each block as one delta."""
        message = decode_message(body)
        if message.type == "error":
            raise error_from_event(body)
        self._start(message, body, out)
        for index, raw in enumerate(message.content or ()):
            self._open(index, bytes(raw), out)
            self._close(index, out)
        self._stop = WireStop(message.stop_reason, message.stop_sequence)
        if not self.complete:
            raise BadUpstreamResponse("the upstream's answer has no stop_reason")
        self.finish(out)

    def _start(self, message: WireMessage, raw: bytes, out: list[Event]) -> None:
        if self._started:
            return
        self._started = True
        out.append(Started(message.id or None, None, message.model or None))
        self._report_rest(raw, _MESSAGE_FIELDS, out)
        self._report_usage(bytes(message.usage), out)

    def _report_rest(self, raw: bytes, known: frozenset[str], out: list[Event]) -> None:
        if said := unmapped(raw_fields(raw), known):
            out.append(ProviderReported(said, MESSAGES))

    def _report_usage(self, raw: bytes, out: list[Event]) -> None:
        if raw in _EMPTY:
            return
        news = self._usage.update(raw)
        if news:
            out.append(ProviderReported({f"usage.{name}": value for name, value in news.items()}, MESSAGES))
        usage = self._usage.usage()
        if usage is not None:
            out.append(UsageReported(usage))

    def _report_stop(self, raw: bytes, out: list[Event]) -> None:
        stop = decode_stop(raw)
        if stop.stop_reason is not None:
            self._stop = stop
        self._report_rest(raw, _STOP_FIELDS, out)

    def _part_of(self, block: _OpenBlock) -> int:
        if block.part is None:
            block.part = self._parts
            self._parts += 1
        return block.part

    def _open(self, index: int, raw: bytes, out: list[Event]) -> None:
        if not self._started:  # some hosts leave the message's start out
            self._start(WireMessage(), b"{}", out)
        found = decode_block(raw)
        block = self._blocks[index] = _OpenBlock(found.type)
        if self.complete:
            raise BadUpstreamResponse("the upstream went on after it had stopped")
        match found.type:
            case "text":
                self._add_text(block, found.text or "", out)
                for citation in found.citations or ():
                    self._cite(block, bytes(citation), out)
            case "thinking":
                self._add_thought(block, found.thinking or "", out)
                self._sign(block, found.signature, out)
            case "redacted_thinking":
                out.append(
                    ReasoningFinished(0, self._part_of(block), encrypted=found.data or "", origin=self._provider)
                )
            case "tool_use":
                self._open_call(block, found, raw, out)
            case _:
                block.raw = raw

    def _open_call(self, block: _OpenBlock, found: WireBlock, raw: bytes, out: list[Event]) -> None:
        if not found.name:
            raise BadUpstreamResponse("the upstream sent a tool call without a name")
        call_id = self._ids.of(found.id)  # hosts that speak this dialect repeat them
        self._called = True
        data = ProviderData(MESSAGES, said) if (said := unmapped(raw_fields(raw), _CALL_FIELDS)) else None
        name = self._names.get(found.name, found.name)
        out.append(ToolCallStarted(0, self._part_of(block), call_id, name, FUNCTION, data))
        value = bytes(found.input)
        if value not in _EMPTY:
            block.late_input = value  # whole bodies, and hosts that do not stream arguments

    def _feed_delta(self, index: int, delta: WireDelta, out: list[Event]) -> None:
        block = self._blocks.get(index)
        if block is None:
            raise BadUpstreamResponse("the upstream sent a delta of a block that it had not opened")
        match delta.type:
            case "text_delta":
                self._add_text(block, delta.text or "", out)
            case "input_json_delta":
                if block.kind != "tool_use":
                    block.pieces.append(delta.partial_json or "")
                elif delta.partial_json:
                    block.has_input = True
                    out.append(ToolArgumentsDelta(0, self._part_of(block), delta.partial_json))
            case "thinking_delta":
                self._add_thought(block, delta.thinking or "", out)
            case "signature_delta":
                self._sign(block, delta.signature, out)
            case "citations_delta":
                citation = bytes(delta.citation)
                if citation not in _EMPTY:
                    self._cite(block, citation, out)
            case _:
                pass  # what later versions add

    def _add_text(self, block: _OpenBlock, text: str, out: list[Event]) -> None:
        if text:
            out.append(TextDelta(0, self._part_of(block), text))

    def _cite(self, block: _OpenBlock, raw: bytes, out: list[Event]) -> None:
        out.append(AnnotationAdded(0, self._part_of(block), raw, MESSAGES, parse_citation(raw)))

    def _add_thought(self, block: _OpenBlock, text: str, out: list[Event]) -> None:
        if text:
            out.append(ReasoningDelta(0, self._part_of(block), text))

    def _sign(self, block: _OpenBlock, signature: str | None, out: list[Event]) -> None:
        if signature:
            out.append(ReasoningFinished(0, self._part_of(block), signature=signature, origin=self._provider))

    def _close(self, index: int, out: list[Event]) -> None:
        block = self._blocks.pop(index, None)
        if block is None:
            return
        if block.kind == "tool_use":
            part = self._part_of(block)
            if not block.has_input:
                out.append(ToolArgumentsDelta(0, part, arguments_text(block.late_input)))
            out.append(ToolCallFinished(0, part))
        elif block.raw:
            raw = _with_input(block.raw, "".join(block.pieces))
            out.append(HostedToolEvent(0, self._part_of(block), block.kind, raw, MESSAGES))

    def finish(self, out: list[Event]) -> None:
        """The finish and the last totals, once. Raises StreamTruncated where no stop word was said."""
        if self.finished:
            return
        stop = self._stop
        if stop is None or stop.stop_reason is None:
            raise StreamTruncated("the upstream's stream ended without a stop reason")
        for index in list(self._blocks):
            self._close(index, out)
        self.finished = True
        reason = confirmed(STOP_REASONS.get(stop.stop_reason, StopReason.OTHER), called=self._called)
        out.append(ChoiceFinished(0, reason, stop.stop_reason, stop.stop_sequence))


def _with_input(raw: bytes, joined: str) -> bytes:
    """A block of a tool that the provider runs, with the input that was streamed."""
    if not joined:
        return raw
    fields = fragments(raw_fields(raw))
    fields["input"] = orjson.Fragment(joined)
    return orjson.dumps(fields)


def stream_parser(provider: str, names: Mapping[str, str], ids: OwnIds) -> SseAnswerParser:
    """The parser of a streamed answer."""
    return SseAnswerParser(_Answer(provider, names, ids), text_field=_TEXT_FIELD)


def parse_whole(provider: str, body: bytes, names: Mapping[str, str], ids: OwnIds) -> list[Event]:
    """The events of a body that was not streamed."""
    return whole_answer(_Answer(provider, names, ids).read_whole, body)
