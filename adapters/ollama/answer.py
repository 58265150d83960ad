"""Answers of /api/chat and /api/generate as events: a stream's lines, cut anywhere, and a whole body by the same state
machine."""

from typing import Any

from msgspec import Raw, Struct
from msgspec.json import Decoder

from adapters.call_ids import OwnIds
from adapters.call_objects import arguments_text
from adapters.canonical.errors import BadUpstreamResponse, StreamTruncated
from adapters.canonical.events import (
    ChoiceFinished,
    Event,
    ProviderReported,
    ReasoningDelta,
    Started,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallFinished,
    ToolCallStarted,
    UsageReported,
)
from adapters.canonical.stop_reason import StopReason, confirmed
from adapters.canonical.usage import TokenLogprob, Usage
from adapters.ndjson import LineDecoder
from adapters.ollama.errors import error_from_text
from adapters.ollama.logprobs import WireLogprob, parse_logprobs
from adapters.ollama.vocabulary import CHAT, STOP_REASONS
from adapters.raw_json import raw_fields
from adapters.sse_answer import SseAnswerParser, whole_answer
from adapters.timestamps import unix_seconds
from adapters.upstream_json import unmapped

__all__ = ["OWN_FIELDS", "parse_whole", "stream_parser"]

_TEXT, _THOUGHT = "text", "thought"
OWN_FIELDS = CHAT
"""The origin of fields that are not mapped, of both paths."""


class _Function(Struct, frozen=True):
    name: str = ""
    arguments: Raw = Raw()


class _Call(Struct):
    id: str | None = None
    function: _Function = _Function()


class _Message(Struct):
    content: str | None = None
    thinking: str | None = None
    tool_calls: list[_Call] | None = None


class _Line(Struct):
    """A line of a stream, or a whole body. `response` and the `thinking` beside it are of /api/generate."""

    model: str | None = None
    created_at: str | None = None
    message: _Message | None = None
    response: str | None = None
    thinking: str | None = None
    done: bool | None = None
    done_reason: str | None = None
    prompt_eval_count: int | None = None
    eval_count: int | None = None
    logprobs: list[WireLogprob] | None = None
    error: Any = None


_decode = Decoder(_Line).decode
_KNOWN = frozenset(_Line.__struct_fields__)


class _Answer:
    """The state of one answer."""

    def __init__(self, ids: OwnIds) -> None:
        self._ids = ids
        self._parts = 0
        self._part = -1
        self._kind = ""
        self._called = False
        self._started = False
        self.complete = False

    def feed(self, payload: bytes, out: list[Event]) -> None:
        line = _decode(payload)
        if line.error is not None:
            raise error_from_text(line.error)
        if self.complete:
            raise BadUpstreamResponse("the upstream went on after it was done")
        self._feed(line, out)
        if line.done:
            self._finish(line, payload, out)

    def _feed(self, line: _Line, out: list[Event]) -> None:
        if not self._started:
            self._started = True
            out.append(Started(None, unix_seconds(line.created_at), line.model or None))
        message = line.message or _Message(content=line.response, thinking=line.thinking)
        tokens: tuple[TokenLogprob, ...] = parse_logprobs(line.logprobs) if line.logprobs else ()
        text = message.content
        if message.thinking:
            thought_tokens = () if text else tokens
            out.append(ReasoningDelta(0, self._part_of(_THOUGHT), message.thinking, False, thought_tokens))
            tokens = tokens if text else ()
        if text or tokens:
            out.append(TextDelta(0, self._part_of(_TEXT), text or "", tokens))
        for call in message.tool_calls or ():
            self._feed_call(call, out)

    def _part_of(self, kind: str) -> int:
        if kind != self._kind:
            self._kind = kind
            self._part = self._parts
            self._parts += 1
        return self._part

    def _feed_call(self, call: _Call, out: list[Event]) -> None:
        """A call comes whole, with its arguments as an object."""
        if not call.function.name:
            raise BadUpstreamResponse("the upstream sent a tool call without a name")
        self._called = True
        part, self._kind = self._parts, ""
        self._parts += 1
        out += (
            ToolCallStarted(0, part, self._ids.of(call.id), call.function.name),
            ToolArgumentsDelta(0, part, arguments_text(bytes(call.function.arguments))),
            ToolCallFinished(0, part),
        )

    def _finish(self, line: _Line, payload: bytes, out: list[Event]) -> None:
        self.complete = True
        if said := unmapped(raw_fields(payload), _KNOWN):
            out.append(ProviderReported(said, OWN_FIELDS))
        word = line.done_reason
        reason = StopReason.STOP if word is None else STOP_REASONS.get(word, StopReason.OTHER)
        out.append(ChoiceFinished(0, confirmed(reason, called=self._called), word))
        if line.prompt_eval_count is not None or line.eval_count is not None:
            out.append(UsageReported(Usage(prompt_tokens=line.prompt_eval_count, completion_tokens=line.eval_count)))

    def finish(self, out: list[Event]) -> None:
        """At the end of the body. Raises StreamTruncated where no line was the last one."""
        if not self.complete:
            raise StreamTruncated("the upstream's stream ended before it was done")


def stream_parser(ids: OwnIds) -> SseAnswerParser:
    """The parser of a streamed answer, whose frames are lines."""
    return SseAnswerParser(_Answer(ids), frames=LineDecoder())


def parse_whole(body: bytes, ids: OwnIds) -> list[Event]:
    """The events of a body that was not streamed."""
    answer = _Answer(ids)
    out = whole_answer(answer.feed, body)
    if not answer.complete:
        raise BadUpstreamResponse("the upstream's answer is not done")
    return out
