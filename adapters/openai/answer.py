"""What chat and completions answers share: the envelope of a chunk or body, the books of finished choices, the framing.

A surface brings a reader for what stands inside a choice. A whole answer is read like a stream of one chunk (law 1).
"""

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Protocol

import msgspec
from msgspec.json import Decoder

from adapters.canonical.errors import BadUpstreamResponse, StreamTruncated
from adapters.canonical.events import Event, ProviderReported, Started, UsageReported
from adapters.canonical.stop_reason import GIVEN_UP, StopReason
from adapters.openai.errors import error_from_object, error_from_payload
from adapters.openai.unmapped import decode_known
from adapters.openai.usage import ChunkUsage, parse_usage
from adapters.openai.vocabulary import STOP_REASONS
from adapters.sse_answer import SseAnswerParser, whole_answer
from adapters.upstream_errors import given_up
from adapters.upstream_json import UNREADABLE

__all__ = ["Answer", "parser_of", "ChoiceReader", "FinishBooks", "WireChunk", "parse_whole"]

_DONE = b"[DONE]"
_decode_object = Decoder(dict[str, Any]).decode
_OTHER = StopReason.OTHER
_MESSAGE = "message"
_OTHER_MESSAGES = frozenset(("detail", "error_message", "error_msg"))
"""What nothing but an error has."""
_KINDS = frozenset(("code", "type", "status", "statusCode"))
"""What stands beside the message of an error."""


class WireChunk(msgspec.Struct, forbid_unknown_fields=True):
    """The envelope of a chunk, and of a whole answer. A surface adds its `choices`."""

    id: str | int | None = None
    object: str | None = None
    created: int | float | None = None
    model: str | None = None
    usage: ChunkUsage | None = None
    error: Any = None
    system_fingerprint: str | None = None
    service_tier: str | None = None
    obfuscation: str | None = None  # pads the length of the upstream's own chunks; ours have another length


class FinishBooks:
    """Which choices are done. An answer is complete when each expected one is (laws 3 and 4)."""

    __slots__ = ("_expected", "done")

    def __init__(self, expected: int) -> None:
        self._expected = expected
        self.done: set[int] = set()

    @property
    def complete(self) -> bool:
        return len(self.done) == self._expected

    def begin(self, index: int) -> None:
        """For the first sign of a choice. Raises where it was not asked for."""
        if not 0 <= index < self._expected:
            raise BadUpstreamResponse(f"the upstream sent choice {index}, asked for {self._expected}")

    def refuse_output(self, index: int) -> None:
        """For output of a choice that is done."""
        raise BadUpstreamResponse(f"the upstream sent output for choice {index} after its finish")

    def finish(self, index: int, word: str) -> StopReason:
        """Books the upstream's own word; a choice that it gave up is an error, never a finish."""
        reason = STOP_REASONS.get(word, _OTHER)
        if reason in GIVEN_UP:
            raise given_up(word)
        self.done.add(index)
        return reason


class ChoiceReader(Protocol):
    """Reads the choices of one answer into events."""

    books: FinishBooks

    def feed(self, found: Any, out: list[Event]) -> None: ...


class Answer:
    """The state of one answer; payloads in, events out.

    `decoder` is of a WireChunk with `choices`. `note` is told of fields beside the choices that nobody maps.
    """

    def __init__(
        self,
        reader: ChoiceReader,
        decoder: Decoder[Any],
        dialect: str,
        *,
        note: Callable[[Mapping[str, bytes]], None] | None = None,
    ) -> None:
        self._note = note
        self._reader = reader
        self._decoder = decoder
        self._decode = decoder.decode
        self._dialect = dialect
        self._started = False
        self._fingerprint: str | None = None
        self._service_tier: str | None = None

    @property
    def complete(self) -> bool:
        return self._reader.books.complete

    def finish(self, out: list[Event]) -> None:
        """Raises StreamTruncated where a choice has no finish reason."""
        if not self.complete:
            raise StreamTruncated("the upstream's stream ended without a finish reason")

    def feed(self, payload: bytes, out: list[Event]) -> None:
        unmapped: list[tuple[int | None, dict[str, bytes]]] = []
        try:
            chunk: Any = self._decode(payload)
        except msgspec.ValidationError:
            chunk, unmapped = decode_known(payload, self._decoder)
            if chunk.object == "error" or _is_flat_error(chunk, unmapped):  # as older vLLM and some hosts send it
                raise error_from_payload(payload) from None
        if chunk.error is not None:
            raise error_from_object(chunk.error)
        if not self._started:
            self._started = True
            created = None if chunk.created is None else int(chunk.created)
            out.append(Started(str(chunk.id) if chunk.id else None, created, chunk.model or None))
        if chunk.choices is not None and len(chunk.choices) > 1 and all(one.index is None for one in chunk.choices):
            for place, found in enumerate(chunk.choices):
                found.index = place
        for position, fields in unmapped:
            index = None if position is None else chunk.choices[position].index or 0
            if index is None:
                _check_stopped(fields)
                if self._note is not None:
                    self._note(fields)
            out.append(ProviderReported(fields, self._dialect, index))
        if chunk.system_fingerprint != self._fingerprint or chunk.service_tier != self._service_tier:
            self._report_head(chunk, out)
        if chunk.choices:
            read = self._reader.feed
            for found in chunk.choices:
                read(found, out)
        if chunk.usage is not None:
            out.append(UsageReported(parse_usage(chunk.usage, chunk.service_tier or self._service_tier)))

    def _report_head(self, chunk: WireChunk, out: list[Event]) -> None:
        """Fields that OpenAI repeats on every chunk, when they change.

        They are kept as long as the stream lasts, and what orjson makes holds on to 4 KiB (orjson 3.13, 2026-11).
        """
        fields: dict[str, bytes] = {}
        if chunk.system_fingerprint is not None and chunk.system_fingerprint != self._fingerprint:
            self._fingerprint = chunk.system_fingerprint
            fields["system_fingerprint"] = msgspec.json.encode(chunk.system_fingerprint)
        if chunk.service_tier is not None and chunk.service_tier != self._service_tier:
            self._service_tier = chunk.service_tier
            fields["service_tier"] = msgspec.json.encode(chunk.service_tier)
        if fields:
            out.append(ProviderReported(fields, self._dialect))


def _is_flat_error(chunk: Any, unmapped: list[tuple[int | None, dict[str, bytes]]]) -> bool:
    """Whether what has nothing of an answer is an error without an object around it."""
    fields = next((found for place, found in unmapped if place is None), {})
    empty = chunk.id is None and chunk.usage is None and not chunk.choices
    told = _MESSAGE in fields and not _KINDS.isdisjoint(fields)
    return empty and (told or not _OTHER_MESSAGES.isdisjoint(fields))


def _check_stopped(fields: Mapping[str, bytes]) -> None:
    """Raises the error that Groq tells beside the choices where it stops a stream."""
    with suppress(*UNREADABLE):
        error = _decode_object(fields.get("x_groq", b"{}")).get("error")
        if error:
            raise error_from_object(error)


def parser_of(answer: Answer, text_field: re.Pattern[bytes]) -> SseAnswerParser:
    """The parser of a streamed answer. `text_field` finds the text in a chunk of nothing else (`adapters.repeated`)."""
    return SseAnswerParser(answer, end=_DONE, text_field=text_field)


def parse_whole(answer: Answer, body: bytes) -> list[Event]:
    """The events of a body that was not streamed."""
    out = whole_answer(answer.feed, body)
    if not answer.complete:
        raise BadUpstreamResponse("the upstream's answer has a choice without a finish reason, or no choice at all")
    return out
