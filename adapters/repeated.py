"""The short way for the chunks that nearly all of a stream consists of: the last one again, with another text.

Two chunks that agree in every byte around one JSON string say the same but for that string. A chunk that differs from
the one before it only there need not be decoded whole (measured: 0.3 us instead of 1.6 us).
"""

import re
from typing import Self

from msgspec import DecodeError
from msgspec.json import Decoder

from adapters.canonical.events import TextDelta

__all__ = ["RepeatedChunk"]

_decode_text = Decoder(str).decode


class RepeatedChunk:
    """A decoded chunk whose only event was `event`, with the place of its text."""

    __slots__ = ("_after", "_around", "_before", "choice", "part")

    def __init__(self, payload: bytes, start: int, end: int, event: TextDelta) -> None:
        self._before = payload[:start]
        self._after = payload[end:]
        self._around = start + len(payload) - end
        self.choice = event.choice
        self.part = event.part

    @classmethod
    def learn(cls, payload: bytes, event: TextDelta, text_field: re.Pattern[bytes]) -> Self | None:
        """`text_field` finds the field of the text, its JSON string as group 1. None where it is not the only one."""
        places = list(text_field.finditer(payload))
        if len(places) != 1 or event.logprobs or event.token_ids or _decode_text(places[0][1]) != event.text:
            return None
        return cls(payload, *places[0].span(1), event)

    def text(self, payload: bytes) -> str | None:
        """The text of another chunk like this one; None for a chunk that is not like it."""
        before, after = self._before, self._after
        if len(payload) < self._around + 2 or not payload.startswith(before) or not payload.endswith(after):
            return None
        try:
            return _decode_text(payload[len(before) : len(payload) - len(after)])
        except DecodeError:
            return None  # more than a string differs, or it is none: the whole chunk tells what is wrong
