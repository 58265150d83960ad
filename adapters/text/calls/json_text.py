"""JSON in a growing text: where a value ends. Nothing is decoded but strings; a value stays as the model wrote it."""

from typing import Final

import orjson

from adapters.text.calls.book import CallBook, NotACall
from adapters.text.growing_text import WHITESPACE, GrowingText, Waits

__all__ = ["MAX_DEPTH", "decoded", "over", "over_mark", "over_string", "raw_value", "streamed_object"]

MAX_DEPTH: Final = 128
"""Deepest nesting of a value that is held until it is whole; a deeper one makes no call. It bounds how often text is
read again. Arguments that go out as they come need no bound."""

_SCALAR_ENDS: Final = WHITESPACE | frozenset(",}]")


def over(text: GrowingText, expected: str) -> Waits[None]:
    """Moves behind this character, and the white space before it. Raises NotACall."""
    if (yield from text.skip(WHITESPACE)) != expected:
        raise NotACall
    text.at += 1


def over_mark(text: GrowingText, mark: str) -> Waits[None]:
    """Moves behind this mark, and the white space before it. Raises NotACall."""
    yield from text.skip(WHITESPACE)
    if not (yield from text.goes_on_with(mark)):
        raise NotACall
    text.at += len(mark)


def raw_value(text: GrowingText, first: str) -> Waits[str]:
    """The JSON of the value at the cursor, whose first character is given. Scalars are taken as they come."""
    start = text.at
    if first == '"':
        return (yield from over_string(text))
    if first in ("{", "["):
        if not (yield from _over_object(text, "", is_bounded=True)):
            raise NotACall
    else:
        while (character := (yield from text.peek())) not in _SCALAR_ENDS:
            if not character or character in '"{[:':
                raise NotACall
            text.at += 1
        if text.at == start:
            raise NotACall
    return text.between(start, text.at)


def over_string(text: GrowingText) -> Waits[str]:
    """The JSON of the string at the cursor."""
    start = text.at
    if (yield from text.peek()) != '"' or not (yield from _rest_of_string(text)):
        raise NotACall
    return text.between(start, text.at)


def streamed_object(book: CallBook, end_mark: str) -> Waits[bool]:
    """The object at the cursor is arguments, given out as it comes; False where the text or `end_mark` comes first.

    A line break or its like that a string holds as it is goes out escaped: JSON has no other place for it.
    """
    controls: list[int] = []
    moves = _over_object(book.text, end_mark, is_bounded=False, controls=controls)
    return (yield from book.streamed(moves, controls))


def _over_object(
    text: GrowingText, end_mark: str, *, is_bounded: bool, controls: list[int] | None = None
) -> Waits[bool]:
    """Moves behind the object or array at the cursor; False where the text or `end_mark` comes first.

    controls: gets the places of characters that a string may hold only escaped, and holds as they are.
    """
    depth = 0
    while character := (yield from text.peek()):
        if character == '"':
            if not (yield from _rest_of_string(text, controls)):
                return False
            continue
        if end_mark and character == end_mark[0] and (yield from text.goes_on_with(end_mark)):
            return False
        text.at += 1
        if character in "{[":
            depth += 1
            if is_bounded and depth > MAX_DEPTH:
                raise NotACall
        elif character in "}]":
            depth -= 1
            if not depth:
                return True
    return False


def decoded(raw: str) -> str:
    """The text of a JSON string. One that is none, or that no UTF-8 can hold, makes no call."""
    try:
        text: str = orjson.loads(raw)
    except ValueError as error:
        raise NotACall from error
    return text


def _rest_of_string(text: GrowingText, controls: list[int] | None = None) -> Waits[bool]:
    """Moves from an opening quote behind the closing one; False where the text ends before it."""
    text.at += 1
    while character := (yield from text.peek()):
        if character < " " and controls is not None:
            controls.append(text.at)
        text.at += 1
        if character == '"':
            return True
        if character == "\\":
            if not (yield from text.peek()):
                return False
            text.at += 1
    return False
