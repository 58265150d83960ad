"""Answers of an upstream that speaks the Responses API, as canonical events: of a stream, and of a whole response.

A whole response is read like a stream in which every item ends as soon as it begins (law 1).
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from adapters.canonical.errors import BadUpstreamResponse, StreamTruncated
from adapters.canonical.events import ChoiceFinished, Event, ProviderReported, Started, UsageReported
from adapters.canonical.messages import ProviderData
from adapters.canonical.request import Request
from adapters.canonical.stop_reason import StopReason
from adapters.openai.errors import error_from_object
from adapters.openai.responses.answer_items import OpenCall, OpenHosted, OpenItem, OpenMessage, OpenThought, rest_of
from adapters.openai.responses.mirror import SAID_BY_US
from adapters.openai.responses.usage import USAGE_FIELDS, parse_response_usage
from adapters.openai.responses.vocabulary import ITEM_ADDED, ITEM_DONE, MESSAGE, NEW_ITEM, REASONING, STOP_REASONS
from adapters.openai.responses.wire import (
    WireEvent,
    WireItem,
    WireResponse,
    decode_event,
    decode_item,
    decode_response,
)
from adapters.openai.usage import USAGE
from adapters.openai.vocabulary import RESPONSES
from adapters.raw_json import raw_fields
from adapters.sse_answer import SseAnswerParser, whole_answer
from adapters.upstream_errors import given_up
from adapters.upstream_json import unmapped

__all__ = ["parse_whole_response", "response_parser"]

_DONE = b"[DONE]"
_NOTHING = WireItem()
_TERMINAL = frozenset(("response.completed", "response.incomplete", "response.failed", "response.cancelled"))
_STARTS = frozenset(("response.created", "response.queued", "response.in_progress"))
_KINDS = (
    # Of events that come for an item that was not announced.
    ("response.output_text.", MESSAGE),
    ("response.refusal.", MESSAGE),
    ("response.reasoning", REASONING),
)


class _Answer:
    """The state of one answer (`adapters.sse_answer.SseAnswer`). `names` are the client's names of tools by those that
    were sent."""

    def __init__(self, request: Request, provider: str, names: Mapping[str, str]) -> None:
        self._provider = provider
        self._names = names
        self._only_first_call = request.parallel_tool_calls is False
        self._started = False
        self._items: dict[int, OpenItem] = {}
        self._saw_items = False
        self._last_kind = ""
        self._parts = 0
        self._calls = 0
        self.complete = False

    def feed(self, payload: bytes, out: list[Event]) -> None:
        self._feed(decode_event(payload), payload, out)

    def finish(self, out: list[Event]) -> None:
        if not self.complete:
            raise StreamTruncated("the upstream's stream ended before its response was final")

    def read_whole(self, body: bytes, out: list[Event]) -> None:
        """A response that was not streamed."""
        response = decode_response(body)
        if response.error is None and response.status is None and response.output is None:
            raise BadUpstreamResponse("the upstream's answer is no response")
        self._end(response, body, out)

    def _feed(self, event: WireEvent, payload: bytes, out: list[Event]) -> None:
        kind = event.type
        if kind == "error":
            raise error_from_object(_error_in(payload))
        if self.complete:
            return
        if kind == ITEM_ADDED:
            self._open(event.output_index, bytes(event.item), out)
        elif kind == ITEM_DONE:
            self._close(event.output_index, bytes(event.item), out)
        elif kind in _TERMINAL:
            self._end(decode_response(event.response), bytes(event.response), out)
        elif kind in _STARTS:
            self._start(decode_response(event.response), out)
        else:
            item = self._items.get(event.output_index) or self._unannounced(event, out)
            if item is not None:
                item.feed(event, payload, out)

    def _start(self, response: WireResponse, out: list[Event]) -> None:
        if not self._started:
            self._started = True
            created = None if response.created_at is None else int(response.created_at)
            out.append(Started(response.id or None, created, response.model or None))

    def _unannounced(self, event: WireEvent, out: list[Event]) -> OpenItem | None:
        """Some servers begin with an item's content. Events of no item, and of later versions, are passed over."""
        for start, kind in _KINDS:
            if event.type.startswith(start):
                self._open(event.output_index, b'{"type":"%b"}' % kind.encode(), out)
                return self._items[event.output_index]
        return None

    def _open(self, index: int, raw: bytes, out: list[Event]) -> None:
        found = decode_item(raw)
        item: OpenItem
        match found.type:
            case "message":
                fields = rest_of(raw)
                is_second = self._last_kind == MESSAGE
                data = ProviderData(RESPONSES, {NEW_ITEM: b"true", **fields}) if fields or is_second else None
                item = OpenMessage(self._next_part, data)
            case "reasoning":
                item = OpenThought(self._next_part, self._provider)
            case "function_call" | "custom_tool_call":
                item = call = OpenCall(self._next_part, self._count_call, self._names)
                call.start(found, raw, out)
            case _:
                item = OpenHosted(self._next_part(), raw, out)
        self._items[index] = item
        self._saw_items = True
        self._last_kind = found.type

    def _close(self, index: int, raw: bytes, out: list[Event]) -> None:
        if index not in self._items:
            self._open(index, raw, out)
        self._items.pop(index).close(decode_item(raw), raw, out)

    def _next_part(self) -> int:
        self._parts += 1
        return self._parts - 1

    def _count_call(self) -> bool:
        """Whether the call that begins is the client's to see."""
        self._calls += 1
        return self._calls == 1 or not self._only_first_call

    def _end(self, response: WireResponse, raw: bytes, out: list[Event]) -> None:
        if response.error is not None:
            raise error_from_object(response.error)
        status = response.status or "completed"
        if status not in ("completed", "incomplete"):
            raise given_up(status)
        self._start(response, out)
        if not self._saw_items:
            for index, item in enumerate(response.output or ()):
                self._close(index, bytes(item), out)
        self._close_rest(response, out)
        self._report_rest(response, raw, out)
        if response.usage is not None:
            out.append(UsageReported(parse_response_usage(response.usage, response.service_tier)))
        self.complete = True
        out.append(self._finish_of(status, response))

    def _close_rest(self, response: WireResponse, out: list[Event]) -> None:
        """Items of which no end was told, in the words of the final response where it has them."""
        output = response.output or ()
        for index in sorted(self._items):
            if index < len(output):
                self._close(index, bytes(output[index]), out)
            else:
                self._items.pop(index).close(_NOTHING, b"{}", out)

    def _finish_of(self, status: str, response: WireResponse) -> ChoiceFinished:
        if status == "completed":
            return ChoiceFinished(0, StopReason.TOOL_CALLS if self._calls else StopReason.STOP)
        details = response.incomplete_details
        word = (details.reason if details is not None else None) or status
        reason = STOP_REASONS.get(word, StopReason.OTHER)
        return ChoiceFinished(0, reason, word if reason is StopReason.OTHER else None)

    def _report_rest(self, response: WireResponse, raw: bytes, out: list[Event]) -> None:
        known = raw_fields(raw)
        said = unmapped(known, SAID_BY_US)
        if response.usage is not None:
            inner = unmapped(raw_fields(known[USAGE]), USAGE_FIELDS)
            said.update({f"{USAGE}.{name}": value for name, value in inner.items()})
        if said:
            out.append(ProviderReported(said, RESPONSES))


def _error_in(payload: bytes) -> Any:
    """The error object of an `error` event, which is flat in one dialect and nested in the other."""
    found: Any = msgspec.json.decode(payload)
    inner = found.get("error")
    return inner if isinstance(inner, dict) else {name: found.get(name) for name in ("message", "code", "param")}


def response_parser(request: Request, provider: str, names: Mapping[str, str]) -> SseAnswerParser:
    """The parser of a streamed response."""
    return SseAnswerParser(_Answer(request, provider, names), end=_DONE)


def parse_whole_response(request: Request, provider: str, body: bytes, names: Mapping[str, str]) -> list[Event]:
    """The events of a response that was not streamed."""
    return whole_answer(_Answer(request, provider, names).read_whole, body)
