"""The text of one answer to canonical events: reasoning is split off first, then tool calls are found in the rest; a
harmony reader does both.

Owns the numbering of parts, which are dense and in order of appearance. Knows no tokens: a passage says which
characters of the text its event came from, so that a caller can send along what belongs to them.
"""

from collections.abc import Collection, Iterable
from typing import NamedTuple, assert_never

from adapters.canonical.events import (
    ReasoningDelta,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallFinished,
    ToolCallStarted,
)
from adapters.canonical.tool_kinds import CUSTOM, FUNCTION
from adapters.text.custom_input import InputReader
from adapters.text.harmony import HarmonyReader
from adapters.text.reasoning import ReasoningPiece, ReasoningSplitter
from adapters.text.tool_calls import (
    BegunCall,
    CallArguments,
    CallFinished,
    CallPiece,
    CallStarted,
    TextPiece,
    ToolCallParser,
)

__all__ = ["HiddenReasoning", "Passage", "TextPipeline"]


class HiddenReasoning(NamedTuple):
    """Stands for reasoning that is not to be shown."""


class Passage(NamedTuple):
    """`start` and `end` are characters from the beginning of the text; they are equal for what tells of a call."""

    event: TextDelta | ReasoningDelta | ToolCallStarted | ToolArgumentsDelta | ToolCallFinished | HiddenReasoning
    start: int
    end: int


class TextPipeline:
    """Of choice 0; the same however the text is cut into feeds. `custom`: the tools whose input is a text."""

    def __init__(
        self,
        reasoning: ReasoningSplitter | HarmonyReader | None,
        calls: ToolCallParser | BegunCall | None,
        *,
        shows_reasoning: bool = True,
        custom: Collection[str] = (),
    ) -> None:
        self._custom = custom
        self._input: InputReader | None = None
        """Of the call that is open, where it is of a custom tool."""
        self._reasoning = reasoning
        self._calls = calls
        self._shows_reasoning = shows_reasoning
        self._position = 0
        self._answer_start: int | None = None
        """Where the text behind the reasoning begins; the calls' parser counts from there."""
        self._part = -1
        self._open: type[TextDelta] | type[ReasoningDelta] | None = None
        """What the last part grows by; None: nothing, or it is a call."""
        self.num_calls = 0

    @property
    def splits_reasoning(self) -> bool:
        return self._reasoning is not None

    @property
    def is_reasoning(self) -> bool:
        """Whether the text that came last belongs to the reasoning."""
        return self._reasoning is not None and self._reasoning.is_reasoning

    @property
    def reasoning_is_over(self) -> bool:
        """Whether no more reasoning can come. (On channels it always can.)"""
        return isinstance(self._reasoning, ReasoningSplitter) and self._reasoning.is_over

    def goes_on_with_text(self) -> None:
        """The caller has given out text already, as part 0: text goes on with it, and anything else follows on it."""
        self._open, self._part = TextDelta, 0

    def feed(self, text: str) -> list[Passage]:
        start = self._position
        self._position += len(text)
        if self._reasoning is not None:
            return self._passages(self._reasoning.feed(text))
        return self._passages([ReasoningPiece(False, text, start)] if text else [])

    def flush(self, *, is_cut: bool = False) -> list[Passage]:
        """What was held back, at the end of the text. `is_cut`: a limit ended it, and not its writer; of a call that
        has not begun by then nothing is given out."""
        passages = [] if self._reasoning is None else self._passages(self._reasoning.flush(is_cut=is_cut))
        if self._calls is not None:
            passages += self._with_calls(self._calls.flush(is_cut=is_cut))
        return passages

    def last_part(self) -> TextDelta | ReasoningDelta | None:
        """An empty piece of the part that the text ended with; None where that is a call, or hidden, or nothing."""
        return None if self._open is None else self._open(0, self._part, "")

    def _passages(self, pieces: Iterable[ReasoningPiece | CallPiece]) -> list[Passage]:
        passages: list[Passage] = []
        for piece in pieces:
            if not isinstance(piece, ReasoningPiece):
                passages += self._with_calls((piece,))
                continue
            is_reasoning, text, start = piece
            if is_reasoning and self._shows_reasoning:
                passages.append(self._delta(ReasoningDelta, text, start))
            elif is_reasoning:
                passages.append(Passage(HiddenReasoning(), start, start + len(text)))
            elif self._calls is None:
                passages.append(self._delta(TextDelta, text, start))
            else:
                if self._answer_start is None:
                    self._answer_start = start
                passages += self._with_calls(self._calls.feed(text))
        return passages

    def _with_calls(self, pieces: Iterable[CallPiece]) -> list[Passage]:
        passages: list[Passage] = []
        for piece in pieces:
            match piece:
                case TextPiece():
                    passages.append(self._delta(TextDelta, piece.text, (self._answer_start or 0) + piece.start))
                case CallStarted():
                    self.num_calls += 1
                    self._part += 1
                    self._open = None
                    self._input = InputReader() if piece.name in self._custom else None
                    kind = FUNCTION if self._input is None else CUSTOM
                    passages.append(_silent(ToolCallStarted(0, self._part, piece.id, piece.name, kind)))
                case CallArguments():
                    passages += self._arguments(piece.text if self._input is None else self._input.feed(piece.text))
                case CallFinished():
                    passages += self._arguments("" if self._input is None else self._input.flush())
                    passages.append(_silent(ToolCallFinished(0, self._part)))
                case _:
                    assert_never(piece)
        return passages

    def _arguments(self, text: str) -> list[Passage]:
        return [_silent(ToolArgumentsDelta(0, self._part, text))] if text else []

    def _delta(self, kind: type[TextDelta] | type[ReasoningDelta], text: str, start: int) -> Passage:
        if self._open is not kind:
            self._open = kind
            self._part += 1
        return Passage(kind(0, self._part, text), start, start + len(text))


def _silent(event: ToolCallStarted | ToolArgumentsDelta | ToolCallFinished) -> Passage:
    return Passage(event, 0, 0)
