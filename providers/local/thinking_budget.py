"""A bound on how much a model thinks: when it is reached, the model has to write the mark that closes its reasoning.

Works by the engine's token mask, so it holds for every way of sampling, and knows by the text alone where the reasoning
is, as the reader of the answer does. Knows no engine and no requests.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from adapters.text.harmony import HarmonyReader
from adapters.text.reasoning import ReasoningSplitter
from local_engine.generation import TokenMask
from providers.local.detokenizer import Detokenizer

__all__ = ["ReasoningWatch", "ThinkingBudget"]

_ALL = np.uint32(0xFFFFFFFF)


@dataclass(frozen=True, slots=True)
class ReasoningWatch:
    """What tells, token by token, whether a model is thinking. `closing`: the tokens that end it. `not_next`: one that
    must not follow on them, since it would begin more of it."""

    reader: Callable[[], ReasoningSplitter | HarmonyReader]
    detokenizer: Callable[[], Detokenizer]
    closing: Sequence[int]
    not_next: int | None = None


class ThinkingBudget:
    """At most `tokens` of reasoning (up to three more where a character is unfinished); satisfies TokenMask.

    `inner` is a mask that holds as well: what has to follow on the reasoning, which takes any text before its end.
    """

    def __init__(self, watch: ReasoningWatch, tokens: int, inner: TokenMask | None = None) -> None:
        self._watch = watch
        self._tokens = tokens
        self._inner = inner
        self._reader = watch.reader()
        self._detokenizer = watch.detokenizer()
        self._used = 0
        self._accepted: list[int] = []
        self._closing: Sequence[int] = ()
        """What the model has to write next, token by token."""
        self._has_closed = False
        """Whether the last of these tokens was the one before."""
        self._close_if_used_up()

    def fill(self, row: npt.NDArray[np.uint32]) -> None:
        if self._closing:
            word, bit = divmod(self._closing[0], 32)
            row[word] = np.uint32(1) << np.uint32(bit)
        elif self._inner is not None:
            self._inner.fill(row)
        else:
            row.fill(_ALL)
        if self._has_closed and self._watch.not_next is not None:
            word, bit = divmod(self._watch.not_next, 32)
            row[word] &= ~(np.uint32(1) << np.uint32(bit))

    def accept(self, token_id: int) -> bool:
        is_complete = self._inner is not None and self._inner.accept(token_id)
        self._accepted.append(token_id)
        self._follow(token_id)
        return is_complete

    def fork(self) -> "ThinkingBudget":
        """Reads the answer so far again, since a reader has no copy."""
        twin = ThinkingBudget(self._watch, self._tokens, None if self._inner is None else self._inner.fork())
        twin._accepted = list(self._accepted)
        for token_id in self._accepted:
            twin._follow(token_id)
        return twin

    def _follow(self, token_id: int) -> None:
        was_reasoning = self._reader.is_reasoning
        self._reader.feed(self._detokenizer.feed((token_id,)))
        self._used += was_reasoning and self._reader.is_reasoning
        self._has_closed = len(self._closing) == 1
        if self._closing:
            self._closing = self._closing[1:]
        else:
            self._close_if_used_up()

    def _close_if_used_up(self) -> None:
        if self._reader.is_reasoning and self._used >= self._tokens and not self._detokenizer.holds_bytes:
            self._closing = self._watch.closing
