"""Answers in gpt-oss's harmony form: messages between special tokens, each on a channel and maybe to a tool.

    <|channel|>analysis<|message|>...<|end|><|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json
    <|message|>{...}<|call|>                 or, in place of the call, ...<|channel|>final<|message|>...<|return|>

Analysis is reasoning, a message to a declared function is a call (models forget `functions.`), and what is on any other
channel is text. A message to anybody else is text as it stands, its header too. Source: OpenAI's description of the
format, 2025-08.
"""

import re
from collections.abc import Callable, Collection
from typing import Final

from adapters.text.calls.book import NO_ARGUMENTS, CallBook, CallPiece
from adapters.text.growing_text import GrowingText, Waits
from adapters.text.reasoning import ReasoningPiece

__all__ = ["HARMONY_ENDS", "HARMONY_MARKS", "HARMONY_NEXT", "HARMONY_REASONING", "HarmonyReader"]

_START: Final = "<|start|>"
_CHANNEL: Final = "<|channel|>"
_MESSAGE: Final = "<|message|>"
_CONSTRAIN: Final = "<|constrain|>"
_TO: Final = " to="
HARMONY_ENDS: Final = ("<|call|>", "<|return|>")
"""Marks that end an answer."""
_ENDS: Final = ("<|end|>", *HARMONY_ENDS)
_CLOSING: Final = (*_ENDS, _START)
"""What ends a message: a mark of its own, or the next message."""
HARMONY_MARKS: Final = (_START, _CHANNEL, _MESSAGE, _CONSTRAIN, *_ENDS)
_BEGINNINGS: Final = (_START, _CHANNEL, _MESSAGE, _TO)
_MAX_HEADER: Final = 512
_RECIPIENT: Final = re.compile(r"(?:^|\s)to=([^\s<]+)")
_NAMED_CHANNEL: Final = re.compile(r"<\|channel\|>\s*([a-z_]*)")
HARMONY_REASONING: Final = "analysis"
"""The channel of reasoning."""
HARMONY_NEXT: Final = f"{_START}assistant{_CHANNEL}"
"""What the next message begins with, up to its channel."""
_EVERYBODY: Final = ("all", "assistant", "user")
"""Recipients that are none in particular."""
_FUNCTIONS: Final = "functions."


class HarmonyReader:
    """The same however the text is cut into feeds. The prompt ends behind the assistant's role.

    declared, new_id and parallel are those of ToolCallParser; with `declared` empty there are no calls.
    """

    def __init__(
        self,
        declared: Collection[str],
        new_id: Callable[[], str],
        *,
        parallel: bool = True,
    ) -> None:
        self._text = GrowingText()
        self._book = CallBook(self._text, declared, new_id, parallel=parallel)
        self._pieces: list[ReasoningPiece | CallPiece] = []
        self.is_reasoning = False
        """Whether what came last belongs to the reasoning."""
        self._read = self._run()

    def feed(self, text: str) -> list[ReasoningPiece | CallPiece]:
        self._text.append(text)
        return self._resume()

    def flush(self, *, is_cut: bool = False) -> list[ReasoningPiece | CallPiece]:
        """What was held back, at the end of the text. `is_cut`: its writer had not ended."""
        self._text.finish(is_cut=is_cut)
        return self._resume()

    def _resume(self) -> list[ReasoningPiece | CallPiece]:
        next(self._read, None)
        pieces, self._pieces = [*self._pieces, *self._book.take()], []
        return pieces

    def _run(self) -> Waits[None]:
        text = self._text
        while not text.ended or text.at < text.end:
            if (yield from self._passes_end()):
                continue
            start = text.at
            header = yield from self._header()
            if header is None and self._begins_header() and self._book.withheld():
                return
            if header is None:  # what stands here is text, though it be a mark
                text.at = min(start + 1, text.end)
                yield from self._content(self._give_text)
            else:
                yield from self._message(header)

    def _passes_end(self) -> Waits[bool]:
        """Whether a mark that ends a message stands at the cursor, which is moved behind it then."""
        for mark in _ENDS:
            if (yield from self._text.goes_on_with(mark)):
                self._text.at += len(mark)
                self._book.passed()
                return True
        return False

    def _header(self) -> Waits[str | None]:
        """What stands before the message at the cursor, which is moved there; None, and not moved, where none does."""
        text = self._text
        start = text.at
        for mark in _BEGINNINGS:
            if (yield from text.goes_on_with(mark)):
                break
        else:
            return None
        while (found := text.find(_MESSAGE)) is None:
            if text.ended or text.end - start > _MAX_HEADER or self._closes(start, text.end):
                return None
            yield
        if found - start > _MAX_HEADER or self._closes(start, found):
            return None
        text.at = found + len(_MESSAGE)
        return text.between(start, found)

    def _closes(self, start: int, end: int) -> bool:
        """Whether a message is over between these places, so that no header goes on there."""
        header = self._text.between(start, end).removeprefix(_START)
        return any(mark in header for mark in _CLOSING)

    def _begins_header(self) -> bool:
        """Whether what is left of the text is a header, as far as it came."""
        text = self._text
        rest = text.between(text.at, text.end)
        return len(rest) <= _MAX_HEADER and any(rest.startswith(mark) for mark in _BEGINNINGS)

    def _message(self, header: str) -> Waits[None]:
        book = self._book
        recipient = _RECIPIENT.search(header)
        if recipient is not None and recipient[1] in _EVERYBODY:
            recipient = None
        *_, channel = ("", *_NAMED_CHANNEL.findall(header))
        name = "" if recipient is None else recipient[1].removeprefix(_FUNCTIONS)
        if book.is_known(name):
            yield from self._call(name)
            return
        if recipient is not None and recipient[1].startswith(_FUNCTIONS):
            yield from self._content(self._give_text)
            return
        if channel == HARMONY_REASONING:
            book.passed()
            self.is_reasoning = True
            yield from self._content(self._give_reasoning)
            self.is_reasoning = False
            return
        if recipient is None:
            book.passed()
        yield from self._content(self._give_text)

    def _call(self, name: str) -> Waits[None]:
        book = self._book
        book.announce(name)
        is_empty = True

        def give(end: int) -> None:
            nonlocal is_empty
            written = self._text.between(book.given, end)
            is_empty = is_empty and not written
            book.arguments(written)
            self._move(end)

        yield from self._content(give)
        if is_empty:
            book.arguments(NO_ARGUMENTS)
        book.finish()

    def _content(self, give: Callable[[int], None]) -> Waits[None]:
        """Gives what stands up to the mark that ends the message, before which the cursor stands then."""
        text = self._text
        while True:
            places = [found for mark in _CLOSING if (found := text.find(mark)) is not None]
            if places:
                give(min(places))
                return
            give(min(text.settled(mark) for mark in _CLOSING))
            if text.ended:
                return
            yield

    def _give_text(self, end: int) -> None:
        self._book.text_up_to(end)
        self._text.at = end

    def _give_reasoning(self, end: int) -> None:
        text, given = self._text, self._book.given
        if end > given:
            self._pieces += self._book.take()
            self._pieces.append(ReasoningPiece(True, text.between(given, end), given))
        self._move(end)

    def _move(self, end: int) -> None:
        self._text.at = end
        self._book.passed()
