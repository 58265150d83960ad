"""Calls as Python writes them: Llama 4 and 3.2 `[f(a=1), g()]`, LFM2, Olmo 3."""

from dataclasses import dataclass

from adapters.text.calls.book import NO_ARGUMENTS, CallBook, NotACall, escaped
from adapters.text.calls.literals import PYTHON
from adapters.text.calls.named_json import name_up_to
from adapters.text.growing_text import WHITESPACE, Waits

__all__ = ["Pythonic", "python_arguments"]


@dataclass(frozen=True, slots=True)
class Pythonic:
    """`is_list`: the calls stand in brackets with commas between them; else one behind the other."""

    is_list: bool = True

    def __call__(self, book: CallBook, end: str) -> Waits[None]:
        text = book.text
        if self.is_list:
            if (yield from text.skip(WHITESPACE)) != "[":
                raise NotACall
            text.at += 1
        yield from self._call(book, end)
        while True:
            found = yield from text.skip(WHITESPACE)
            if not self.is_list and (not found or (yield from text.goes_on_with(end))):
                return
            if self.is_list and found != ",":
                break
            text.at += 1 if self.is_list else 0
            yield from self._call(book, end)
        if found != "]":
            raise NotACall
        text.at += 1
        book.passed()

    def _call(self, book: CallBook, end: str) -> Waits[None]:
        text = book.text
        yield from text.skip(WHITESPACE)
        name = book.known((yield from name_up_to(text, "(")).strip())
        text.at += 1
        book.announce(name)
        yield from python_arguments(book, end)


def python_arguments(book: CallBook, end: str) -> Waits[None]:
    """What stands in the brackets of a call that is announced, as a JSON object; the cursor is behind the first."""
    text = book.text
    before = "{"
    try:
        while (yield from text.skip(WHITESPACE)) != ")":
            key = (yield from name_up_to(text, "=")).strip()
            if not key.isidentifier():
                raise NotACall
            text.at += 1
            book.arguments(f'{before}"{escaped(key)}": ')
            book.passed()
            before = ", "
            yield from PYTHON.value(book)
            if (yield from text.skip(WHITESPACE)) == ",":
                text.at += 1
                book.passed()
    except NotACall:
        text.at = book.given
        yield from book.raw_rest(end)
    text.at += 1
    book.arguments(NO_ARGUMENTS if before == "{" else "}")
    book.finish()
    book.passed()
