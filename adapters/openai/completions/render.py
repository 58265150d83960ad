"""Legacy completions to the client. This surface knows text alone; reasoning and tool calls have no word in it."""

from collections.abc import Sequence
from typing import Any

import orjson

from adapters.canonical.errors import GatewayError
from adapters.canonical.events import (
    ChoiceFinished,
    Event,
    PromptReported,
    ProviderReported,
    TextDelta,
    UsageReported,
)
from adapters.canonical.messages import text_of
from adapters.canonical.request import Request
from adapters.canonical.result import Choice, Result
from adapters.canonical.stop_reason import StopReason
from adapters.canonical.usage import TokenLogprob
from adapters.front import AnswerHead
from adapters.openai.finish import finish_fields, finish_word
from adapters.openai.frames import Frames
from adapters.openai.logprobs import LegacyLogprobs
from adapters.openai.prompt_report import prompt_fields
from adapters.openai.usage import USAGE, usage_object
from adapters.openai.vocabulary import COMPLETIONS, FINISH_WORDS
from adapters.raw_json import add_missing, fragments
from adapters.usage_fields import told_apart

__all__ = ["CompletionStreamRenderer", "render_completion_result"]

_OBJECT = "text_completion"


class _OpenChoice:
    __slots__ = ("index", "logprobs", "pending", "text_head", "text_tail")

    def __init__(self, index: int) -> None:
        self.index = index
        self.logprobs = LegacyLogprobs()
        self.pending: dict[str, Any] = {}
        self.text_head = b""
        self.text_tail = b""


class CompletionStreamRenderer:
    """Each text delta becomes one chunk."""

    def __init__(self, request: Request, head: AnswerHead) -> None:
        self._request = request
        self._frames = Frames(head, _OBJECT, include_usage=request.include_usage, continuous=request.continuous_usage)
        self._choices: dict[int, _OpenChoice] = {}
        self._prompts: dict[int, dict[str, orjson.Fragment]] = {}

    def feed(self, events: Sequence[Event]) -> bytes:
        out: list[bytes] = []
        for event in events:
            match event:
                case TextDelta():
                    choice = self._choice(event.choice)
                    if event.logprobs or event.token_ids or choice.pending or self._frames.once:
                        out.append(self._token_chunk(choice, event))
                    elif event.text:
                        out += (choice.text_head, orjson.dumps(event.text), choice.text_tail)
                case ChoiceFinished():
                    choice = self._choice(event.choice)
                    finish = {"finish_reason": _word(self._request, event), **finish_fields(event)}
                    out.append(self._chunk(choice, "", None, finish))
                case UsageReported():
                    if self._frames.set_usage(event.usage):
                        self._rebuild()
                case ProviderReported() if event.origin == COMPLETIONS:
                    self._report(event)
                case PromptReported():
                    self._prompts.setdefault(event.prompt, {}).update(fragments(prompt_fields(event)))
                case _:
                    pass  # no word in this surface
        return b"".join(out)

    def finish(self) -> bytes:
        return self._frames.finish()

    def fail(self, error: GatewayError) -> bytes:
        return self._frames.fail(error)

    def _choice(self, index: int) -> _OpenChoice:
        choice = self._choices.get(index)
        if choice is None:
            choice = self._choices[index] = _OpenChoice(index)
            choice.pending.update(self._prompts.get(index // (self._request.n or 1), {}))
            self._build_text(choice)
        return choice

    def _rebuild(self) -> None:
        for choice in self._choices.values():
            self._build_text(choice)

    def _build_text(self, choice: _OpenChoice) -> None:
        frames = self._frames
        choice.text_head = b'%b,"choices":[{"index":%d,"text":' % (frames.head, choice.index)
        choice.text_tail = b',"logprobs":null,"finish_reason":null}]' + frames.tail

    def _token_chunk(self, choice: _OpenChoice, event: TextDelta) -> bytes:
        logprobs = choice.logprobs.object(event.logprobs) if event.logprobs else None
        extra = {"token_ids": event.token_ids} if event.token_ids else {}
        return self._chunk(choice, event.text, logprobs, extra)

    def _chunk(self, choice: _OpenChoice, text: str, logprobs: dict[str, Any] | None, extra: dict[str, Any]) -> bytes:
        body = {"index": choice.index, "text": text, "logprobs": logprobs, "finish_reason": None}
        body.update(extra)
        body.update(choice.pending)
        choice.pending = {}
        return self._frames.chunk(body)

    def _report(self, event: ProviderReported) -> None:
        if event.choice is None:
            if self._frames.report(event.fields):
                self._rebuild()
        else:
            pending = self._choice(event.choice).pending
            pending.update(fragments(event.fields))


def render_completion_result(request: Request, result: Result, head: AnswerHead) -> bytes:
    same_dialect = result.provider_origin == COMPLETIONS
    fields, usage_fields = told_apart(result.fields_of(COMPLETIONS), USAGE)
    choices = [_choice_object(request, choice, same_dialect=same_dialect) for choice in result.choices]
    for prompt in result.prompts:
        for choice in choices[prompt.prompt * (request.n or 1) :][: request.n or 1]:
            choice.update(fragments(prompt_fields(prompt)))
    body: dict[str, Any] = {
        "id": head.id,
        "object": _OBJECT,
        "created": head.created,
        "model": head.model,
        "choices": choices,
        "usage": None if result.usage is None else usage_object(result.usage, usage_fields),
    }
    add_missing(body, fields)
    return orjson.dumps(body)


def _choice_object(request: Request, choice: Choice, *, same_dialect: bool) -> dict[str, Any]:
    body: dict[str, Any] = {
        "index": choice.index,
        "text": text_of(choice.parts),
        "logprobs": _logprobs(choice.logprobs),
        "finish_reason": _word(request, choice.finish),
        **finish_fields(choice.finish),
    }
    if choice.token_ids:
        body["token_ids"] = choice.token_ids
    if same_dialect:
        add_missing(body, choice.provider_fields)
    return body


def _logprobs(entries: tuple[TokenLogprob, ...]) -> dict[str, Any] | None:
    return LegacyLogprobs().object(entries) if entries else None


def _word(request: Request, finish: ChoiceFinished) -> str:
    """This surface has no word for tool calls."""
    word = finish_word(request, finish)
    return FINISH_WORDS[StopReason.STOP] if finish.reason is StopReason.TOOL_CALLS else word
