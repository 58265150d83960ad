"""Calls as a name and then JSON arguments, between marks: DeepSeek V3, R1 and V3.1, Kimi K2, newer Mistral."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from adapters.text.calls.book import MAX_NAME, NO_ARGUMENTS, CallBook, NotACall
from adapters.text.calls.json_text import over_mark, streamed_object
from adapters.text.growing_text import WHITESPACE, GrowingText, Waits

__all__ = ["NamedJson", "kimi_name", "mistral_name", "name_up_to", "plain_name"]


def plain_name(written: str) -> tuple[str, str | None]:
    return written, None


def kimi_name(written: str) -> tuple[str, str | None]:
    """`functions.NAME:NUMBER` is the id of the call and holds the name."""
    return written.removeprefix("functions.").rpartition(":")[0], written


def mistral_name(written: str) -> tuple[str, str | None]:
    """`NAME[CALL_ID]ID` where the model gives ids."""
    name, _, call_id = written.partition("[CALL_ID]")
    return name, call_id or None


@dataclass(frozen=True, slots=True)
class NamedJson:
    """`before` NAME `between` ARGUMENTS `behind`, any number of times. `before` and `behind` may be empty.

    `parts`: the name and the model's own id of a call, from what stands in the place of the name.
    """

    between: str
    before: str = ""
    behind: str = ""
    parts: Callable[[str], tuple[str, str | None]] = plain_name

    def __call__(self, book: CallBook, end: str) -> Waits[None]:
        text = book.text
        yield from self._call(book, end)
        while self.before:
            yield from text.skip(WHITESPACE)
            if not (yield from text.goes_on_with(self.before)):
                return
            yield from self._call(book, end)

    def _call(self, book: CallBook, end: str) -> Waits[None]:
        text = book.text
        if self.before:
            yield from over_mark(text, self.before)
        written = yield from name_up_to(text, self.between)
        name, call_id = self.parts(written.strip())
        book.known(name)
        text.at += len(self.between)
        book.announce(name, call_id)
        if (yield from text.skip(WHITESPACE)) == "{":
            book.passed()
            is_whole = yield from streamed_object(book, self.behind or end)
        else:
            is_whole = yield from self._without_object(book, end)
        book.finish()
        if self.behind:
            yield from over_mark(text, self.behind.lstrip())
        elif not is_whole:
            raise NotACall
        book.passed()

    def _without_object(self, book: CallBook, end: str) -> Waits[bool]:
        """No object: what is there up to the closing mark is given as it stands, and nothing as no arguments."""
        text = book.text
        mark = self.behind or end
        is_empty = not (yield from text.peek()) or (bool(mark) and (yield from text.goes_on_with(mark)))
        book.passed()
        if is_empty:
            book.arguments(NO_ARGUMENTS)
            return True
        return (yield from book.raw_up_to(mark))


_LINE_ENDS: Final = ("\n", "\r")


def name_up_to(text: GrowingText, mark: str) -> Waits[str]:
    """What stands before the mark, which may begin with a line break but is on one line. The mark stays."""
    start = text.at
    while (found := text.find(mark)) is None:
        written = text.between(start, text.settled(mark))
        if text.ended or len(written) > MAX_NAME or any(end in written.strip() for end in _LINE_ENDS):
            raise NotACall
        yield
    name = text.between(start, found)
    if found - start > MAX_NAME or any(end in name.strip() for end in _LINE_ENDS):
        raise NotACall
    text.at = found
    return name
