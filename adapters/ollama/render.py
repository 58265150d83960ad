"""Answers to clients of /api/chat and /api/generate: events as lines, a result as one object.

The two differ in where a line says something: in `message`, or beside the model.
"""

from collections.abc import Mapping, Sequence
from typing import Any, assert_never

import orjson

from adapters.call_objects import told_arguments
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
from adapters.canonical.messages import Part, Reasoning, Refusal, Text, ToolCall
from adapters.canonical.request import Request
from adapters.canonical.result import Result
from adapters.canonical.stop_reason import StopReason
from adapters.canonical.usage import Usage
from adapters.front import AnswerHead
from adapters.ollama.answer import OWN_FIELDS
from adapters.ollama.errors import render_error
from adapters.ollama.logprobs import logprobs_list
from adapters.ollama.vocabulary import GENERATE, done_word
from adapters.raw_json import add_missing
from adapters.thought_text import ThoughtText, thought_text
from adapters.timestamps import timestamp
from adapters.upstream_errors import given_up, no_finish

__all__ = ["OllamaStreamRenderer", "render_ollama_result"]


class OllamaStreamRenderer:
    """A line for each piece of text or thought and for each call, and a last one that is done."""

    def __init__(self, request: Request, head: AnswerHead) -> None:
        self._generates = request.dialect == GENERATE
        self._envelope = _envelope(head)
        opening = orjson.dumps(self._envelope)[:-1]
        where = b',"response":' if self._generates else b',"message":{"role":"assistant","content":'
        self._head = opening + where
        self._tail = (b"" if self._generates else b"}") + b',"done":false}\n'
        self._calls: dict[int, tuple[ToolCallStarted, list[str]]] = {}
        self._thought = ThoughtText()
        self._told = 0
        self._fields: dict[str, bytes] = {}
        self._usage: Usage | None = None
        self._finish: ChoiceFinished | None = None

    def feed(self, events: Sequence[Event]) -> bytes:
        out: list[bytes] = []
        for event in events:
            if type(event) is TextDelta and not event.logprobs:
                if event.text:
                    out += (self._head, orjson.dumps(event.text), self._tail)
            else:
                self._feed_other(event, out)
        return b"".join(out)

    def finish(self) -> bytes:
        finish = self._finish
        if finish is None:
            raise no_finish()
        end = _end_fields(finish, self._usage, self._fields)
        return orjson.dumps({**self._envelope, **_said(self._generates, ""), **end}) + b"\n"

    def fail(self, error: GatewayError) -> bytes:
        return render_error(error) + b"\n"

    def _line(self, said: dict[str, Any], out: list[bytes], **more: Any) -> None:
        out.append(orjson.dumps({**self._envelope, **said, "done": False, **more}) + b"\n")

    def _feed_other(self, event: Event, out: list[bytes]) -> None:
        match event:
            case TextDelta():
                said = _said(self._generates, event.text)
                self._line(said, out, logprobs=logprobs_list(event.logprobs))
            case RefusalDelta():
                if event.text:
                    self._line(_said(self._generates, event.text), out)
            case ReasoningDelta():
                if event.text:
                    self._line(_said(self._generates, "", thinking=self._thought.of(event)), out)
            case ToolCallStarted():
                self._calls[event.part] = (event, [])
            case ToolArgumentsDelta():
                self._calls[event.part][1].append(event.text)
            case ToolCallFinished():
                self._tell_call(event.part, out)
            case ChoiceFinished():
                for part in list(self._calls):
                    self._tell_call(part, out)
                _end_fields(event, None, {})  # an answer that was given up ends before its finish
                self._finish = event
            case UsageReported():
                self._usage = event.usage
            case ProviderReported():
                if event.origin == OWN_FIELDS:
                    self._fields.update(event.fields)
            case (
                Started()
                | PartReported()
                | PromptReported()
                | AnnotationAdded()
                | ReasoningFinished()
                | HostedToolEvent()
                | MediaDelta()
            ):
                pass  # no word in this dialect
            case _:
                assert_never(event)

    def _tell_call(self, part: int, out: list[bytes]) -> None:
        started, pieces = self._calls.pop(part)
        call = _call_object(self._told, started.id, started.name, "".join(pieces))
        self._told += 1
        self._line(_said(self._generates, "", tool_calls=[call]), out)


def render_ollama_result(request: Request, result: Result, head: AnswerHead) -> bytes:
    choice = result.choices[0]
    text = "".join([part.text for part in choice.parts if isinstance(part, Text | Refusal)])
    more: dict[str, Any] = {}
    thought = _thought(choice.parts)
    if thought:
        more["thinking"] = thought
    calls = [part for part in choice.parts if isinstance(part, ToolCall)]
    if calls:
        more["tool_calls"] = [
            _call_object(number, call.id, call.name, call.arguments) for number, call in enumerate(calls)
        ]
    said = _said(request.dialect == GENERATE, text, **more)
    body = {**_envelope(head), **said, **_end_fields(choice.finish, result.usage, result.fields_of(OWN_FIELDS))}
    if choice.logprobs:
        body["logprobs"] = logprobs_list(choice.logprobs)
    return orjson.dumps(body)


def _thought(parts: tuple[Part, ...]) -> str:
    return "".join([thought_text(part) for part in parts if isinstance(part, Reasoning)])


def _envelope(head: AnswerHead) -> dict[str, Any]:
    return {"model": head.model, "created_at": timestamp(head.created)}


def _said(generates: bool, text: str, **more: Any) -> dict[str, Any]:
    if generates:
        return {"response": text, **more}
    return {"message": {"role": "assistant", "content": text, **more}}


def _end_fields(finish: ChoiceFinished, usage: Usage | None, own: Mapping[str, bytes]) -> dict[str, Any]:
    """Raises UpstreamError for a finish that is none. `own` are fields of an upstream of this dialect: its durations.

    `native_done_reason` is an upstream's word that nobody knows.
    """
    word = done_word(finish)
    if word is None:
        raise given_up(finish.word)
    found: dict[str, Any] = {"done": True, "done_reason": word}
    if finish.reason is StopReason.OTHER and finish.raw is not None:
        found["native_done_reason"] = finish.raw
    if usage is not None:
        counts = {"prompt_eval_count": usage.prompt_tokens, "eval_count": usage.completion_tokens}
        found.update({name: count for name, count in counts.items() if count is not None})
    add_missing(found, own)
    return found


def _call_object(number: int, call_id: str, name: str, arguments: str) -> dict[str, Any]:
    return {"id": call_id, "function": {"index": number, "name": name, "arguments": told_arguments(arguments)}}
