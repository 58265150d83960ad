"""Splits what a model thinks from what it answers, in a stream of text.

Owns the marks that models put around their reasoning, one row a format. Knows no models: who talks to one says which
format it writes, and whether the prompt has already opened the reasoning.

An answer has at most one reasoning, at its very beginning; the marks further on are text, so that an answer may speak
about them. The line breaks next to a mark belong to it, as in the templates that write the turn back into a prompt.
"""

from collections.abc import Mapping
from typing import NamedTuple

from adapters.text.growing_text import LINE_BREAKS, WHITESPACE, GrowingText, Waits

__all__ = ["REASONING_FORMATS", "ReasoningFormat", "ReasoningPiece", "ReasoningSplitter"]


class ReasoningFormat(NamedTuple):
    """Reasoning stands between `start` and `end`.

    `answer`: what a model writes next where it does not simply go on. `efforts`: the words for how much to think that
    its models were trained on; () : the template decides. `channels`: the whole answer is messages on channels, calls
    too, and `adapters.text.harmony` reads it. `opened`: the models' prompts end with the mark that starts it.
    `special`: the marks are special tokens, which servers leave out unless they are asked for them.
    """

    start: str
    end: str
    answer: str = ""
    efforts: tuple[str, ...] = ()
    channels: bool = False
    opened: bool = False
    special: bool = False


REASONING_FORMATS: Mapping[str, ReasoningFormat] = {
    "think": ReasoningFormat("<think>", "</think>"),
    "think_opened": ReasoningFormat("<think>", "</think>", opened=True),
    "mistral": ReasoningFormat("[THINK]", "[/THINK]", special=True),
    "gemma": ReasoningFormat("<|channel>thought", "<channel|>", special=True),
    "seed_oss": ReasoningFormat("<seed:think>", "</seed:think>"),
    "cohere": ReasoningFormat("<|START_THINKING|>", "<|END_THINKING|>", special=True),
    "harmony": ReasoningFormat(
        "<|channel|>analysis<|message|>",
        "<|end|>",
        answer="<|start|>assistant<|channel|>final<|message|>",
        efforts=("low", "medium", "high"),
        channels=True,
        special=True,
    ),
}


class ReasoningPiece(NamedTuple):
    """A piece of the text as it came, not empty. `start` is its place, in characters from the beginning."""

    is_reasoning: bool
    text: str
    start: int


class ReasoningSplitter:
    """The same however the text is cut into feeds. `starts_inside`: the prompt ends with the opening mark.
    `answer_mark`: a special token that is never thought ("": none), so that an answer begins with it even where the
    reasoning was not closed before it.

    What could become a mark is held back, nothing else. Reasoning that is never closed is reasoning to the end.
    """

    def __init__(self, form: ReasoningFormat, *, starts_inside: bool = False, answer_mark: str = "") -> None:
        self._form = form
        self._closing = tuple(filter(None, (form.end, answer_mark)))
        self._starts_inside = starts_inside
        self._text = GrowingText()
        self._pieces: list[ReasoningPiece] = []
        self._given = 0
        self._answers = False
        self._position = 0
        self.is_reasoning = starts_inside
        """Whether what came last belongs to the reasoning."""
        self._split = self._run()

    @property
    def is_over(self) -> bool:
        """Whether all that follows is the answer."""
        return self._answers

    def feed(self, text: str) -> list[ReasoningPiece]:
        start = self._position
        self._position += len(text)
        if self._answers:
            return [ReasoningPiece(False, text, start)] if text else []
        self._text.append(text)
        return self._resume()

    def flush(self, *, is_cut: bool = False) -> list[ReasoningPiece]:
        """What was held back, at the end of the text."""
        self._text.finish(is_cut=is_cut)
        return [] if self._answers else self._resume()

    def _resume(self) -> list[ReasoningPiece]:
        next(self._split, None)
        self._text.drop(self._given)
        pieces, self._pieces = self._pieces, []
        return pieces

    def _run(self) -> Waits[None]:
        text, form = self._text, self._form
        yield from text.skip(WHITESPACE)
        if (yield from text.goes_on_with(form.start)):
            text.at += len(form.start)
        elif self._starts_inside:
            text.at = 0
        else:
            self._give(False, text.end)
            self._answers = True
            return
        self.is_reasoning = True
        yield from self._skip_breaks()
        while not (places := [(place, mark) for mark in self._closing if (place := text.find(mark)) is not None]):
            self._give(True, min(map(text.settled, self._closing)))
            text.at = self._given
            if text.ended:
                return
            yield
        found, mark = min(places)
        self._give(True, text.without_breaks(found))
        self.is_reasoning = False
        self._given = found
        if mark == form.end:
            text.at = found + len(mark)
            yield from self._skip_breaks()
        self._give(False, text.end)
        self._answers = True

    def _skip_breaks(self) -> Waits[None]:
        yield from self._text.skip(LINE_BREAKS)
        self._given = self._text.at

    def _give(self, is_reasoning: bool, end: int) -> None:
        if end > self._given:
            self._pieces.append(ReasoningPiece(is_reasoning, self._text.between(self._given, end), self._given))
            self._given = end
