"""Answers of Converse as events: a stream's, and a whole body by the same state machine.

An event of the stream is `{"<type>": payload}`; exceptions come as events of their own type. Usage comes last, behind
the stop reason.
"""

from collections.abc import Mapping

from msgspec import Raw, Struct
from msgspec.json import Decoder

from adapters.bedrock.citations import parse_citation
from adapters.bedrock.errors import error_in_stream
from adapters.bedrock.vocabulary import CONVERSE, STOP_REASONS
from adapters.canonical.errors import BadUpstreamResponse, StreamTruncated, UpstreamError
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
from adapters.canonical.stop_reason import StopReason, confirmed
from adapters.canonical.usage import Usage
from adapters.raw_json import raw_fields
from adapters.sse_answer import FrameDecoder, SseAnswerParser, whole_answer
from adapters.upstream_json import unmapped

__all__ = ["parse_whole", "stream_parser"]

_MALFORMED = ("malformed_model_output", "malformed_tool_use")
_BODY_FIELDS = frozenset(("output", "stopReason", "usage"))
_NULL = b"null"


class _Reasoning(Struct, rename="camel"):
    text: str = ""
    signature: str | None = None
    redacted_content: str | None = None


class _ReasoningText(Struct):
    text: str = ""
    signature: str | None = None


class _ReasoningBlock(Struct, rename="camel"):
    reasoning_text: _ReasoningText | None = None
    redacted_content: str | None = None


class _CallStart(Struct, rename="camel"):
    tool_use_id: str = ""
    name: str = ""
    type: str | None = None
    input: Raw = Raw()


class _Arguments(Struct):
    input: str = ""


class _Start(Struct, rename="camel"):
    tool_use: _CallStart | None = None


class _Delta(Struct, rename="camel"):
    text: str | None = None
    tool_use: _Arguments | None = None
    reasoning_content: _Reasoning | None = None
    citation: Raw = Raw()


class _BlockEvent(Struct, rename="camel"):
    content_block_index: int = 0
    start: _Start | None = None
    delta: _Delta | None = None


class _Stop(Struct, rename="camel"):
    stop_reason: str | None = None


class _CitedText(Struct):
    text: str = ""


class _Cited(Struct):
    content: list[_CitedText] = []
    citations: list[Raw] = []


class _Block(Struct, rename="camel"):
    text: str | None = None
    tool_use: _CallStart | None = None
    reasoning_content: _ReasoningBlock | None = None
    citations_content: _Cited | None = None


class _Message(Struct):
    content: list[Raw] = []


class _Output(Struct):
    message: _Message | None = None


class _Body(Struct, rename="camel"):
    output: _Output | None = None
    stop_reason: str | None = None
    usage: Raw = Raw()


class _Counts(Struct, rename="camel"):
    input_tokens: int | None = None
    output_tokens: int | None = None
    total_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_write_input_tokens: int | None = None


_decode_block_event = Decoder(_BlockEvent).decode
_decode_stop = Decoder(_Stop).decode
_decode_counts = Decoder(_Counts).decode
_decode_body = Decoder(_Body).decode
_decode_block = Decoder(_Block).decode


class _OpenBlock:
    __slots__ = ("called", "has_input", "part")

    def __init__(self) -> None:
        self.part: int | None = None
        self.called = False
        self.has_input = False


class _Answer:
    """The state of one answer. `names` are the client's names of tools by those that were sent."""

    def __init__(self, provider: str, names: Mapping[str, str]) -> None:
        self._provider = provider
        self._names = names
        self._blocks: dict[int, _OpenBlock] = {}
        self._parts = 0
        self._called = False
        self._started = False
        self.complete = False

    def feed(self, payload: bytes, out: list[Event]) -> None:
        """One event. What is not known is passed over."""
        for kind, raw in raw_fields(payload).items():
            self._feed(kind, bytes(raw), out)

    def _feed(self, kind: str, raw: bytes, out: list[Event]) -> None:
        match kind:
            case "contentBlockDelta":
                event = _decode_block_event(raw)
                if event.delta is not None:
                    self._feed_delta(self._block(event.content_block_index), event.delta, out)
            case "contentBlockStart":
                event = _decode_block_event(raw)
                if event.start is not None and event.start.tool_use is not None:
                    self._open_call(self._block(event.content_block_index), event.start.tool_use, out)
            case "contentBlockStop":
                self._close(_decode_block_event(raw).content_block_index, out)
            case "messageStart":
                self._start(out)
            case "messageStop":
                self._stop(_decode_stop(raw).stop_reason, out)
                self._report_rest(raw, frozenset(("stopReason",)), out)
            case "metadata":
                fields = raw_fields(raw)
                self._report_usage(bytes(fields.get("usage", b"")), out)
                self._report_rest(raw, frozenset(("usage",)), out)
            case _ if kind.endswith("Exception") or kind == "error":
                raise error_in_stream(kind, raw)
            case _:
                pass  # what later versions add

    def read_whole(self, body: bytes, out: list[Event]) -> None:
        """A message that was not streamed: each block as one delta."""
        found = _decode_body(body)
        self._start(out)
        message = found.output.message if found.output is not None else None
        for index, raw in enumerate(message.content if message is not None else ()):
            self._read_block(index, bytes(raw), out)
            self._close(index, out)
        if found.stop_reason is None:
            raise BadUpstreamResponse("the upstream's answer has no stopReason")
        self._stop(found.stop_reason, out)
        self._report_usage(bytes(found.usage), out)
        self._report_rest(body, _BODY_FIELDS, out)

    def finish(self, out: list[Event]) -> None:
        if not self.complete:
            raise StreamTruncated("the upstream's stream ended without a stop reason")

    def _start(self, out: list[Event]) -> None:
        if not self._started:
            self._started = True
            out.append(Started())

    def _block(self, index: int) -> _OpenBlock:
        return self._blocks.setdefault(index, _OpenBlock())

    def _part(self, block: _OpenBlock) -> int:
        if self.complete:
            raise BadUpstreamResponse("the upstream went on after it had stopped")
        if block.part is None:
            block.part = self._parts
            self._parts += 1
        return block.part

    def _read_block(self, index: int, raw: bytes, out: list[Event]) -> None:
        found = _decode_block(raw)
        block = self._block(index)
        if found.text is not None:
            self._add_text(block, found.text, out)
        elif found.tool_use is not None:
            self._open_call(block, found.tool_use, out)
            value = bytes(found.tool_use.input)
            if value and value != _NULL:
                self._add_arguments(block, value.decode(), out)
        elif found.reasoning_content is not None:
            thought = found.reasoning_content.reasoning_text or _ReasoningText()
            self._add_thought(
                block, _Reasoning(thought.text, thought.signature, found.reasoning_content.redacted_content), out
            )
        elif found.citations_content is not None:
            self._add_text(block, "".join([piece.text for piece in found.citations_content.content]), out)
            for citation in found.citations_content.citations:
                self._cite(block, bytes(citation), out)
        else:
            kind = next(iter(raw_fields(raw)), "")
            out.append(HostedToolEvent(0, self._part(block), kind, raw, CONVERSE))

    def _feed_delta(self, block: _OpenBlock, delta: _Delta, out: list[Event]) -> None:
        self._start(out)
        if delta.text is not None:
            self._add_text(block, delta.text, out)
        if delta.tool_use is not None:
            self._add_arguments(block, delta.tool_use.input, out)
        if delta.reasoning_content is not None:
            self._add_thought(block, delta.reasoning_content, out)
        citation = bytes(delta.citation)
        if citation and citation != _NULL:
            self._cite(block, citation, out)

    def _cite(self, block: _OpenBlock, raw: bytes, out: list[Event]) -> None:
        out.append(AnnotationAdded(0, self._part(block), raw, CONVERSE, parse_citation(raw)))

    def _open_call(self, block: _OpenBlock, found: _CallStart, out: list[Event]) -> None:
        if not (found.tool_use_id and found.name):
            raise BadUpstreamResponse("the upstream sent a tool call without id or name")
        self._start(out)
        self._called = block.called = True
        name = self._names.get(found.name, found.name)
        out.append(ToolCallStarted(0, self._part(block), found.tool_use_id, name))

    def _add_text(self, block: _OpenBlock, text: str, out: list[Event]) -> None:
        if text:
            out.append(TextDelta(0, self._part(block), text))

    def _add_arguments(self, block: _OpenBlock, text: str, out: list[Event]) -> None:
        if not block.called:
            raise BadUpstreamResponse("the upstream sent arguments of a call that it had not opened")
        if text:
            block.has_input = True
            out.append(ToolArgumentsDelta(0, self._part(block), text))

    def _add_thought(self, block: _OpenBlock, thought: _Reasoning, out: list[Event]) -> None:
        if thought.text:
            out.append(ReasoningDelta(0, self._part(block), thought.text))
        if thought.signature or thought.redacted_content:
            out.append(
                ReasoningFinished(
                    0,
                    self._part(block),
                    signature=thought.signature or None,
                    encrypted=thought.redacted_content or None,
                    origin=self._provider,
                )
            )

    def _close(self, index: int, out: list[Event]) -> None:
        block = self._blocks.pop(index, None)
        if block is None or not block.called or block.part is None:
            return
        if not block.has_input:
            out.append(ToolArgumentsDelta(0, block.part, "{}"))
        out.append(ToolCallFinished(0, block.part))

    def _stop(self, word: str | None, out: list[Event]) -> None:
        if word is None or self.complete:
            return
        if word in _MALFORMED:
            raise UpstreamError(f"the model's output could not be used ({word})", code=word)
        for index in list(self._blocks):
            self._close(index, out)
        self.complete = True
        reason = confirmed(STOP_REASONS.get(word, StopReason.OTHER), called=self._called)
        out.append(ChoiceFinished(0, reason, word))

    def _report_usage(self, raw: bytes, out: list[Event]) -> None:
        if raw and raw != _NULL:
            out.append(UsageReported(_usage(_decode_counts(raw))))

    def _report_rest(self, raw: bytes, known: frozenset[str], out: list[Event]) -> None:
        if said := unmapped(raw_fields(raw), known):
            out.append(ProviderReported(said, CONVERSE))


def _usage(counts: _Counts) -> Usage:
    """Input tokens leave out what came from the cache or went into it, which the total tells."""
    cached, written = counts.cache_read_input_tokens, counts.cache_write_input_tokens
    aside = max(0, cached or 0) + max(0, written or 0)
    prompt = counts.input_tokens
    if aside and prompt is not None and prompt >= 0:
        is_inclusive = aside <= prompt and counts.total_tokens == prompt + (counts.output_tokens or 0)
        prompt = prompt if is_inclusive else prompt + aside
    return Usage(
        prompt_tokens=prompt,
        completion_tokens=counts.output_tokens,
        cached_tokens=cached,
        cache_write_tokens=written,
    )


def stream_parser(provider: str, names: Mapping[str, str], frames: FrameDecoder) -> SseAnswerParser:
    """The parser of a streamed answer."""
    return SseAnswerParser(_Answer(provider, names), frames=frames)


def parse_whole(provider: str, names: Mapping[str, str], body: bytes) -> list[Event]:
    """The events of a body that was not streamed."""
    return whole_answer(_Answer(provider, names).read_whole, body)
