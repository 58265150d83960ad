"""The items of an upstream's answer while they are read: wire events of one item in, canonical events out.

What a stream tells in pieces and again as a whole is told once; what it tells only as a whole is told then.
"""

from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec
from msgspec.json import Decoder

from adapters.canonical.errors import BadUpstreamResponse
from adapters.canonical.events import (
    AnnotationAdded,
    Event,
    HostedToolEvent,
    PartReported,
    ReasoningDelta,
    ReasoningFinished,
    RefusalDelta,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallFinished,
    ToolCallStarted,
)
from adapters.canonical.messages import ProviderData
from adapters.canonical.tool_kinds import CUSTOM, FUNCTION
from adapters.canonical.usage import TokenLogprob
from adapters.openai.annotations import parse_annotation
from adapters.openai.logprobs import WireEntry, parse_chat_logprobs
from adapters.openai.responses.input_objects import own_thought
from adapters.openai.responses.vocabulary import CUSTOM_CALL, FUNCTION_CALL, ITEM_ADDED
from adapters.openai.responses.wire import WireContent, WireEvent, WireItem
from adapters.openai.tools import full_name
from adapters.openai.vocabulary import RESPONSES
from adapters.raw_json import raw_fields
from adapters.upstream_json import unmapped

__all__ = ["OpenCall", "OpenHosted", "OpenItem", "OpenMessage", "OpenThought", "rest_of"]

NextPart = Callable[[], int]

_decode_text = Decoder(str).decode
_ITEM_FIELDS = frozenset(WireItem.__struct_fields__) | {"role"}


class OpenItem(Protocol):
    """An item that is not yet done."""

    def feed(self, event: WireEvent, payload: bytes, out: list[Event]) -> None:
        """One of its events; those of later versions are passed over."""
        ...

    def close(self, found: WireItem, raw: bytes, out: list[Event]) -> None:
        """The whole item, as far as it is known."""
        ...


class _Told:
    """How many characters of each text were told, so that a whole text adds only what is missing."""

    def __init__(self) -> None:
        self._lengths: dict[int, int] = {}

    def add(self, number: int, text: str) -> None:
        self._lengths[number] = self._lengths.get(number, 0) + len(text)

    def rest(self, number: int, text: str | None) -> str:
        return (text or "")[self._lengths.get(number, 0) :]

    def __contains__(self, number: int) -> bool:
        return number in self._lengths


class OpenMessage:
    """`data` is what it says of itself, which goes before its first text."""

    def __init__(self, next_part: NextPart, data: ProviderData | None) -> None:
        self._next_part = next_part
        self._data = data
        self._parts: dict[int, int] = {}
        self._told = _Told()
        self._annotated: set[int] = set()

    def feed(self, event: WireEvent, payload: bytes, out: list[Event]) -> None:
        number = event.content_index
        match event.type:
            case "response.output_text.delta":
                part = self._part(number, out)
                text = _decode_text(event.delta)
                self._told.add(number, text)
                out.append(TextDelta(0, part, text, _entries(event.logprobs), tuple(event.token_ids or ())))
            case "response.output_text.done":
                self._complete(number, event.text, event.logprobs, out)
            case "response.refusal.delta":
                self._refuse(number, _decode_text(event.delta), out)
            case "response.refusal.done":
                self._refuse(number, self._told.rest(number, event.refusal), out)
            case "response.output_text.annotation.added":
                self._annotated.add(number)
                self._cite(number, bytes(event.annotation), out)
            case _:
                pass

    def close(self, found: WireItem, raw: bytes, out: list[Event]) -> None:
        for number, content in enumerate(found.content or ()):
            if content.refusal is not None:
                self._refuse(number, self._told.rest(number, content.refusal), out)
            else:
                self._complete(number, content.text, content.logprobs, out)
                self._annotate(number, content, out)

    def _part(self, number: int, out: list[Event]) -> int:
        part = self._parts.get(number)
        if part is None:
            part = self._parts[number] = self._next_part()
            if self._data is not None:
                out.append(PartReported(0, part, self._data))
                self._data = None
        return part

    def _complete(self, number: int, text: str | None, logprobs: list[WireEntry] | None, out: list[Event]) -> None:
        rest = self._told.rest(number, text)
        if rest:
            entries = () if number in self._told else _entries(logprobs)
            out.append(TextDelta(0, self._part(number, out), rest, entries))
            self._told.add(number, rest)

    def _refuse(self, number: int, text: str, out: list[Event]) -> None:
        if text:
            out.append(RefusalDelta(0, self._part(number, out), text))
            self._told.add(number, text)

    def _annotate(self, number: int, content: WireContent, out: list[Event]) -> None:
        if number not in self._annotated:
            for note in content.annotations or ():
                self._cite(number, bytes(note), out)

    def _cite(self, number: int, raw: bytes, out: list[Event]) -> None:
        out.append(AnnotationAdded(0, self._part(number, out), raw, RESPONSES, parse_annotation(raw)))


class OpenThought:
    """`provider` is the name of the upstream, to which alone the thought's proof goes back."""

    def __init__(self, next_part: NextPart, provider: str) -> None:
        self._next_part = next_part
        self._provider = provider
        self._number: int | None = None
        self._text = _Told()
        self._summary = _Told()

    def feed(self, event: WireEvent, payload: bytes, out: list[Event]) -> None:
        match event.type:
            case "response.reasoning_text.delta" | "response.reasoning.delta":
                self._think(_decode_text(event.delta), event.logprobs, out)
            case "response.reasoning_summary_text.delta":
                self._sum_up(event.summary_index, _decode_text(event.delta), out)
            case _:
                pass  # what is done stands in the whole item as well

    def close(self, found: WireItem, raw: bytes, out: list[Event]) -> None:
        text = "".join([content.text or "" for content in found.content or ()])
        self._think(self._text.rest(0, text), None, out)
        for piece, content in enumerate(found.summary or ()):
            self._sum_up(piece, self._summary.rest(piece, content.text), out)
        fields = rest_of(raw)
        if found.encrypted_content:
            proof = own_thought(found.id or "", found.encrypted_content)
            out.append(ReasoningFinished(0, self._part(), encrypted=proof, origin=self._provider))
        if fields:
            out.append(ReasoningFinished(0, self._part(), provider_data=ProviderData(RESPONSES, fields)))

    def _part(self) -> int:
        if self._number is None:
            self._number = self._next_part()
        return self._number

    def _think(self, text: str, logprobs: list[WireEntry] | None, out: list[Event]) -> None:
        if text:
            self._text.add(0, text)
            out.append(ReasoningDelta(0, self._part(), text, False, _entries(logprobs)))

    def _sum_up(self, piece: int, text: str, out: list[Event]) -> None:
        if text:
            self._summary.add(piece, text)
            out.append(ReasoningDelta(0, self._part(), text, summary=True, piece=piece))


class OpenCall:
    """A call of a function or a custom tool. `is_shown` tells, once it starts, whether the client gets it; `names` are
    the client's names of tools by those that were sent."""

    def __init__(self, next_part: NextPart, is_shown: Callable[[], bool], names: Mapping[str, str]) -> None:
        self._next_part = next_part
        self._is_shown = is_shown
        self._names = names
        self._started = False
        self._part: int | None = None
        self._told = _Told()

    def start(self, found: WireItem, raw: bytes, out: list[Event]) -> None:
        """Begins it, once its id and name are known (law 6)."""
        if self._started or not (found.call_id and found.name):
            return
        self._started = True
        if not self._is_shown():
            return
        self._part = self._next_part()
        fields = rest_of(raw)
        name = self._names.get(found.name, found.name)
        if found.namespace:
            name = full_name(found.namespace, name)
            fields["namespace"] = msgspec.json.encode(found.namespace)
        kind = CUSTOM if found.type == CUSTOM_CALL else FUNCTION
        data = ProviderData(RESPONSES, fields) if fields else None
        out.append(ToolCallStarted(0, self._part, found.call_id, name, kind, data))

    def feed(self, event: WireEvent, payload: bytes, out: list[Event]) -> None:
        match event.type:
            case "response.function_call_arguments.delta" | "response.custom_tool_call_input.delta":
                if not self._started:
                    raise BadUpstreamResponse("the upstream sent arguments of a call without id or name")
                self._add(_decode_text(event.delta), out)
            case _:
                pass  # what is done stands in the whole item as well

    def close(self, found: WireItem, raw: bytes, out: list[Event]) -> None:
        self.start(found, raw, out)
        if not self._started:
            raise BadUpstreamResponse("the upstream sent a tool call without id or name")
        self._add(self._told.rest(0, found.input if found.type == CUSTOM_CALL else found.arguments), out)
        if 0 not in self._told and found.type == FUNCTION_CALL and found.status != "incomplete":
            self._add("{}", out)  # a call without arguments
        if self._part is not None:
            out.append(ToolCallFinished(0, self._part))

    def _add(self, text: str, out: list[Event]) -> None:
        if text and self._part is not None:
            self._told.add(0, text)
            out.append(ToolArgumentsDelta(0, self._part, text))


class OpenHosted:
    """An item that only this dialect knows: its events and the item itself travel as they came."""

    def __init__(self, part: int, raw: bytes, out: list[Event]) -> None:
        self._part = part
        out.append(HostedToolEvent(0, part, ITEM_ADDED, raw, RESPONSES))

    def feed(self, event: WireEvent, payload: bytes, out: list[Event]) -> None:
        out.append(HostedToolEvent(0, self._part, event.type, payload, RESPONSES))

    def close(self, found: WireItem, raw: bytes, out: list[Event]) -> None:
        if found.type:
            out.append(HostedToolEvent(0, self._part, found.type, raw, RESPONSES))


def _entries(logprobs: list[WireEntry] | None) -> tuple[TokenLogprob, ...]:
    return parse_chat_logprobs(logprobs) if logprobs else ()


def rest_of(raw: bytes) -> dict[str, bytes]:
    """The fields of an item that nobody maps. Null is the same as absent."""
    return unmapped(raw_fields(raw), _ITEM_FIELDS)
