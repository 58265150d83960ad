"""Calls as JSON objects with a name and arguments: Hermes, Qwen, Llama 3, lists as Mistral's, or nothing around."""

from typing import Final

from adapters.text.calls.book import NO_ARGUMENTS, CallBook, NotACall
from adapters.text.calls.json_text import decoded, over, over_mark, over_string, raw_value, streamed_object
from adapters.text.growing_text import WHITESPACE, Waits

__all__ = ["json_list", "json_objects", "plain_json"]

_NAME_KEYS: Final = ("name", "tool_name")
_ARGUMENT_KEYS: Final = ("arguments", "parameters")
_FENCE: Final = "```"
_FENCE_NAME: Final = "json"


def json_objects(book: CallBook, end: str) -> Waits[None]:
    """Objects, with white space or semicolons between them."""
    text = book.text
    yield from _call(book, end)
    while (character := (yield from text.skip(WHITESPACE))) in ("{", ";"):
        if character == ";":
            text.at += 1
        else:
            yield from _call(book, end)


def json_list(book: CallBook, end: str) -> Waits[None]:
    """The members of an array."""
    text = book.text
    yield from over(text, "[")
    while True:
        yield from _call(book, end)
        if (yield from text.skip(WHITESPACE)) != ",":
            break
        text.at += 1
    yield from over(text, "]")
    book.passed()


def plain_json(book: CallBook, end: str) -> Waits[None]:
    """An object or an array of them, maybe in a fence of code."""
    text = book.text
    is_fenced = yield from text.goes_on_with(_FENCE)
    if is_fenced:
        text.at += len(_FENCE)
        if (yield from text.goes_on_with(_FENCE_NAME)):
            text.at += len(_FENCE_NAME)
    if (yield from text.skip(WHITESPACE)) == "[":
        yield from json_list(book, end)
    else:
        yield from json_objects(book, end)
    if is_fenced:
        yield from over_mark(text, _FENCE)
        book.passed()


def _call(book: CallBook, end: str) -> Waits[None]:
    """One call. A fault raises NotACall; what was given out by then stays given out."""
    text = book.text
    name: str | None = None
    arguments: str | None = None
    is_announced = False
    yield from over(text, "{")
    while (character := (yield from text.skip(WHITESPACE))) != "}":
        key = decoded((yield from over_string(text)))
        yield from over(text, ":")
        character = yield from text.skip(WHITESPACE)
        if is_announced:
            yield from raw_value(text, character)
        elif key in _NAME_KEYS and name is None:
            name = book.known(decoded((yield from over_string(text))))
        elif key in _ARGUMENT_KEYS and arguments is None and name is not None and character == "{":
            is_announced = True
            yield from _stream_arguments(book, name, end)
        elif key in _ARGUMENT_KEYS and arguments is None:
            arguments = _arguments((yield from raw_value(text, character)))
        else:
            yield from raw_value(text, character)
        if not is_announced and name is not None and arguments is not None:
            is_announced = True
            book.whole(name, arguments)
        if (yield from text.skip(WHITESPACE)) != ",":
            break
        text.at += 1
    yield from over(text, "}")
    if name is None:
        raise NotACall
    if not is_announced:
        book.whole(name, NO_ARGUMENTS)
    book.passed()


def _stream_arguments(book: CallBook, name: str, end: str) -> Waits[None]:
    """The object at the cursor, given out as it comes. The closing mark ends it even where it is not closed."""
    book.announce(name)
    is_whole = yield from streamed_object(book, end)
    book.finish()
    if not is_whole:
        raise NotACall


def _arguments(raw: str) -> str:
    """The arguments of a whole value: an object as it is, the text of a string that holds one; null and "" are none."""
    if raw.startswith('"'):
        raw = decoded(raw).strip()
    if raw in ("", "null"):
        return NO_ARGUMENTS
    if not raw.startswith("{"):
        raise NotACall
    return raw
