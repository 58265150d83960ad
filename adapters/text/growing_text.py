"""A text that arrives in pieces, with a cursor: what lets a parser be written as if the whole text were there.

A parser is a generator over it: it says `yield from text.peek()`, and is resumed whenever more text has come. Owns the
text that nobody has dropped yet. Knows no formats.
"""

from collections.abc import Generator
from typing import TypeVar

__all__ = ["LINE_BREAKS", "WHITESPACE", "GrowingText", "Waits"]

T = TypeVar("T")
Waits = Generator[None, None, T]
"""Gives a T, after it has waited for more text as often as it must."""

LINE_BREAKS = frozenset("\n")
WHITESPACE = frozenset(" \t\r\n")


class GrowingText:
    """Positions are characters from the beginning of the whole text. `at` is the cursor."""

    def __init__(self) -> None:
        self.at = 0
        self.ended = False
        """No more will come."""
        self.is_cut = False
        """And it ended before its writer had ended."""
        self._base = 0
        self._text = ""

    @property
    def end(self) -> int:
        """How much has come so far."""
        return self._base + len(self._text)

    def finish(self, *, is_cut: bool) -> None:
        self.ended, self.is_cut = True, is_cut

    def append(self, text: str) -> None:
        self._text += text

    def drop(self, before: int) -> None:
        """What precedes this position is not asked for again."""
        self._text = self._text[before - self._base :]
        self._base = before

    def between(self, start: int, end: int) -> str:
        return self._text[start - self._base : end - self._base]

    def find(self, marker: str) -> int | None:
        """Where the marker stands whole, from the cursor on."""
        found = self._text.find(marker, self.at - self._base)
        return None if found < 0 else self._base + found

    def settled(self, marker: str) -> int:
        """Up to where the text from the cursor on can be no part of a marker, nor of line breaks before one."""
        return self.end if self.ended else self.before_begun(marker)

    def before_begun(self, marker: str) -> int:
        """Up to where the text from the cursor on can be no beginning of a marker, nor of line breaks before one."""
        ahead = self._text[self.at - self._base :]
        sizes = range(min(len(ahead), len(marker) - 1), 0, -1)
        held = next((size for size in sizes if ahead.endswith(marker[:size])), 0)
        return self.without_breaks(self.end - held)

    def without_breaks(self, end: int) -> int:
        """The end of the text from the cursor up to `end`, without the line breaks that it ends with."""
        return self.at + len(self.between(self.at, end).rstrip("\n"))

    def peek(self) -> Waits[str]:
        """The character at the cursor; "" at the end."""
        while self.at >= self.end:
            if self.ended:
                return ""
            yield
        return self._text[self.at - self._base]

    def skip(self, characters: frozenset[str]) -> Waits[str]:
        """Moves the cursor behind these characters; gives the one that it stands on then."""
        while (character := (yield from self.peek())) in characters:
            self.at += 1
        return character

    def goes_on_with(self, marker: str) -> Waits[bool]:
        """Whether the marker stands at the cursor. Waits no longer than it takes to tell."""
        while True:
            ahead = self.between(self.at, self.at + len(marker))
            if ahead == marker:
                return True
            if self.ended or not marker.startswith(ahead):
                return False
            yield
