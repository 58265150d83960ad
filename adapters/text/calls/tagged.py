"""Calls as tags with a tag for each parameter: Qwen3-Coder, GLM 4.x, MiniMax M2, Seed-OSS, DeepSeek V3.2.

Values stand there as plain text. They become JSON by the types that the tool's schema allows: a text goes out as it
comes, anything else once it is whole; what is no JSON of an allowed type is a text.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import orjson

from adapters.text.calls.book import MAX_NAME, NO_ARGUMENTS, CallBook, NotACall, escaped
from adapters.text.calls.parameter_types import TYPE_OF
from adapters.text.growing_text import LINE_BREAKS, WHITESPACE, GrowingText, Waits

__all__ = ["Tagged"]

_TEXT: Final = frozenset(("string",))
_PYTHON_WORDS: Final = {"True": "true", "False": "false", "None": "null"}
_STRING_FLAG: Final = '" string="'


@dataclass(frozen=True, slots=True)
class Tagged:
    """`name_start` NAME `name_end`, then (`key_start` KEY `key_end` `value_start` VALUE `value_end`)*, then `call_end`.

    `name_end` "" : the name ends with its line, or at the first tag. `call_end` "": the mark that closes the calls
    ends the call too. `breaks`: a line break on both sides of a value belongs to its tags.
    """

    name_start: str
    name_end: str
    key_start: str
    key_end: str
    value_end: str
    value_start: str = ""
    call_end: str = ""
    breaks: bool = False

    def __call__(self, book: CallBook, end: str) -> Waits[None]:
        text = book.text
        yield from self._call(book, end)
        while self.call_end:
            yield from text.skip(WHITESPACE)
            if not (yield from text.goes_on_with(self.name_start)):
                return
            yield from self._call(book, end)

    def _call(self, book: CallBook, end: str) -> Waits[None]:
        text = book.text
        yield from text.skip(WHITESPACE)
        if not (yield from text.goes_on_with(self.name_start)):
            raise NotACall
        text.at += len(self.name_start)
        name = book.known((yield from self._name(text, end)))
        book.announce(name)
        types = book.types(name)
        before = "{"
        while True:
            yield from text.skip(WHITESPACE)
            close = self.call_end or end
            if (yield from text.goes_on_with(close)):
                text.at += len(self.call_end)
                break
            if not (yield from self._opens_value(book, types, before)):
                if before == "{" and not (yield from text.peek()):
                    book.finish()
                    raise NotACall
                yield from book.raw_rest(close)
            before = ", "
        book.arguments("}" if before != "{" else NO_ARGUMENTS)
        book.finish()
        book.passed()

    def _name(self, text: GrowingText, end: str) -> Waits[str]:
        """The name at the cursor, which is moved behind its end."""
        if self.name_end:
            name = yield from _before(text, self.name_end)
            if name is None:
                raise NotACall
            return name.strip()
        start = text.at
        while (character := (yield from text.peek())) and character not in "\n<" and text.at - start <= MAX_NAME:
            text.at += 1
        if not character:
            raise NotACall
        return text.between(start, text.at).strip()

    def _opens_value(self, book: CallBook, types: Mapping[str, frozenset[str]], before: str) -> Waits[bool]:
        """One parameter, given out. False, with the cursor where it was, where there is none."""
        text = book.text
        start = text.at
        if not (yield from text.goes_on_with(self.key_start)):
            return False
        text.at += len(self.key_start)
        key = yield from _before(text, self.key_end)
        if key is None:
            text.at = start
            return False
        if self.value_start:
            yield from text.skip(WHITESPACE)
            if not (yield from text.goes_on_with(self.value_start)):
                text.at = start
                return False
            text.at += len(self.value_start)
        key, _, flag = key.strip().partition(_STRING_FLAG)
        allowed = types.get(key)
        if flag:
            allowed = _TEXT if flag == "true" else None
        if self.breaks and (yield from text.peek()) in LINE_BREAKS:
            text.at += 1
        book.arguments(f'{before}"{escaped(key)}": ')
        book.passed()
        yield from self._value(book, allowed)
        return True

    def _value(self, book: CallBook, allowed: frozenset[str] | None) -> Waits[None]:
        """The value at the cursor as JSON. One that is cut off is left as far as it came, and ends the call."""
        text = book.text
        is_text = allowed == _TEXT
        if is_text:
            book.arguments('"')
        while (found := text.find(self.value_end)) is None:
            if is_text:
                self._give_text(book, text.settled(self.value_end))
            if text.ended:
                text.at = text.end
                if not is_text:
                    book.arguments(text.between(book.given, text.end))
                book.passed()
                book.finish()
                raise NotACall
            text.at = text.settled(self.value_end)
            yield
        end = found - 1 if self.breaks and text.between(max(book.given, found - 1), found) == "\n" else found
        if is_text:
            self._give_text(book, end)
            book.arguments('"')
        else:
            book.arguments(_json_of(text.between(book.given, end), allowed))
        text.at = found + len(self.value_end)
        book.passed()

    def _give_text(self, book: CallBook, end: int) -> None:
        book.arguments(escaped(book.text.between(book.given, end)))
        book.text.at = end
        book.passed()


def _before(text: GrowingText, mark: str) -> Waits[str | None]:
    """What stands before the mark, behind which the cursor is moved. None where that is too long, or never comes."""
    start = text.at
    while (found := text.find(mark)) is None:
        if text.ended or text.end - start > MAX_NAME + len(mark):
            return None
        yield
    if found - start > MAX_NAME:
        return None
    text.at = found + len(mark)
    return text.between(start, found)


def _json_of(written: str, allowed: frozenset[str] | None) -> str:
    """The value as JSON: as it is written where that is JSON of an allowed type (None: of any), else a text."""
    raw = written.strip()
    raw = _PYTHON_WORDS.get(raw, raw)
    try:
        found = TYPE_OF[type(orjson.loads(raw))]
    except ValueError:
        return f'"{escaped(written)}"'
    fits = allowed is None or found in allowed or (found == "integer" and "number" in allowed)
    if allowed is not None and "string" in allowed and (found == "string" or not fits):
        return f'"{escaped(written)}"'
    return raw
