"""Calls of Llama 3 behind its python tag: JSON objects, its built-in tools as `NAME.call(query="...")`, or code, which
is a call of whatever tool runs code.
"""

from typing import Final

from adapters.text.calls.book import CallBook, NotACall, escaped
from adapters.text.calls.json_objects import json_objects
from adapters.text.calls.named_json import name_up_to
from adapters.text.calls.pythonic import python_arguments
from adapters.text.growing_text import WHITESPACE, Waits

__all__ = ["llama_calls"]

_CALL: Final = ".call("
_CODE_TOOLS: Final = ("code_interpreter", "ipython", "python")
"""By what name the first of them is declared."""
_CODE: Final = "code"


def llama_calls(book: CallBook, end: str) -> Waits[None]:
    text = book.text
    if (yield from text.skip(WHITESPACE)) == "{":
        yield from json_objects(book, end)
        return
    start, before = text.at, book.given
    try:
        yield from _builtin(book, end)
    except NotACall:
        if book.given != before:
            raise
        text.at = start
        yield from _code(book)


def _builtin(book: CallBook, end: str) -> Waits[None]:
    text = book.text
    name = book.known((yield from name_up_to(text, _CALL)).strip())
    text.at += len(_CALL)
    book.announce(name)
    yield from python_arguments(book, end)


def _code(book: CallBook) -> Waits[None]:
    """All that follows, as the one text of the tool that runs code. Raises NotACall where none is declared."""
    text = book.text
    if not (yield from text.peek()):
        raise NotACall
    name = next((name for name in _CODE_TOOLS if book.is_known(name)), "")
    book.announce(book.known(name))
    texts = [key for key, types in book.types(name).items() if "string" in types]
    key = _CODE if _CODE in texts or not texts else texts[0]
    book.arguments(f'{{"{escaped(key)}": "')
    while (yield from text.peek()):
        book.arguments(escaped(text.between(text.at, text.end)))
        text.at = text.end
        book.passed()
    book.arguments('"}')
    book.finish()
