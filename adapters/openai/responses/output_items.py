"""The items of an answer while they are made: what each is, and the events of its life. Messages are in `message_item`.

An item tells its content; `adapters.openai.responses.output` decides when, and tells that it begins and ends.
"""

from collections.abc import Mapping
from typing import Any, Protocol

import orjson
from msgspec import Raw
from msgspec.json import Encoder

from adapters.canonical.events import ReasoningFinished
from adapters.canonical.messages import ProviderData, Reasoning, joined_data
from adapters.canonical.usage import TokenLogprob
from adapters.openai.logprobs import logprob_objects
from adapters.openai.responses.content import add_own_fields
from adapters.openai.responses.event_log import EventLog
from adapters.openai.responses.sealing import ClientSeal
from adapters.openai.responses.vocabulary import CUSTOM_CALL, ENCRYPTED_CONTENT, REASONING
from adapters.openai.responses.wire_events import Form
from adapters.raw_json import raw_fields
from adapters.sse import on_one_line

__all__ = ["CallItem", "HostedItem", "ImageItem", "Item", "Place", "ThoughtItem"]

_encode_raw = Encoder().encode
_TEXT = -1
"""The number of a summary's piece that is the text of the thought itself."""


class Item(Protocol):
    """One output item."""

    index: int

    def finish(self, log: EventLog, status: str) -> None:
        """Says what is left to say before its end."""
        ...

    def render(self, status: str, *, keeps: bool = False) -> bytes:
        """The item as it is. `keeps`: as a store keeps it, with what a later turn needs."""
        ...


class Place:
    """What the events of one item share."""

    def __init__(self, item_id: str, index: int) -> None:
        self.id = item_id
        self.index = index
        self.fields = {"item_id": item_id, "output_index": index}


class ThoughtItem:
    """Reasoning: its raw text, its summary in pieces, and the seal over both.

    `shows_seal` False: the client did not ask for it, and only a store gets it.
    """

    def __init__(self, item_id: str, index: int, form: Form, seal: ClientSeal, *, shows_seal: bool) -> None:
        self._place = Place(item_id, index)
        self.index = index
        self._form = form
        self._seal = seal
        self._shows_seal = shows_seal
        self._text: list[str] = []
        self._text_place = orjson.dumps({**self._place.fields, "content_index": 0})[1:-1]
        self._summary: list[tuple[int, list[str]]] = []
        """Each piece, and its number as its provider counts."""
        self._piece: int | None = None
        """The number of the open piece, the last one."""
        self._piece_place = b""
        self._proof = ReasoningFinished(0, 0)
        self._sealed: str | None = None

    def add_text(
        self, log: EventLog, text: str, logprobs: tuple[TokenLogprob, ...], token_ids: tuple[int, ...]
    ) -> None:
        if not self._text:
            part = {"type": "reasoning_text", "text": ""}
            log.say("response.content_part.added", {**self._place.fields, "content_index": 0, "part": part})
        self._text.append(text)
        if not logprobs and not token_ids:
            log.say_delta(self._form.reasoning_delta, self._text_place, text)
            return
        told: dict[str, Any] = {**self._place.fields, "content_index": 0, "delta": text}
        if logprobs:
            told["logprobs"] = logprob_objects(logprobs)
        if token_ids:
            told["token_ids"] = token_ids
        log.say(self._form.reasoning_delta, told)

    def add_summary(self, log: EventLog, piece: int, text: str) -> None:
        if piece != self._piece:
            self._end_piece(log)
            self._piece = piece
            self._summary.append((piece, []))
            self._piece_place = orjson.dumps(self._at_summary())[1:-1]
            part = {"type": "summary_text", "text": ""}
            log.say("response.reasoning_summary_part.added", {**self._at_summary(), "part": part})
        self._summary[-1][1].append(text)
        log.say_delta("response.reasoning_summary_text.delta", self._piece_place, text)

    def add_text_as_summary(self, log: EventLog, text: str) -> None:
        """A client that asked for a summary reads the text there; it is sealed as the text that it is."""
        self.add_summary(log, _TEXT, text)

    def _at_summary(self) -> dict[str, Any]:
        return {**self._place.fields, "summary_index": len(self._summary) - 1}

    def prove(self, event: ReasoningFinished) -> None:
        """What proves it to its maker; of several, the last of each kind counts."""
        known = self._proof
        self._proof = ReasoningFinished(
            0,
            0,
            signature=event.signature or known.signature,
            encrypted=event.encrypted or known.encrypted,
            origin=event.origin or known.origin,
            provider_data=joined_data(known.provider_data, event.provider_data),
        )

    def finish(self, log: EventLog, status: str) -> None:
        self._end_piece(log)
        if self._text:
            text = "".join(self._text)
            fields = {**self._place.fields, "content_index": 0}
            log.say(self._form.reasoning_done, {**fields, "text": text})
            log.say("response.content_part.done", {**fields, "part": {"type": "reasoning_text", "text": text}})

    def _end_piece(self, log: EventLog) -> None:
        if self._piece is None:
            return
        self._piece = None
        text = "".join(self._summary[-1][1])
        log.say("response.reasoning_summary_text.done", {**self._at_summary(), "text": text})
        part = {"type": "summary_text", "text": text}
        log.say("response.reasoning_summary_part.done", {**self._at_summary(), "part": part})

    def render(self, status: str, *, keeps: bool = False) -> bytes:
        summary = ["".join(pieces) for _, pieces in self._summary]
        found: dict[str, Any] = {
            "id": self._place.id,
            "type": REASONING,
            "status": status,
            "summary": [{"type": "summary_text", "text": text} for text in summary],
        }
        text = "".join(self._text)
        if text:
            found["content"] = [{"type": "reasoning_text", "text": text}]
        if status != "in_progress" and (self._shows_seal or keeps):
            found[ENCRYPTED_CONTENT] = self._seal_thought()
        return orjson.dumps(found)

    def _seal_thought(self) -> str:
        if self._sealed is None:
            proof = self._proof
            shown = ["".join(pieces) for number, pieces in self._summary if number == _TEXT]
            self._sealed = self._seal.seal_thought(
                Reasoning(
                    text="".join([*shown, *self._text]),
                    summary=tuple(["".join(pieces) for number, pieces in self._summary if number != _TEXT]),
                    signature=proof.signature,
                    encrypted=proof.encrypted,
                    origin=proof.origin,
                    provider_data=proof.provider_data,
                )
            )
        return self._sealed


class CallItem:
    """A call of a function or of a custom tool."""

    def __init__(self, item_id: str, index: int, call: Mapping[str, Any], data: ProviderData | None) -> None:
        """`call` has the type, call_id and name, and the namespace where there is one."""
        self._place = Place(item_id, index)
        self.index = index
        self._call = call
        self._data = data
        self._pieces: list[str] = []
        custom = call["type"] == CUSTOM_CALL
        self._field = "input" if custom else "arguments"
        self._event = "response.custom_tool_call_input" if custom else "response.function_call_arguments"
        self._delta_event = f"{self._event}.delta"
        self._delta_place = orjson.dumps(self._place.fields)[1:-1]

    def add_arguments(self, log: EventLog, text: str) -> None:
        self._pieces.append(text)
        log.say_delta(self._delta_event, self._delta_place, text)

    def finish(self, log: EventLog, status: str) -> None:
        log.say(f"{self._event}.done", {**self._place.fields, self._field: "".join(self._pieces)})

    def render(self, status: str, *, keeps: bool = False) -> bytes:
        found: dict[str, Any] = {"id": self._place.id, "type": self._call["type"], "status": status, **self._call}
        found[self._field] = "".join(self._pieces)
        add_own_fields(found, self._data)
        return orjson.dumps(found)


class ImageItem:
    """An image that the model made."""

    def __init__(self, item_id: str, index: int) -> None:
        self._place = Place(item_id, index)
        self.index = index
        self._pieces: list[str] = []
        self.format: str | None = None

    def begin(self, log: EventLog) -> None:
        log.say("response.image_generation_call.in_progress", self._place.fields)
        log.say("response.image_generation_call.generating", self._place.fields)

    def add_data(self, data: str, form: str | None) -> None:
        self._pieces.append(data)
        self.format = form or self.format

    def finish(self, log: EventLog, status: str) -> None:
        if status == "completed":
            log.say("response.image_generation_call.completed", self._place.fields)

    def render(self, status: str, *, keeps: bool = False) -> bytes:
        found: dict[str, Any] = {
            "id": self._place.id,
            "type": "image_generation_call",
            "status": "failed" if status == "incomplete" else status,
            "result": "".join(self._pieces) or None,
        }
        if self.format is not None:
            found["output_format"] = self.format
        return orjson.dumps(found)


class HostedItem:
    """An item of an upstream of this dialect, or of a tool that the gateway runs: it travels as it came."""

    def __init__(self, index: int, item: bytes) -> None:
        self.index = index
        self._item = item
        self._settled = False

    def pass_on(self, log: EventLog, name: str, payload: bytes) -> None:
        """One of its own events, with this response's numbers."""
        fields = raw_fields(payload)
        fields.pop("type", None)
        fields.pop("sequence_number", None)
        fields["output_index"] = Raw(b"%d" % self.index)
        log.say_raw(name, on_one_line(_encode_raw(fields))[1:])

    def settle(self, item: bytes) -> None:
        """The item as it is at its end."""
        self._item = item
        self._settled = True

    def finish(self, log: EventLog, status: str) -> None:
        """Its own events have said all."""

    def render(self, status: str, *, keeps: bool = False) -> bytes:
        if self._settled or status != "incomplete":
            return self._item
        fields = raw_fields(self._item)
        if "status" in fields:
            fields["status"] = Raw(b'"incomplete"')
        return _encode_raw(fields)
