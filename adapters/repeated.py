"""The short way for the frames that nearly all of a stream consists of: the last one again, with another text.

Two frames that agree in every byte around one JSON string say the same but for that string. A frame that differs from
the one before it only there need not be decoded whole (measured: 0.3 us instead of 1.6 us).
"""

import re
from itertools import islice

from msgspec import DecodeError
from msgspec.json import Decoder

from adapters.canonical.events import Event, ReasoningDelta, TextDelta, ToolArgumentsDelta

__all__ = ["Repetition"]

_decode_text = Decoder(str).decode
_Delta = TextDelta | ReasoningDelta | ToolArgumentsDelta
_MAX_LESSONS = 8
"""So often a frame is learned without use, since some streams repeat none (n choices in turn)."""
_MAX_BYTES = 4096
"""Of a frame that is learned: to find the text of one with megabytes would hold up every other stream."""


class Repetition:
    """Of one stream. `text_field` finds the text of a frame, its JSON string as group 1."""

    __slots__ = ("_after", "_before", "_choice", "_kind", "_lessons", "_part", "_text_field")

    def __init__(self, text_field: re.Pattern[bytes]) -> None:
        self._text_field = text_field
        self._lessons = _MAX_LESSONS
        self._kind: type[_Delta] | None = None
        """Of the events that the frames make; None: no frame is known."""
        self._before = b""
        """What stands before the string."""
        self._after = b""
        """Its closing quote, and what stands behind it."""
        self._choice = self._part = 0

    def learn(self, payload: bytes, event: Event) -> None:
        """Takes a frame that led to this event alone for one that may come again."""
        if not self._lessons or not isinstance(event, _Delta) or len(payload) > _MAX_BYTES:
            return
        self._lessons -= 1
        kind = type(event)
        places = list(self._text_field.finditer(payload))
        if (
            len(places) == 1
            and _decode_text(places[0][1]) == event.text
            and event == kind(event.choice, event.part, event.text)  # and says nothing but its text
        ):
            start, end = places[0].span(1)
            self._before, self._after = payload[:start], payload[end - 1 :]
            self._kind, self._choice, self._part = kind, event.choice, event.part

    def read(self, payloads: list[bytes], start: int, out: list[Event]) -> int:
        """Reads the frames from `start` on that are like the one that was learned; gives the place of the next other.

        That one may change what follows (a part ends, a choice is done): then nothing is known any more.
        """
        kind = self._kind
        if kind is None:
            return start
        before, after = self._before, self._after
        first, last = len(before), 1 - len(after)
        place = start
        for payload in islice(payloads, start, None):
            if not (payload.startswith(before) and payload.endswith(after)):
                self._kind = None
                break
            try:
                text = _decode_text(payload[first:last])
            except DecodeError:  # more than a string differs, or it is none: the whole frame tells what is wrong
                self._kind = None
                break
            if text:
                out.append(kind(self._choice, self._part, text))
            place += 1
        if place > start:
            self._lessons = _MAX_LESSONS
        return place
