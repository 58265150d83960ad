"""Answers to clients of /completion and /infill. This dialect knows one choice of text alone; reasoning and tool calls
have no word in it."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson
from msgspec.json import Decoder

from adapters.canonical.errors import GatewayError
from adapters.canonical.events import ChoiceFinished, Event, ProviderReported, TextDelta, UsageReported
from adapters.canonical.messages import text_of
from adapters.canonical.request import Request
from adapters.canonical.result import Result
from adapters.canonical.stop_reason import StopReason
from adapters.canonical.usage import TokenLogprob, TopLogprob, Usage
from adapters.front import AnswerHead
from adapters.llamacpp.vocabulary import RESPONSE_FIELDS
from adapters.ollama.answer import OWN_FIELDS
from adapters.openai.errors import render_error
from adapters.openai.finish import finish_word
from adapters.upstream_errors import no_finish

__all__ = ["LlamaCppStreamRenderer", "render_llamacpp_result"]

_NAMES = Decoder(list[str])
_STOP_TYPES: Final = {StopReason.STOP: "eos", StopReason.LENGTH: "limit"}
_NONE: Final = "none"
_MS: Final = 1e-6
"""Milliseconds in a nanosecond."""


class LlamaCppStreamRenderer:
    """A frame for each piece of text, and a last one that stops. No [DONE] follows."""

    def __init__(self, request: Request, head: AnswerHead) -> None:
        self._request = request
        self._head = head
        self._usage = Usage()
        self._durations: Mapping[str, bytes] = {}
        self._finish: ChoiceFinished | None = None

    def feed(self, events: Sequence[Event]) -> bytes:
        out: list[bytes] = []
        for event in events:
            match event:
                case TextDelta():
                    if event.text or event.logprobs or event.token_ids:
                        out.append(_frame(_said(event.text, event.token_ids, event.logprobs, is_last=False)))
                case ChoiceFinished():
                    finish_word(self._request, event)  # an answer that was given up ends before its finish
                    self._finish = event
                case UsageReported():
                    self._usage = event.usage
                case ProviderReported() if event.origin == OWN_FIELDS:
                    self._durations = event.fields
                case _:
                    pass  # no word in this dialect
        return b"".join(out)

    def finish(self) -> bytes:
        if self._finish is None:
            raise no_finish()
        end = _end(self._head, self._finish, self._usage, self._durations)
        return _frame(_shown(self._request, {**_said("", (), (), is_last=True), **end}))

    def fail(self, error: GatewayError) -> bytes:
        return b"data: %b\n\n" % render_error(error)


def render_llamacpp_result(request: Request, result: Result, head: AnswerHead) -> bytes:
    choice = result.choices[0]
    finish_word(request, choice.finish)
    said = _said(text_of(choice.parts), choice.token_ids, choice.logprobs, is_last=True)
    durations = result.provider_fields if result.provider_origin == OWN_FIELDS else {}
    end = _end(head, choice.finish, result.usage or Usage(), durations)
    return orjson.dumps(_shown(request, {**said, **end}))


def _frame(body: dict[str, Any]) -> bytes:
    return b"data: %b\n\n" % orjson.dumps(body)


def _said(text: str, token_ids: Sequence[int], logprobs: Sequence[TokenLogprob], *, is_last: bool) -> dict[str, Any]:
    found: dict[str, Any] = {"index": 0, "content": text, "tokens": token_ids, "id_slot": -1, "stop": is_last}
    if logprobs:
        found["completion_probabilities"] = [
            {**_token(token), "top_logprobs": [_token(other) for other in token.top]} for token in logprobs
        ]
    return found


def _token(token: TokenLogprob | TopLogprob) -> dict[str, Any]:
    raw = token.text.encode() if token.raw is None else token.raw
    return {"id": token.token_id, "token": token.text, "bytes": list(raw), "logprob": token.logprob}


def _end(head: AnswerHead, finish: ChoiceFinished, usage: Usage, durations: Mapping[str, bytes]) -> dict[str, Any]:
    by_text = isinstance(finish.stop, str)
    answered, asked, cached = usage.completion_tokens or 0, usage.prompt_tokens or 0, usage.cached_tokens or 0
    return {
        "model": head.model,
        "tokens_predicted": answered,
        "tokens_evaluated": asked,
        "tokens_cached": cached,
        "truncated": False,
        "stop_type": "word" if by_text else _STOP_TYPES.get(finish.reason, _NONE),
        "stopping_word": finish.stop if by_text else "",
        "timings": {
            "cache_n": cached,
            **_timing("prompt", asked - cached, durations.get("prompt_eval_duration")),
            **_timing("predicted", answered, durations.get("eval_duration")),
        },
    }


def _timing(name: str, tokens: int, nanoseconds: bytes | None) -> dict[str, Any]:
    """How many tokens, and how fast where that is known."""
    if nanoseconds is None:
        return {f"{name}_n": tokens}
    ms = orjson.loads(nanoseconds) * _MS
    return {
        f"{name}_n": tokens,
        f"{name}_ms": ms,
        f"{name}_per_token_ms": ms / max(tokens, 1),
        f"{name}_per_second": tokens / ms * 1e3,
    }


def _shown(request: Request, answer: dict[str, Any]) -> dict[str, Any]:
    """What the client asked to see, under the names by which it did; what is not there is left out."""
    raw = request.mirrored.get(RESPONSE_FIELDS)
    if raw is None:
        return answer
    found: dict[str, Any] = {}
    for path in _NAMES.decode(raw):
        value: Any = answer
        for name in path.split("/"):
            value = value.get(name) if isinstance(value, dict) else None
        if value is not None:
            found[path] = value
    return found
