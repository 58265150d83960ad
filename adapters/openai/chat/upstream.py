"""Chat completions as an upstream: the request body out, chunks and whole answers in.

A whole answer is read by the same state machine as a stream: its message is one delta.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

import orjson
from msgspec import Raw, Struct
from msgspec.json import Decoder

from adapters.answer_addresses import check_addresses
from adapters.call_ids import OwnIds
from adapters.canonical.citation import Citation
from adapters.canonical.errors import GatewayError
from adapters.canonical.events import (
    AnnotationAdded,
    ChoiceFinished,
    Event,
    MediaDelta,
    ProviderReported,
    ReasoningDelta,
    ReasoningFinished,
    RefusalDelta,
    TextDelta,
    UsageReported,
)
from adapters.canonical.messages import ASSISTANT, DEVELOPER, SYSTEM, ProviderData
from adapters.canonical.request import REQUIRED, Request
from adapters.canonical.stop_reason import StopReason, confirmed
from adapters.canonical.usage import TokenLogprob
from adapters.minted_ids import new_call_id
from adapters.openai.annotations import listed_sources, parse_annotation
from adapters.openai.answer import Answer, FinishBooks, WireChunk, parse_whole, parser_of
from adapters.openai.cache_fields import with_cache_fields
from adapters.openai.chat.calls import CallDelta, Calls, FunctionDelta
from adapters.openai.chat.images import IMAGES, parse_images
from adapters.openai.content import REASONING_DETAILS, message_object
from adapters.openai.errors import error_from_object, parse_error
from adapters.openai.flat_media import with_flat_media
from adapters.openai.logprobs import WireChatLogprobs, WireEntry, content_logprobs, parse_chat_logprobs
from adapters.openai.quirks import Quirks
from adapters.openai.request_fields import add_extras, field_values, shorten, stop_and_bias, stream_options
from adapters.openai.response_format import format_fields
from adapters.openai.tool_media import with_media_behind_results
from adapters.openai.tools import tool_choice_object, tool_object
from adapters.openai.usage import WireUsage, parse_usage
from adapters.openai.vocabulary import CHAT, CHAT_FIELDS, TokenId
from adapters.sse_answer import SseAnswerParser
from adapters.tool_names import renamed

__all__ = ["ChatUpstream"]

_UNSENT = Raw()
_DELTA_IMAGES = f"delta.{IMAGES}"
_CONTINUED = "continue_final_message"
_NO_ITEMS = (b"null", b"[]")
_TEXT = "text"


class _Audio(Struct):
    id: str | None = None
    data: str | None = None
    transcript: str | None = None
    expires_at: int | None = None


class _ContentPart(Struct):
    """Content as a list of parts, of which `thinking` (Mistral) and `reasoning` (Databricks) hold parts again."""

    type: str = ""
    text: str | None = None
    refusal: str | None = None
    thinking: "str | list[_ContentPart] | None" = None
    summary: "list[_ContentPart] | None" = None


class _Delta(Struct, forbid_unknown_fields=True):
    """`delta` of a chunk and `message` of a body."""

    role: str | None = None
    content: str | list[_ContentPart] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    reasoning_details: Raw = _UNSENT
    refusal: str | None = None
    tool_calls: list[CallDelta] | None = None
    audio: _Audio | None = None
    images: Raw = _UNSENT  # OpenRouter
    annotations: list[Raw] | None = None
    function_call: FunctionDelta | None = None  # the form before tool calls


class _Choice(Struct, forbid_unknown_fields=True):
    index: int | None = None
    delta: _Delta | None = None
    message: _Delta | None = None
    finish_reason: str | None = None
    logprobs: WireChatLogprobs | float | None = None  # a bare number (Together): that of the delta's one token
    stop_reason: str | TokenId | None = None  # vLLM
    matched_stop: str | TokenId | None = None  # SGLang
    token_ids: list[TokenId] | None = None
    native_finish_reason: str | None = None  # OpenRouter
    usage: WireUsage | None = None  # Moonshot
    error: Any = None


class _Chunk(WireChunk, forbid_unknown_fields=True):
    choices: list[_Choice] | None = None


_CHUNK = Decoder(_Chunk)
_TEXT_FIELD = re.compile(rb'"(?:content|reasoning_content|reasoning|arguments)"\s*:\s*("(?:[^"\\]|\\.)*")')
_NO_THOUGHT = " "
"""What is said of a thought that is not known, where nothing at all is refused."""


class ChatUpstream:
    """POST {base}/chat/completions of one vendor. `new_id` mints ids for calls that come without one."""

    path = "/chat/completions"

    def __init__(self, quirks: Quirks | None = None, new_id: Callable[[], str] | None = None) -> None:
        self._quirks = quirks or Quirks()
        self._fields = CHAT_FIELDS.spelled(self._quirks.names)
        self._new_id = new_id or new_call_id

    def render_request(self, request: Request) -> bytes:
        quirks = self._quirks
        request = renamed(request, quirks.tool_names, quirks.call_ids)
        if not quirks.tool_media:
            request = with_media_behind_results(request)
        if quirks.flat_media:
            request = with_flat_media(request)
        if quirks.cache_field is not None:
            request = with_cache_fields(request, quirks.cache_field)
        body: dict[str, Any] = {"model": request.model, "messages": self._messages(request)}
        if request.stream:
            body["stream"] = True
            if quirks.stream_options:
                body["stream_options"] = stream_options(request)
        body.update(field_values(request, self._fields))
        if quirks.user_ids is not None:
            shorten(body, quirks.user_ids)
        body.update(stop_and_bias(request))
        if request.max_tokens is not None:
            body[quirks.limit_field] = request.max_tokens
        if request.logprobs is not None:
            body["logprobs"] = True
            if request.logprobs:
                body["top_logprobs"] = request.logprobs
        if request.tools is not None:
            body["tools"] = [tool_object(tool, request.dialect) for tool in request.tools]
        choice = request.tool_choice
        # Servers of chat refuse a choice without tools; Codex makes one in each request of the Responses API.
        if choice is not None and (request.tools or choice.mode == REQUIRED or request.dialect == CHAT):
            body["tool_choice"] = tool_choice_object(choice)
        if request.output_format is not None:
            body.update(format_fields(request.output_format, request.dialect))
        add_extras(body, request, CHAT, quirks.defaults)
        if quirks.prefix and body.pop(_CONTINUED, None):
            body["messages"][-1]["prefix"] = True
        return orjson.dumps(body)

    def _messages(self, request: Request) -> list[dict[str, Any]]:
        messages = [found for message in request.messages or () for found in message_object(message)]
        if not self._quirks.developer_role:
            for message in messages:
                if message["role"] == DEVELOPER:
                    message["role"] = SYSTEM
        if self._quirks.thoughts_due:
            for message in messages[:-1]:  # the last one may be continued
                if message["role"] == ASSISTANT:
                    message.setdefault("reasoning_content", _NO_THOUGHT)
        return messages

    def stream_parser(self, request: Request) -> SseAnswerParser:
        return parser_of(self._answer(request), _TEXT_FIELD)

    def parse_body(self, request: Request, body: bytes) -> list[Event]:
        return parse_whole(self._answer(request), body)

    def _answer(self, request: Request) -> Answer:
        names = {} if self._quirks.tool_names is None else self._quirks.tool_names.originals(request)
        reader = _ChoiceReader(request, self._new_id, names)
        return Answer(reader, _CHUNK, CHAT, note=reader.note_sources)

    def parse_error(self, status: int, body: bytes) -> GatewayError:
        return parse_error(status, body)


class _OpenChoice:
    """One choice: its parts so far, in order, and its calls."""

    __slots__ = ("annotated", "calls", "index", "kind", "part", "parts", "text_part")

    def __init__(self, index: int, calls: Calls) -> None:
        self.index = index
        self.calls = calls
        self.parts = 0
        self.part = -1
        self.kind = ""
        self.text_part = -1
        """The last part of text; -1 where there is none."""
        self.annotated = False

    def part_of(self, kind: str) -> int:
        """The number of the open part of this kind; a change of kind begins a new part."""
        if kind != self.kind:
            self.kind = kind
            self.part = self.next_part()
            if kind == _TEXT:
                self.text_part = self.part
        return self.part

    def next_part(self) -> int:
        self.parts += 1
        return self.parts - 1

    def next_call_part(self) -> int:
        self.kind = "call"
        return self.next_part()


class _ChoiceReader:
    """Deltas of all choices to events."""

    def __init__(self, request: Request, new_id: Callable[[], str], names: Mapping[str, str]) -> None:
        self._names = names
        self.books = FinishBooks(request.num_choices)
        self._new_id = new_id
        self._only_first_call = request.parallel_tool_calls is False
        self._messages = request.messages
        self._choices: dict[int, _OpenChoice] = {}
        self._sources: tuple[Citation, ...] = ()

    def note_sources(self, fields: Mapping[str, bytes]) -> None:
        """Fields that stand beside the choices, which may list what the answer is drawn from."""
        self._sources = listed_sources(fields) or self._sources

    def feed(self, found: _Choice, out: list[Event]) -> None:
        index = found.index or 0
        if found.error is not None:
            raise error_from_object(found.error)
        delta = found.delta if found.delta is not None else found.message
        if index in self.books.done:
            if delta is not None and _has_output(delta):
                self.books.refuse_output(index)
            return
        choice = self._choices.get(index)
        if choice is None:
            self.books.begin(index)
            ids = OwnIds(self._new_id, self._messages)
            calls = Calls(index, ids, only_first=self._only_first_call, names=self._names)
            choice = self._choices[index] = _OpenChoice(index, calls)
        if delta is not None:
            _feed_delta(choice, delta, found, out)
        if found.finish_reason:
            self._finish(choice, found, found.finish_reason, out)
            if found.usage is not None:
                out.append(UsageReported(parse_usage(found.usage)))

    def _finish(self, choice: _OpenChoice, found: _Choice, word: str, out: list[Event]) -> None:
        """The reason follows from what was emitted and the upstream's word (law 5)."""
        reason = self.books.finish(choice.index, word)
        if self._sources and choice.text_part >= 0 and not choice.annotated:
            out.append(AnnotationAdded(choice.index, choice.text_part, b"", CHAT, self._sources))
        called = len(choice.calls) > 0
        if called:
            choice.calls.finish(choice.next_call_part, out, cut=reason is StopReason.LENGTH)
        reason = confirmed(reason, called=called)
        stop = found.stop_reason if found.stop_reason is not None else found.matched_stop
        out.append(ChoiceFinished(choice.index, reason, found.native_finish_reason or word, stop))


def _has_output(delta: _Delta) -> bool:
    return bool(
        delta.content
        or delta.tool_calls
        or delta.reasoning_content
        or delta.reasoning
        or delta.refusal
        or delta.audio
        or delta.function_call
        or (delta.images is not _UNSENT and bytes(delta.images) not in _NO_ITEMS)
    )


def _feed_delta(choice: _OpenChoice, delta: _Delta, found: _Choice, out: list[Event]) -> None:
    """What one delta (or whole message) says, in the order that a reader of the whole message would see."""
    index = choice.index
    text = delta.content
    if isinstance(text, list):
        text = _take_parts(delta, text)
    reasoning = delta.reasoning_content or delta.reasoning
    tokens = _NO_TOKENS
    if found.logprobs is not None or found.token_ids:
        if isinstance(found.logprobs, float | int):
            found.logprobs = WireChatLogprobs([WireEntry(text or reasoning or "", found.logprobs)])
        tokens = _read_tokens(found, found.logprobs, text_follows=bool(text) or not reasoning)
    if reasoning or tokens.reasoning:
        part = choice.part_of("reasoning")
        out.append(ReasoningDelta(index, part, reasoning or "", False, tokens.reasoning, tokens.reasoning_ids))
    if delta.reasoning_details is not _UNSENT and bytes(delta.reasoning_details) not in _NO_ITEMS:
        data = ProviderData(CHAT, {REASONING_DETAILS: bytes(delta.reasoning_details)})
        out.append(ReasoningFinished(index, choice.part_of("reasoning"), provider_data=data))
    if text or tokens.content or tokens.content_ids:
        out.append(TextDelta(index, choice.part_of(_TEXT), text or "", tokens.content, tokens.content_ids))
    if delta.refusal or tokens.refusal:
        out.append(RefusalDelta(index, choice.part_of("refusal"), delta.refusal or "", tokens.refusal))
    if delta.annotations:
        choice.annotated = True
        part = choice.part_of(_TEXT) if choice.text_part < 0 else choice.text_part
        for raw in delta.annotations:
            note = bytes(raw)
            out.append(AnnotationAdded(index, part, note, CHAT, parse_annotation(note)))
    if delta.audio is not None:
        audio = delta.audio
        part = choice.part_of("audio")
        out.append(
            MediaDelta(
                index,
                part,
                "audio",
                data=audio.data or "",
                transcript=audio.transcript or "",
                id=audio.id,
                expires_at=audio.expires_at,
            )
        )
    if delta.images is not _UNSENT:
        _feed_images(choice, bytes(delta.images), out)
    if delta.function_call is not None:
        choice.calls.feed(CallDelta(function=delta.function_call), choice.next_call_part, out)
    if delta.tool_calls:
        for position, call in enumerate(delta.tool_calls):
            if found.message is not None:
                call.index = position  # each element of a whole message is a call of its own
            choice.calls.feed(call, choice.next_call_part, out)


def _feed_images(choice: _OpenChoice, raw: bytes, out: list[Event]) -> None:
    """Images that hold their data, for every client; any others as they came, for clients of this dialect."""
    found = parse_images(raw)
    if not found:
        check_addresses(raw)
        out.append(ProviderReported({_DELTA_IMAGES: raw}, CHAT, choice.index))
        return
    for source in found:
        choice.kind = IMAGES
        part = choice.next_part()
        out.append(MediaDelta(choice.index, part, "image", data=source.data or "", format=source.media_type))


def _take_parts(delta: _Delta, parts: list[_ContentPart]) -> str:
    """The text of content that came as parts; what is thought or refused in it goes where it stands elsewhere."""
    for part in parts:
        thought = part.thinking or part.summary
        if thought:
            text = thought if isinstance(thought, str) else "".join([inner.text or "" for inner in thought])
            delta.reasoning_content = (delta.reasoning_content or "") + text
        if part.refusal:
            delta.refusal = (delta.refusal or "") + part.refusal
    return "".join([part.text or "" for part in parts])


class _Tokens(Struct, frozen=True, gc=False):
    """The token data of one delta, by the part that it belongs to."""

    content: tuple[TokenLogprob, ...] = ()
    refusal: tuple[TokenLogprob, ...] = ()
    reasoning: tuple[TokenLogprob, ...] = ()
    content_ids: tuple[int, ...] = ()
    reasoning_ids: tuple[int, ...] = ()


_NO_TOKENS = _Tokens()


def _read_tokens(found: _Choice, said: WireChatLogprobs | None, *, text_follows: bool) -> _Tokens:
    """Where a delta has reasoning alone, vLLM gives the reasoning's tokens in the place of the text's."""
    logprobs = said or WireChatLogprobs()
    content = content_logprobs(logprobs)
    refusal = parse_chat_logprobs(logprobs.refusal)
    reasoning = parse_chat_logprobs(logprobs.reasoning_content)
    ids = tuple(found.token_ids or ())
    if text_follows:
        return _Tokens(content, refusal, reasoning, ids, ())
    return _Tokens((), refusal, reasoning or content, (), ids)
