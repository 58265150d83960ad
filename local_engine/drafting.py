"""Guesses of the tokens that follow a sequence, for the model to verify in one pass.

A guess changes no answer: the engine draws the model's own token at each guessed position, with the noise of that
position, and keeps guesses while they are equal to it (Leviathan et al., "Fast inference from transformers via
speculative decoding", 2023, with the draws of both sides coupled). So a drafter may guess anything, at any time.
"""

import math
from collections.abc import Mapping
from itertools import cycle, islice
from typing import Protocol

from local_engine.sequence import Sequence

__all__ = ["Drafter", "NgramDrafter"]

_NGRAMS = (3, 2)
# Tokens of a sequence that are looked up in: indexing them all at once takes about 2 ms.
_REACH = 4096
# What a sequence of which nothing is known is taken for: so many guesses tried, and so many of them right. What was
# seen weighs less with every token since, so that a sequence whose guesses were wrong is tried again.
_TRIED, _RIGHT = 4.0, 3.0
_MEMORY = 0.97


class Drafter(Protocol):
    """Not thread-safe: the engine's thread owns it. Whatever it raises costs the guesses of a step and nothing else."""

    def draft(self, wanted: Mapping[Sequence, int]) -> dict[Sequence, tuple[int, ...]]:
        """At most wanted[s] tokens that may follow each sequence; none for those of which it knows nothing."""

    def forget(self, sequence: Sequence) -> None:
        """Drops what is kept of a sequence that has ended."""

    def close(self) -> None:
        """Gives back all that it holds. Nothing may be drafted after it."""


class NgramDrafter:
    """Prompt lookup: what followed the last three (or two) tokens where they stood before, in prompt or answer.

    Costs next to nothing, and is right where an answer repeats its prompt: code, quotes, structured data. A sequence
    gets as many guesses as pay, judged by how many of its last ones were right.
    step_rows: see `LoadedModel.step_rows`; infinite where guessed tokens cost nothing.
    """

    def __init__(self, *, step_rows: float = math.inf) -> None:
        self._step_rows = step_rows
        self._lookups: dict[Sequence, _Lookup] = {}

    def draft(self, wanted: Mapping[Sequence, int]) -> dict[Sequence, tuple[int, ...]]:
        price = len(wanted) / (len(wanted) + self._step_rows)
        drafts = {}
        for sequence, count in wanted.items():
            lookup = self._lookups.get(sequence)
            if lookup is None:
                lookup = self._lookups[sequence] = _Lookup(sequence)
            drafts[sequence] = lookup.guess(count, price)
        return drafts

    def forget(self, sequence: Sequence) -> None:
        self._lookups.pop(sequence, None)

    def close(self) -> None:
        self._lookups.clear()


class _Lookup:
    """Where each n-gram of one sequence was last followed by something, and what became of guesses made from it."""

    def __init__(self, sequence: Sequence) -> None:
        self._sequence = sequence
        self._next: dict[tuple[int, ...], int] = {}
        self._known = self._seen = 0
        self._tried, self._right = _TRIED, _RIGHT
        self._accepted = self._rejected = 0

    def guess(self, most: int, price: float) -> tuple[int, ...]:
        """price: what a guess costs, of what a token costs that nobody has guessed."""
        self._learn()
        count = int(min(most, self._worthwhile(price)))
        if not count:
            return ()
        tokens = self._sequence.tokens
        for place in range(max(self._known, len(tokens) - _REACH, 1), len(tokens)):
            for size in _NGRAMS:
                if size <= place:
                    self._next[tuple(tokens[place - size : place])] = place
        self._known = len(tokens)
        for size in _NGRAMS:
            found = self._next.get(tuple(tokens[-size:]))
            if found is not None:
                again = tokens[found : found + count]  # shorter where the text goes round: then it goes on doing so
                return tuple(islice(cycle(again), count))
        return ()

    def _learn(self) -> None:
        """Takes in what became of the last guess. Those behind the first wrong one say nothing."""
        sequence = self._sequence
        accepted, wrong = sequence.accepted_drafts - self._accepted, sequence.rejected_drafts > self._rejected
        self._accepted, self._rejected = sequence.accepted_drafts, sequence.rejected_drafts
        kept = _MEMORY ** (len(sequence.tokens) - self._seen)
        self._seen = len(sequence.tokens)
        self._tried = _TRIED + (self._tried - _TRIED) * kept + accepted + wrong
        self._right = _RIGHT + (self._right - _RIGHT) * kept + accepted

    def _worthwhile(self, price: float) -> float:
        """As many guesses as are likelier right, with all before them, than they cost."""
        if price <= 0:
            return math.inf
        likely = self._right / self._tried
        return 0 if likely <= price else math.log(price) / math.log(likely)
