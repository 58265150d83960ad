"""Answers to clients of generateContent: events as chunks of a stream, a result as one object.

A chunk is a whole response with one part. What ended each candidate stands in the last chunk, with the usage.
"""

from collections.abc import Mapping, Sequence
from typing import Any, assert_never

import orjson

from adapters.canonical.citation import Citation
from adapters.canonical.errors import GatewayError
from adapters.canonical.events import (
    AnnotationAdded,
    ChoiceFinished,
    Event,
    HostedToolEvent,
    MediaDelta,
    PartReported,
    PromptReported,
    ProviderReported,
    ReasoningDelta,
    ReasoningFinished,
    RefusalDelta,
    Started,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallFinished,
    ToolCallStarted,
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
from adapters.canonical.result import Choice, Result
from adapters.canonical.stop_reason import StopReason
from adapters.canonical.usage import Usage
from adapters.front import AnswerHead
from adapters.gemini.citations import Cited, grounding_object
from adapters.gemini.errors import render_error
from adapters.gemini.logprobs import logprobs_object
from adapters.gemini.parts import PartWriter, WirePart
from adapters.gemini.usage import usage_object
from adapters.gemini.vocabulary import GEMINI, finish_word
from adapters.raw_json import fragments
from adapters.sse import on_one_line
from adapters.thought_text import ThoughtText, thought_text
from adapters.upstream_errors import given_up, no_finish
from adapters.usage_fields import told_apart

__all__ = ["GenerateStreamRenderer", "render_generate_result"]

_USAGE = "usageMetadata"
_FEEDBACK = "promptFeedback"


class _Candidate:
    """One choice while its parts arrive."""

    __slots__ = ("calls", "cited", "fields", "finish", "head", "heard", "refused", "said", "tail", "writer")

    def __init__(self, head: bytes, tail: bytes) -> None:
        self.head, self.tail = head, tail
        """What stands around the JSON text of a chunk that is nothing but text."""
        self.writer = PartWriter()
        self.heard: list[TextDelta] = []
        self.cited: list[tuple[int, Citation]] = []
        """With their parts. Their places in the text are told at the end, in bytes."""
        self.calls: dict[int, tuple[ToolCallStarted, list[str]]] = {}
        self.fields: dict[str, bytes] = {}
        self.finish: ChoiceFinished | None = None
        self.said = False
        self.refused = False


class GenerateStreamRenderer:
    """`sse`: server-sent events; else one JSON array, an element for each chunk."""

    def __init__(self, request: Request, head: AnswerHead, *, sse: bool) -> None:
        self._sse = sse
        self._envelope = {"modelVersion": head.model, "responseId": head.id}
        self._candidates: dict[int, _Candidate] = {}
        self._once: dict[str, bytes] = {}
        self._usage: Usage | None = None
        self._usage_fields: dict[str, bytes] = {}
        self._opened = False
        self._thought = ThoughtText()

    def feed(self, events: Sequence[Event]) -> bytes:
        out: list[bytes] = []
        candidates = self._candidates
        for event in events:
            if type(event) is TextDelta and not event.logprobs:
                candidate, text = candidates.get(event.choice), event.text
                if text and candidate is not None and candidate.said and not (candidate.fields or self._once):
                    candidate.heard.append(event)
                    out += (candidate.head, orjson.dumps(text), candidate.tail)
                elif text:
                    self._candidate(event.choice).heard.append(event)
                    self._write(event.choice, [{"text": text}], out)
            else:
                self._feed_other(event, out)
        return b"".join(out)

    def finish(self) -> bytes:
        found: list[dict[str, Any]] = []
        blocked = _FEEDBACK in self._once and not any(one.said for one in self._candidates.values())
        for index, candidate in sorted(self._candidates.items()):
            if candidate.finish is None:
                raise no_finish()
            if not blocked:
                parts: list[WirePart] = [{"text": ""}] if candidate.said else []
                end = _end_fields(candidate.finish, refused=candidate.refused)
                cited = _grounding(candidate.cited, [(each.part, each.text) for each in candidate.heard])
                found.append(_candidate_object(index, parts, {**candidate.fields, **cited, **end}))
        last: dict[str, Any] = {"candidates": found} if found else {}
        last.update(fragments(self._once))
        last["usageMetadata"] = usage_object(self._usage, self._usage_fields)
        return self._frame(orjson.dumps({**last, **self._envelope})) + (b"" if self._sse else b"]")

    def fail(self, error: GatewayError) -> bytes:
        return self._frame(render_error(error)) + (b"" if self._sse else b"]")

    def _feed_other(self, event: Event, out: list[bytes]) -> None:
        match event:
            case TextDelta():
                more = {"logprobsResult": logprobs_object(event.logprobs)}
                self._candidate(event.choice).heard.append(event)
                self._write(event.choice, [{"text": event.text}], out, more)
            case RefusalDelta():
                if event.text:
                    self._candidate(event.choice).refused = True
                    self._write(event.choice, [{"text": event.text}], out)
            case ReasoningDelta():
                if event.text:
                    self._write(
                        event.choice, self._candidate(event.choice).writer.thought(self._thought.of(event)), out
                    )
            case ReasoningFinished():
                writer = self._candidate(event.choice).writer
                parts = writer.thought("", event.signature, event.encrypted, event.origin, event.provider_data)
                self._write(event.choice, parts, out)
            case ToolCallStarted():
                self._candidate(event.choice).calls[event.part] = (event, [])
            case ToolArgumentsDelta():
                self._candidate(event.choice).calls[event.part][1].append(event.text)
            case ToolCallFinished():
                self._write_call(event.choice, event.part, out)
            case MediaDelta():
                part = self._candidate(event.choice).writer.media(event.media, event.data, event.format)
                self._write(event.choice, [part], out)
            case HostedToolEvent():
                if event.origin == GEMINI:
                    self._write(event.choice, [orjson.Fragment(event.raw)], out)
            case ChoiceFinished():
                candidate = self._candidate(event.choice)
                for number in list(candidate.calls):
                    self._write_call(event.choice, number, out)
                _end_fields(event, refused=False)  # an answer that was given up ends before its finish
                candidate.finish = event
            case UsageReported():
                self._usage = event.usage
            case ProviderReported():
                self._report(event)
            case AnnotationAdded():
                if event.origin != GEMINI:
                    self._candidate(event.choice).cited += [(event.part, each) for each in event.citations]
            case Started() | PartReported() | PromptReported():
                pass  # no word in this dialect
            case _:
                assert_never(event)

    def _report(self, event: ProviderReported) -> None:
        if event.origin != GEMINI:
            return
        if event.choice is not None:
            self._candidate(event.choice).fields.update(event.fields)
            return
        fields, usage_fields = told_apart(event.fields, _USAGE)
        self._once.update(fields)
        self._usage_fields.update(usage_fields)

    def _candidate(self, index: int) -> _Candidate:
        found = self._candidates.get(index)
        if found is None:
            rest = b'}],"role":"model"},"index":%d}],%b' % (index, orjson.dumps(self._envelope)[1:])
            start = b'data: {"candidates":[{"content":{"parts":[{"text":'
            if not self._sse:
                start = start.replace(b"data: ", b",\r\n")
            found = self._candidates[index] = _Candidate(start, rest + (b"\r\n\r\n" if self._sse else b""))
        return found

    def _write_call(self, choice: int, part: int, out: list[bytes]) -> None:
        candidate = self._candidate(choice)
        started, pieces = candidate.calls.pop(part)
        self._write(choice, [candidate.writer.call(started.id, started.name, "".join(pieces))], out)

    def _write(
        self, choice: int, parts: Sequence[WirePart], out: list[bytes], more: Mapping[str, Any] | None = None
    ) -> None:
        """A chunk for each part, the first of them with what else is known by now."""
        candidate = self._candidate(choice)
        for part in parts:
            candidate.said = True
            fields = {**fragments(candidate.fields), **(more or {})}
            chunk = {"candidates": [_candidate_object(choice, [part], fields)], **fragments(self._once)}
            candidate.fields, self._once, more = {}, {}, None
            out.append(self._frame(orjson.dumps({**chunk, **self._envelope})))

    def _frame(self, chunk: bytes) -> bytes:
        if self._sse:
            return b"data: %b\r\n\r\n" % on_one_line(chunk)
        opened, self._opened = self._opened, True
        return (b",\r\n" if opened else b"[") + chunk


def render_generate_result(request: Request, result: Result, head: AnswerHead) -> bytes:
    native = result.provider_origin == GEMINI
    fields, usage_fields = told_apart(result.fields_of(GEMINI), _USAGE)
    candidates = [_whole_candidate(choice, choice.provider_fields if native else {}) for choice in result.choices]
    found: dict[str, Any] = {"candidates": candidates}
    if _FEEDBACK in fields and not any(choice.parts for choice in result.choices):
        found = {}
    found.update(fragments(fields))
    found["usageMetadata"] = usage_object(result.usage, usage_fields)
    found.update({"modelVersion": head.model, "responseId": head.id})
    return orjson.dumps(found)


def _whole_candidate(choice: Choice, own_fields: Mapping[str, bytes]) -> dict[str, Any]:
    writer = PartWriter()
    parts = [wire for part in choice.parts for wire in _wire_parts(part, writer)]
    fields = fragments(own_fields)
    if choice.logprobs:
        fields["logprobsResult"] = logprobs_object(choice.logprobs)
    texts = [(number, part) for number, part in enumerate(choice.parts) if isinstance(part, Text)]
    cited = [(number, each) for number, part in texts if part.annotated_by != GEMINI for each in part.citations]
    fields.update(_grounding(cited, [(number, part.text) for number, part in texts]))
    refused = any(isinstance(part, Refusal) and part.text for part in choice.parts)
    return _candidate_object(choice.index, parts, {**fields, **_end_fields(choice.finish, refused=refused)})


def _grounding(cited: Sequence[tuple[int, Citation]], texts: Sequence[tuple[int, str]]) -> dict[str, Any]:
    """Citations with their parts, and the texts of all parts in their order."""
    if not cited:
        return {}
    found: list[Cited] = []
    for part, citation in cited:
        before = len("".join([text for number, text in texts if number < part]))
        start, end = citation.span(len("".join([text for number, text in texts if number == part])))
        found.append(Cited(before + start, before + end, citation))
    return {"groundingMetadata": grounding_object(found, "".join([text for _, text in texts]))}


def _wire_parts(part: Part, writer: PartWriter) -> Sequence[WirePart]:
    match part:
        case Text() | Refusal():
            return [writer.text(part.text)] if part.text else []
        case Reasoning():
            return writer.thought(thought_text(part), part.signature, part.encrypted, part.origin, part.provider_data)
        case ToolCall():
            return [writer.call(part.id, part.name, part.arguments)]
        case Image() | Video():
            kind = "image" if isinstance(part, Image) else "video"
            return [writer.media(kind, part.source.data or "", part.source.media_type)]
        case Audio():
            return [writer.media("audio", part.source.data or "", part.format)]
        case Opaque():
            return [orjson.Fragment(part.raw)] if part.origin == GEMINI else []
        case File() | Document() | ToolResult():
            return []
        case _:
            assert_never(part)


def _candidate_object(index: int, parts: Sequence[WirePart], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Without content where nothing was said."""
    content = {"content": {"parts": parts, "role": "model"}} if parts else {}
    known = {name: orjson.Fragment(value) if isinstance(value, bytes) else value for name, value in fields.items()}
    return {**content, "index": index, **known}


def _end_fields(finish: ChoiceFinished, *, refused: bool) -> dict[str, Any]:
    """Raises UpstreamError for a finish that is none. A word that nobody knows stands in the message."""
    word = finish_word(finish, refused=refused)
    if word is None:
        raise given_up(finish.word)
    if finish.reason is StopReason.OTHER and finish.raw not in (None, word):
        return {"finishReason": word, "finishMessage": finish.raw}
    return {"finishReason": word}
