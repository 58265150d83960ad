"""Values that are nearly JSON, as JSON while they come: literals of Python, and Gemma's with its own quotes.

What was understood has been given out when something is not: the caller then gives the rest as it stands.
"""

import re
from typing import Final, NamedTuple

from adapters.text.calls.book import MAX_NAME, CallBook, NotACall, escaped
from adapters.text.calls.json_text import MAX_DEPTH
from adapters.text.growing_text import WHITESPACE, Waits

__all__ = ["PYTHON", "LiteralSyntax"]

_NUMBER: Final = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?")
_WORDS: Final = {
    "True": "true", "False": "false", "None": "null", "true": "true", "false": "false", "null": "null",
}  # fmt: skip
_BARE_ENDS: Final = frozenset(",:()[]{}'\"<") | WHITESPACE
_CLOSE: Final = {"[": "]", "(": ")", "{": "}"}
_ESCAPES: Final = {
    "n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"', "/": "/",
    "b": "\b", "f": "\f", "a": "\a", "v": "\v", "0": "\0", "\n": "",
}  # fmt: skip
_HEX_DIGITS: Final = {"x": 2, "u": 4, "U": 8}


class LiteralSyntax(NamedTuple):
    """`quote`: a mark on both sides of a text that has no escapes, beside the quotes of Python and JSON.

    `bare_texts`: keys, and values that are no numbers or known words, may stand without quotes.
    """

    quote: str = ""
    bare_texts: bool = False

    def value(self, book: CallBook, depth: int = 0) -> Waits[None]:
        """The value at the cursor, given out as JSON. Raises NotACall where it cannot be read."""
        text = book.text
        first = yield from text.skip(WHITESPACE)
        if depth > MAX_DEPTH:
            raise NotACall
        if first in ("{", "[", "("):
            yield from self._container(book, first, depth)
        elif (yield from self._is_quoted(book, first)):
            yield from self._string(book, first)
        else:
            written = yield from self._bare(book)
            known = _WORDS.get(written)
            if known is None and _NUMBER.fullmatch(written):
                known = written
            if known is None and (not self.bare_texts or not written):
                raise NotACall
            book.arguments(f'"{escaped(written)}"' if known is None else known)
            book.passed()

    def members(self, book: CallBook, close: str, depth: int = 0) -> Waits[None]:
        """KEY `:` VALUE pairs up to the bracket that closes them, given out behind an opened object."""
        text = book.text
        before = ""
        while (first := (yield from text.skip(WHITESPACE))) != close:
            book.arguments(before)
            book.passed()
            yield from self._key(book, first)
            yield from self.value(book, depth + 1)
            before = ", "
            yield from self._separator(book, close)
        text.at += 1
        book.arguments("}")
        book.passed()

    def _container(self, book: CallBook, first: str, depth: int) -> Waits[None]:
        text = book.text
        text.at += 1
        book.arguments("{" if first == "{" else "[")
        book.passed()
        if first == "{":
            yield from self.members(book, "}", depth)
            return
        before = ""
        while (yield from text.skip(WHITESPACE)) != _CLOSE[first]:
            book.arguments(before)
            book.passed()
            yield from self.value(book, depth + 1)
            before = ", "
            yield from self._separator(book, _CLOSE[first])
        text.at += 1
        book.arguments("]")
        book.passed()

    def _separator(self, book: CallBook, close: str) -> Waits[None]:
        found = yield from book.text.skip(WHITESPACE)
        if found == ",":
            book.text.at += 1
            book.passed()
        elif found != close:
            raise NotACall

    def _key(self, book: CallBook, first: str) -> Waits[None]:
        """The key at the cursor and its colon. One without quotes is known as such by its colon."""
        text = book.text
        bare = None
        if (yield from self._is_quoted(book, first)):
            yield from self._string(book, first)
        else:
            bare = yield from self._bare(book)
        if (yield from text.skip(WHITESPACE)) != ":" or bare == "" or (bare is not None and not self.bare_texts):
            raise NotACall
        text.at += 1
        book.arguments(": " if bare is None else f'"{escaped(bare)}": ')
        book.passed()

    def _is_quoted(self, book: CallBook, first: str) -> Waits[bool]:
        if first in ("'", '"') and first:
            return True
        return bool(self.quote) and (yield from book.text.goes_on_with(self.quote))

    def _bare(self, book: CallBook) -> Waits[str]:
        """A number or a word. Texts without quotes may hold spaces."""
        text = book.text
        start = text.at
        ends = _BARE_ENDS - WHITESPACE if self.bare_texts else _BARE_ENDS
        while (character := (yield from text.peek())) not in ends:
            if not character or text.at - start > MAX_NAME:
                raise NotACall
            text.at += 1
        return text.between(start, text.at).strip()

    def _string(self, book: CallBook, first: str) -> Waits[None]:
        """The string at the cursor, given out as it comes."""
        text = book.text
        marked = first not in ("'", '"')
        text.at += len(self.quote) if marked else 1
        book.arguments('"')
        book.passed()
        if marked:
            yield from self._marked_string(book)
        else:
            yield from self._escaped_string(book, first)
        book.arguments('"')

    def _marked_string(self, book: CallBook) -> Waits[None]:
        text = book.text
        while (found := text.find(self.quote)) is None:
            self._give(book, text.settled(self.quote))
            if text.ended:
                raise NotACall
            yield
        self._give(book, found)
        text.at += len(self.quote)
        book.passed()

    def _escaped_string(self, book: CallBook, quote: str) -> Waits[None]:
        text = book.text
        while True:
            if text.at >= text.end:
                self._give(book, text.at)
            character = yield from text.peek()
            if not character or (character == "\n" and not self.bare_texts):
                self._give(book, text.at)
                raise NotACall
            if character == quote:
                self._give(book, text.at)
                text.at += 1
                book.passed()
                return
            if character == "\\":
                self._give(book, text.at)
                book.arguments(escaped((yield from _escape(book))))
                book.passed()
            else:
                text.at += 1

    def _give(self, book: CallBook, end: int) -> None:
        book.arguments(escaped(book.text.between(book.given, end)))
        book.text.at = end
        book.passed()


PYTHON: Final = LiteralSyntax()


def _escape(book: CallBook) -> Waits[str]:
    """What the escape at the cursor stands for. One that Python does not know stands for itself."""
    text = book.text
    text.at += 1
    kind = yield from text.peek()
    if not kind:
        raise NotACall
    text.at += 1
    digits = _HEX_DIGITS.get(kind)
    if digits is None:
        return _ESCAPES.get(kind, f"\\{kind}")
    start = text.at
    for _ in range(digits):
        if not (yield from text.peek()):
            raise NotACall
        text.at += 1
    try:
        found = chr(int(text.between(start, text.at), 16))
    except (ValueError, OverflowError):
        raise NotACall from None
    if "\ud800" <= found <= "\udfff":
        raise NotACall
    return found
