"""Answers of Cohere's chat as events: a stream's, and a whole body by the same state machine.

A plan, which is what the model says before its calls, is text.
"""

from typing import Any

from msgspec import Raw, Struct
from msgspec.json import Decoder

from adapters.canonical.errors import BadUpstreamResponse, StreamTruncated, UpstreamError, UpstreamTimeout
from adapters.canonical.events import (
    AnnotationAdded,
    ChoiceFinished,
    Event,
    ReasoningDelta,
    Started,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallFinished,
    ToolCallStarted,
    UsageReported,
)
from adapters.canonical.stop_reason import StopReason, confirmed
from adapters.canonical.usage import Usage
from adapters.cohere.citations import parse_citation
from adapters.cohere.vocabulary import CHAT, FINISH_REASONS
from adapters.sse_answer import SseAnswerParser, whole_answer

__all__ = ["parse_whole", "stream_parser"]

_PLAN = -1
"""Stands for the index of the plan, which has none."""


class _Function(Struct):
    name: str = ""
    arguments: str = ""


class _Call(Struct):
    id: str = ""
    function: _Function | None = None


class _Content(Struct):
    type: str = ""
    text: str | None = None
    thinking: str | None = None


class _MessageDelta(Struct):
    content: _Content | None = None
    tool_plan: str | None = None
    tool_calls: _Call | None = None
    citations: Raw = Raw()


class _Tokens(Struct):
    input_tokens: float | None = None
    output_tokens: float | None = None


class _Usage(Struct):
    tokens: _Tokens | None = None
    cached_tokens: float | None = None


class _Delta(Struct):
    message: _MessageDelta | None = None
    finish_reason: str | None = None
    usage: _Usage | None = None
    error: Any = None


class _Event(Struct):
    type: str = ""
    id: str | None = None
    index: int = 0
    delta: Raw = Raw()


class _Message(Struct):
    content: list[_Content] | str | None = None
    tool_plan: str | None = None
    tool_calls: list[_Call] | None = None
    citations: list[Raw] | None = None


class _Body(Struct):
    id: str | None = None
    message: _Message | str | None = None
    finish_reason: str | None = None
    usage: _Usage | None = None


_decode_event = Decoder(_Event).decode
_decode_delta = Decoder(_Delta | None).decode
_WITHOUT = ("message-start", "debug")
"""Events whose delta says nothing, in a form of its own."""
_decode_body = Decoder(_Body).decode


class _Answer:
    """The state of one answer. A place is the kind and the index of what is said there."""

    def __init__(self) -> None:
        self._parts: dict[tuple[str, int], int] = {}
        self._open: dict[int, bool] = {}
        self._text = 0
        self._started = False
        self._called = False
        self.complete = False

    def feed(self, payload: bytes, out: list[Event]) -> None:
        """One event. What is not known is passed over."""
        event = _decode_event(payload)
        said = None if event.type in _WITHOUT else _decode_delta(bytes(event.delta) or b"null")
        self._start(event.id, out)
        delta = said or _Delta()
        message = delta.message or _MessageDelta()
        match event.type:
            case "content-start" | "content-delta":
                self._add_content(event.index, message.content or _Content(), out)
            case "tool-plan-delta":
                self._add_text(_PLAN, message.tool_plan or "", out)
            case "tool-call-start":
                self._open_call(event.index, message.tool_calls or _Call(), out)
            case "tool-call-delta":
                function = (message.tool_calls or _Call()).function or _Function()
                self._add_arguments(event.index, function.arguments, out)
            case "tool-call-end":
                self._close_call(event.index, out)
            case "citation-start":
                self._add_citation(bytes(message.citations), out)
            case "message-end":
                self._finish(delta.finish_reason, delta.error, out)
                self._report(delta.usage, out)
            case _:
                pass  # ends of contents, debug, and what later versions add

    def read_whole(self, body: bytes, out: list[Event]) -> None:
        found = _decode_body(body)
        message = found.message
        if isinstance(message, str) or message is None or found.finish_reason is None:
            raise BadUpstreamResponse(message if isinstance(message, str) else "the upstream's answer is not whole")
        self._start(found.id, out)
        thoughts = [] if isinstance(message.content, str) else [c for c in message.content or () if c.thinking]
        for index, content in enumerate(thoughts):
            self._add_content(index, content, out)
        self._add_text(_PLAN, message.tool_plan or "", out)
        if isinstance(message.content, str):
            self._add_text(0, message.content, out)
        else:
            for index, content in enumerate(message.content or ()):
                self._add_text(index, content.text or "", out)
        for citation in message.citations or ():
            self._add_citation(bytes(citation), out)
        for index, call in enumerate(message.tool_calls or ()):
            self._open_call(index, call, out)
            self._close_call(index, out)
        self._finish(found.finish_reason, None, out)
        self._report(found.usage, out)

    def finish(self, out: list[Event]) -> None:
        if not self.complete:
            raise StreamTruncated("the upstream's stream ended without a finish reason")

    def _start(self, answer_id: str | None, out: list[Event]) -> None:
        if not self._started:
            self._started = True
            out.append(Started(answer_id))

    def _part(self, kind: str, index: int) -> int:
        if self.complete:
            raise BadUpstreamResponse("the upstream went on after it had stopped")
        return self._parts.setdefault((kind, index), len(self._parts))

    def _add_content(self, index: int, content: _Content, out: list[Event]) -> None:
        if content.thinking:
            out.append(ReasoningDelta(0, self._part("thinking", index), content.thinking))
        self._add_text(index, content.text or "", out)

    def _add_text(self, index: int, text: str, out: list[Event]) -> None:
        if text:
            self._text = self._part("text", index)
            out.append(TextDelta(0, self._text, text))

    def _add_citation(self, raw: bytes, out: list[Event]) -> None:
        found = parse_citation(raw)
        if found is None or not any(kind == "text" for kind, _ in self._parts):
            return
        part = self._parts.get(("text", _PLAN if found.content is None else found.content), self._text)
        out.append(AnnotationAdded(0, part, raw, CHAT, found.citations))

    def _open_call(self, index: int, call: _Call, out: list[Event]) -> None:
        function = call.function or _Function()
        if not (call.id and function.name):
            raise BadUpstreamResponse("the upstream sent a tool call without id or name")
        self._called = True
        out.append(ToolCallStarted(0, self._part("call", index), call.id, function.name))
        self._open[index] = False
        self._add_arguments(index, function.arguments, out)

    def _add_arguments(self, index: int, text: str, out: list[Event]) -> None:
        if index not in self._open:
            raise BadUpstreamResponse("the upstream sent arguments of a call that it had not opened")
        if text:
            self._open[index] = True
            out.append(ToolArgumentsDelta(0, self._part("call", index), text))

    def _close_call(self, index: int, out: list[Event]) -> None:
        said = self._open.pop(index, None)
        if said is None:
            return
        if not said:
            out.append(ToolArgumentsDelta(0, self._part("call", index), "{}"))
        out.append(ToolCallFinished(0, self._part("call", index)))

    def _finish(self, word: str | None, error: object, out: list[Event]) -> None:
        if word is None or self.complete:
            return
        if word == "TIMEOUT":
            raise UpstreamTimeout("the upstream gave up on its answer")
        if word == "ERROR":
            raise UpstreamError(f"the upstream failed: {error}"[:2000] if error else "the upstream failed")
        for index in list(self._open):
            self._close_call(index, out)
        self.complete = True
        reason = confirmed(FINISH_REASONS.get(word, StopReason.OTHER), called=self._called)
        out.append(ChoiceFinished(0, reason, word))

    def _report(self, usage: _Usage | None, out: list[Event]) -> None:
        if usage is None or usage.tokens is None:
            return
        tokens = usage.tokens
        out.append(
            UsageReported(
                Usage(
                    prompt_tokens=_count(tokens.input_tokens),
                    completion_tokens=_count(tokens.output_tokens),
                    cached_tokens=_count(usage.cached_tokens),
                )
            )
        )


def _count(value: float | None) -> int | None:
    return None if value is None else int(value)


def stream_parser() -> SseAnswerParser:
    """The parser of a streamed answer."""
    return SseAnswerParser(_Answer())


def parse_whole(body: bytes) -> list[Event]:
    """The events of a body that was not streamed."""
    return whole_answer(_Answer().read_whole, body)
