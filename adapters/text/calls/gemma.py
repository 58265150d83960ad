"""Gemma's calls: `call:NAME{key:value,...}`, with a mark of its own for quotes (Gemma 4, FunctionGemma)."""

from dataclasses import dataclass
from typing import Final

from adapters.text.calls.book import CallBook, NotACall
from adapters.text.calls.json_text import over_mark
from adapters.text.calls.literals import LiteralSyntax
from adapters.text.calls.named_json import name_up_to
from adapters.text.growing_text import Waits

__all__ = ["GemmaCalls"]

_CALL: Final = "call:"


@dataclass(frozen=True, slots=True)
class GemmaCalls:
    """`quote`: what stands on both sides of a text."""

    quote: str

    def __call__(self, book: CallBook, end: str) -> Waits[None]:
        text = book.text
        yield from over_mark(text, _CALL)
        name = book.known((yield from name_up_to(text, "{")).strip())
        text.at += 1
        book.announce(name)
        book.arguments("{")
        try:
            yield from LiteralSyntax(self.quote, bare_texts=True).members(book, "}")
        except NotACall:
            text.at = book.given
            yield from book.raw_rest(end)
        book.finish()
