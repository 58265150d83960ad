"""Legacy completions as an upstream: the request body out, chunks and whole answers in."""

import re
from typing import Any

import orjson
from msgspec import Struct
from msgspec.json import Decoder

from adapters.canonical.errors import GatewayError
from adapters.canonical.events import ChoiceFinished, Event, TextDelta
from adapters.canonical.request import Request
from adapters.openai.answer import Answer, FinishBooks, WireChunk, parse_whole, parser_of
from adapters.openai.errors import error_from_object, parse_error
from adapters.openai.logprobs import WireLegacyLogprobs, parse_legacy_logprobs
from adapters.openai.quirks import Quirks
from adapters.openai.request_fields import add_extras, field_values, stop_and_bias, stream_options
from adapters.openai.response_format import format_fields
from adapters.openai.vocabulary import COMPLETION_FIELDS, COMPLETIONS, TokenId
from adapters.sse_answer import SseAnswerParser

__all__ = ["CompletionsUpstream"]


class _Choice(Struct, forbid_unknown_fields=True):
    index: int | None = None
    text: str | None = None
    finish_reason: str | None = None
    logprobs: WireLegacyLogprobs | None = None
    stop_reason: str | TokenId | None = None  # vLLM
    matched_stop: str | TokenId | None = None  # SGLang
    native_finish_reason: str | None = None  # OpenRouter
    token_ids: list[TokenId] | None = None
    error: Any = None


class _Chunk(WireChunk, forbid_unknown_fields=True):
    choices: list[_Choice] | None = None


_CHUNK = Decoder(_Chunk)
_TEXT_FIELD = re.compile(rb'"text"\s*:\s*("(?:[^"\\]|\\.)*")')


class CompletionsUpstream:
    """POST {base}/completions of one vendor."""

    path = "/completions"

    def __init__(self, quirks: Quirks | None = None) -> None:
        self._quirks = quirks or Quirks()
        self._fields = COMPLETION_FIELDS.spelled(self._quirks.names)

    def render_request(self, request: Request) -> bytes:
        quirks = self._quirks
        prompts = request.prompts or ()
        body: dict[str, Any] = {"model": request.model, "prompt": prompts[0] if len(prompts) == 1 else prompts}
        if request.stream:
            body["stream"] = True
            if quirks.stream_options:
                body["stream_options"] = stream_options(request)
        body.update(field_values(request, self._fields))
        body.update(stop_and_bias(request))
        if request.max_tokens is not None:
            body["max_tokens"] = request.max_tokens
        if request.logprobs is not None:
            body["logprobs"] = request.logprobs
        if request.output_format is not None:
            body.update(format_fields(request.output_format, request.dialect, COMPLETIONS))
        add_extras(body, request, COMPLETIONS, quirks.defaults)
        return orjson.dumps(body)

    def stream_parser(self, request: Request) -> SseAnswerParser:
        return parser_of(_answer(request), _TEXT_FIELD)

    def parse_body(self, request: Request, body: bytes) -> list[Event]:
        return parse_whole(_answer(request), body)

    def parse_error(self, status: int, body: bytes) -> GatewayError:
        return parse_error(status, body)


def _answer(request: Request) -> Answer:
    return Answer(_ChoiceReader(request.num_choices), _CHUNK, COMPLETIONS)


class _ChoiceReader:
    """Each choice has one part, its text."""

    def __init__(self, expected: int) -> None:
        self.books = FinishBooks(expected)

    def feed(self, found: _Choice, out: list[Event]) -> None:
        index = found.index or 0
        if found.error is not None:
            raise error_from_object(found.error)
        logprobs = parse_legacy_logprobs(found.logprobs) if found.logprobs is not None else ()
        has_output = bool(found.text or logprobs or found.token_ids)
        if index in self.books.done:
            if has_output:
                self.books.refuse_output(index)
            return
        self.books.begin(index)
        if has_output:
            out.append(TextDelta(index, 0, found.text or "", logprobs, tuple(found.token_ids or ())))
        if found.finish_reason:
            reason = self.books.finish(index, found.finish_reason)
            stop = found.stop_reason if found.stop_reason is not None else found.matched_stop
            out.append(ChoiceFinished(index, reason, found.native_finish_reason or found.finish_reason, stop))
