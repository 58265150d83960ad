"""Answers of generateContent as events: a stream's, cut anywhere, and a whole body by the same state machine.

A stream has no end marker but a finishReason, which older models send with every chunk: a finish is said at the end of
the body. Every part comes whole; texts of one kind that follow each other are one part.
"""

from collections.abc import Callable

import msgspec
from msgspec import Raw, Struct
from msgspec.json import Decoder

from adapters.answer_addresses import check_addresses
from adapters.canonical.errors import BadUpstreamResponse, StreamTruncated, UpstreamError
from adapters.canonical.events import (
    AnnotationAdded,
    ChoiceFinished,
    Event,
    HostedToolEvent,
    MediaDelta,
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
from adapters.canonical.request import Request
from adapters.canonical.stop_reason import StopReason, confirmed
from adapters.canonical.tool_kinds import FUNCTION
from adapters.canonical.usage import TokenLogprob
from adapters.gemini.citations import by_part, parse_citations
from adapters.gemini.errors import error_from_event
from adapters.gemini.logprobs import parse_logprobs
from adapters.gemini.signatures import Place, chat_data, placed_at
from adapters.gemini.usage import RunningUsage
from adapters.gemini.vocabulary import GEMINI, STOP_REASONS, TOOL_NAMES
from adapters.raw_json import raw_fields
from adapters.sse_answer import SseAnswerParser, whole_answer
from adapters.timestamps import unix_seconds

__all__ = ["parse_whole", "stream_parser"]

_NULL = b"null"
_NOTHING = (b"", _NULL)
_TEXT, _THOUGHT = "text", "thought"
_FILE_DATA = "fileData"
_GROUNDING, _CITATIONS = "groundingMetadata", "citationMetadata"


class _Part(Struct, rename="camel"):
    """What is known of parts; one that says none of this is a kind that we do not know."""

    text: str | None = None
    thought: bool | None = None
    thought_signature: str | None = None
    function_call: Raw = Raw()
    inline_data: Raw = Raw()


class _TextPart(Struct, forbid_unknown_fields=True):
    text: str
    thought: bool = False


class _TextContent(Struct, forbid_unknown_fields=True):
    parts: list[_TextPart]
    role: str = ""


class _TextCandidate(Struct, forbid_unknown_fields=True):
    content: _TextContent
    index: int = 0


class _TextChunk(Struct, forbid_unknown_fields=True, rename="camel"):
    """What nearly every chunk is; its decoder does in one step what the general way does field by field."""

    candidates: list[_TextCandidate]
    usage_metadata: Raw = Raw()
    model_version: str = ""
    response_id: str = ""


class _Call(Struct):
    id: str | None = None
    name: str = ""
    args: Raw = Raw()


class _Blob(Struct, rename="camel"):
    mime_type: str = ""
    data: str = ""


class _Content(Struct):
    parts: list[Raw] | None = None


_decode_text_chunk = Decoder(_TextChunk).decode
_decode_rows = Decoder(list[dict[str, Raw]] | None).decode
_decode_content = Decoder(_Content | None).decode
_decode_part = Decoder(_Part).decode
_decode_call = Decoder(_Call).decode
_decode_blob = Decoder(_Blob).decode
_decode_text = Decoder(str | None).decode
_decode_index = Decoder(int | None).decode


class _Choice:
    """One candidate so far. `kind` is that of its open part of text."""

    __slots__ = ("called", "cites", "index", "kind", "message", "part", "parts", "starts", "texts", "word")

    def __init__(self, index: int) -> None:
        self.index = index
        self.parts = 0
        self.part = -1
        self.kind = ""
        self.called = False
        self.word: str | None = None
        self.message: str | None = None
        self.texts: list[str] = []
        self.starts: list[tuple[int, int]] = []
        """The parts of text, each with the number of texts before it."""
        self.cites: dict[str, bytes] = {}

    def part_of(self, kind: str) -> int:
        if kind != self.kind:
            self.part = self.next_part()
            self.kind = kind
            if kind == _TEXT:
                self.starts.append((self.part, len(self.texts)))
        return self.part

    def next_part(self) -> int:
        self.kind = ""
        self.parts += 1
        return self.parts - 1


class _Answer:
    """The state of one answer. The provider's name goes with what the model signed."""

    def __init__(self, request: Request, provider: str, new_id: Callable[[], str]) -> None:
        self._provider = provider
        self._names = TOOL_NAMES.originals(request)
        self._running_totals = request.continuous_usage
        self._new_id = new_id
        self._ids: set[str] = set()
        self._choices: dict[int, _Choice] = {}
        self._usage = RunningUsage()
        self._started = False
        self._blocked: str | None = None
        self._told: dict[tuple[int | None, str], bytes] = {}
        self._finished = False

    @property
    def complete(self) -> bool:
        """Whether the upstream has said of every candidate why it stopped, or that it answers nothing."""
        choices = self._choices.values()
        return all(choice.word is not None for choice in choices) and bool(choices or self._blocked is not None)

    def feed(self, payload: bytes, out: list[Event]) -> None:
        """One chunk of the stream, or a whole body."""
        if self._started and self._feed_text(payload, out):
            return
        chunk = raw_fields(payload)
        if "error" in chunk and bytes(chunk["error"]) != _NULL:
            raise error_from_event(payload)
        self._feed(chunk, out)

    def _feed_text(self, payload: bytes, out: list[Event]) -> bool:
        """Whether the chunk is nothing but text, thoughts and usage: then it is read."""
        try:
            chunk = _decode_text_chunk(payload)
        except msgspec.ValidationError:
            return False
        for candidate in chunk.candidates:
            choice = self._choice(candidate.index)
            for part in candidate.content.parts:
                if not part.text:
                    continue
                if part.thought:
                    out.append(ReasoningDelta(choice.index, choice.part_of(_THOUGHT), part.text))
                else:
                    out.append(TextDelta(choice.index, choice.part_of(_TEXT), part.text))
                    choice.texts.append(part.text)
        usage = bytes(chunk.usage_metadata)
        if usage not in _NOTHING:
            self._usage.note(usage)
            if self._running_totals:
                self._report_usage(out)
        return True

    def _choice(self, index: int) -> _Choice:
        choice = self._choices.get(index)
        if choice is None:
            choice = self._choices[index] = _Choice(index)
        return choice

    def _report_usage(self, out: list[Event]) -> None:
        totals, news = self._usage.report()
        if news:
            out.append(ProviderReported({f"usageMetadata.{name}": raw for name, raw in news.items()}, GEMINI))
        if totals is not None:
            out.append(UsageReported(totals))

    def _feed(self, chunk: dict[str, Raw], out: list[Event]) -> None:
        rows = _decode_rows(chunk.pop("candidates", _NULL)) or ()
        usage = bytes(chunk.pop("usageMetadata", _NULL))
        self._start(chunk, out)
        if chunk:
            feedback = chunk.get("promptFeedback")
            if feedback is not None and not rows and not self._choices:
                self._blocked = _text_in(bytes(feedback), "blockReason")
            self._report(chunk, None, out)
        for row in rows:
            self._feed_candidate(row, out)
        if usage != _NULL:
            self._usage.note(usage)
            self._report_usage(out)

    def _start(self, chunk: dict[str, Raw], out: list[Event]) -> None:
        found = {name: chunk.pop(name, None) for name in ("responseId", "modelVersion", "createTime")}
        if self._started:
            return
        self._started = True
        answer_id, model, created = (None if raw is None else _decode_text(raw) for raw in found.values())
        out.append(Started(answer_id or None, unix_seconds(created), model or None))

    def _report(self, fields: dict[str, Raw], choice: int | None, out: list[Event]) -> None:
        """Fields that we do not map, where they are news: most stand in every chunk."""
        told = self._told
        news: dict[str, bytes] = {}
        for name, raw in fields.items():
            value = bytes(raw)
            if value != _NULL and told.get((choice, name)) != value:
                told[choice, name] = news[name] = value
        if news:
            out.append(ProviderReported(news, GEMINI, choice))

    def _feed_candidate(self, row: dict[str, Raw], out: list[Event]) -> None:
        index = _decode_index(row.pop("index", _NULL)) or 0
        choice = self._choice(index)
        content = _decode_content(row.pop("content", _NULL))
        tokens: tuple[TokenLogprob, ...] = ()
        if "logprobsResult" in row:
            tokens = parse_logprobs(bytes(row.pop("logprobsResult")))
        for raw in (content.parts if content is not None else None) or ():
            part = _decode_part(raw)
            if part.text and not part.thought:
                tokens = self._feed_part(choice, part, raw, tokens, out)
            else:
                self._feed_part(choice, part, raw, (), out)
        if tokens:
            out.append(TextDelta(index, choice.part_of(_TEXT), "", tokens))
        word = _decode_text(row.pop("finishReason", _NULL))
        if word is not None:
            choice.word = word
            message = row.get("finishMessage")
            choice.message = None if message is None else _decode_text(message)
        if row:
            choice.cites.update({name: bytes(row[name]) for name in (_GROUNDING, _CITATIONS) if name in row})
            self._report(row, index, out)

    def _feed_part(
        self, choice: _Choice, part: _Part, raw: Raw, tokens: tuple[TokenLogprob, ...], out: list[Event]
    ) -> tuple[TokenLogprob, ...]:
        """Gives the tokens that are still to be told, which are none once text told them."""
        index, signature = choice.index, part.thought_signature
        call, blob = bytes(part.function_call), bytes(part.inline_data)
        if call not in _NOTHING:
            self._feed_call(choice, _decode_call(call), signature, out)
        elif blob not in _NOTHING:
            self._sign(choice, signature, Place.NEXT, out)
            media = _decode_blob(blob)
            kind, _, _ = media.mime_type.partition("/")
            out.append(MediaDelta(index, choice.next_part(), kind, data=media.data, format=media.mime_type))
        elif part.text is None:
            if signature is None or len(raw_fields(raw)) > 1:
                self._feed_unknown(choice, bytes(raw), out)
            else:
                self._sign(choice, signature, Place.BEHIND, out)
        elif part.thought:
            if part.text:
                out.append(ReasoningDelta(index, choice.part_of(_THOUGHT), part.text))
            self._sign(choice, signature, Place.THOUGHT, out)
        else:
            if part.text:
                out.append(TextDelta(index, choice.part_of(_TEXT), part.text, tokens))
                choice.texts.append(part.text)
                tokens = ()
            self._sign(choice, signature, Place.BEHIND, out)
        return tokens

    def _feed_call(self, choice: _Choice, call: _Call, signature: str | None, out: list[Event]) -> None:
        if not call.name:
            raise BadUpstreamResponse("the upstream sent a function call without a name")
        self._sign(choice, signature, Place.NEXT, out)
        call_id = call.id
        if not call_id or call_id in self._ids:
            call_id = self._new_id()
        self._ids.add(call_id)
        choice.called = True
        part, index = choice.next_part(), choice.index
        args = bytes(call.args)
        data = None if not signature else chat_data(signature, self._provider)
        out += (
            ToolCallStarted(index, part, call_id, self._names.get(call.name, call.name), FUNCTION, data),
            ToolArgumentsDelta(index, part, "{}" if args in _NOTHING else args.decode()),
            ToolCallFinished(index, part),
        )

    def _sign(self, choice: _Choice, signature: str | None, place: Place, out: list[Event]) -> None:
        """One of a call or a picture stands before it, with the thought that led to it."""
        if signature:
            part = choice.next_part() if place is Place.BEHIND else choice.part_of(_THOUGHT)
            out.append(ReasoningFinished(choice.index, part, signature, None, self._provider, placed_at(place)))
            choice.kind = ""

    def _feed_unknown(self, choice: _Choice, raw: bytes, out: list[Event]) -> None:
        said = (name for name, value in raw_fields(raw).items() if bytes(value) != _NULL)
        kind = next((name for name in said if not name.startswith(_THOUGHT)), None)
        if kind == _FILE_DATA:
            check_addresses(raw)
        if kind is not None:
            out.append(HostedToolEvent(choice.index, choice.next_part(), kind, raw, GEMINI))

    def finish(self, out: list[Event]) -> None:
        """At the end of the body. Raises StreamTruncated where it does not say why it stopped."""
        if self._finished:
            return
        if not self.complete:
            raise StreamTruncated("the upstream's stream ended without a finishReason")
        self._finished = True
        self._report_usage(out)
        if self._blocked is not None and not self._choices:
            out.append(ChoiceFinished(0, StopReason.CONTENT_FILTER, self._blocked))
        for choice in self._choices.values():
            finish = _finish_of(choice)
            if choice.cites:
                raw = [choice.cites.get(name, b"") for name in (_GROUNDING, _CITATIONS)]
                cited = parse_citations(raw[0], raw[1], "".join(choice.texts))
                for part, citations in by_part(cited, choice.starts, choice.texts):
                    out.append(AnnotationAdded(choice.index, part, b"", GEMINI, citations))
            out.append(finish)


def _finish_of(choice: _Choice) -> ChoiceFinished:
    word = choice.word or ""
    reason = STOP_REASONS.get(word, StopReason.OTHER)
    if reason is StopReason.ERROR:
        raise UpstreamError(f"the model gave up its answer: {choice.message or word}", code=word.lower())
    return ChoiceFinished(choice.index, confirmed(reason, called=choice.called), word)


def _text_in(raw: bytes, name: str) -> str | None:
    found = raw_fields(raw).get(name)
    return None if found is None else _decode_text(found)


def stream_parser(request: Request, provider: str, new_id: Callable[[], str]) -> SseAnswerParser:
    """The parser of a streamed answer."""
    return SseAnswerParser(_Answer(request, provider, new_id))


def parse_whole(request: Request, provider: str, body: bytes, new_id: Callable[[], str]) -> list[Event]:
    """The events of a body that was not streamed."""
    answer = _Answer(request, provider, new_id)
    out = whole_answer(answer.feed, body)
    if not answer.complete:
        raise BadUpstreamResponse("the upstream's answer has no finishReason")
    answer.finish(out)
    return out
