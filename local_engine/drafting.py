"""Guesses of the tokens that follow a sequence, for the model to verify in one pass.

A guess changes no answer: the engine draws the model's own token at each guessed position, with the noise of that
position, and keeps guesses while they are equal to it (Leviathan et al., "Fast inference from transformers via
speculative decoding", 2023, with the draws of both sides coupled). So a drafter may guess anything, at any time.
"""

from collections.abc import Mapping
from collections.abc import Sequence as SequenceOf
from typing import Protocol

from local_engine.sequence import Sequence

__all__ = ["Drafter", "NgramDrafter"]

_NGRAMS = (3, 2)
# Tokens of a sequence that are looked up in: indexing them all at once takes about 2 ms.
_REACH = 4096


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

    Costs next to nothing, and is right where an answer repeats its prompt: code, quotes, structured data.
    """

    def __init__(self) -> None:
        self._lookups: dict[Sequence, _Lookup] = {}

    def draft(self, wanted: Mapping[Sequence, int]) -> dict[Sequence, tuple[int, ...]]:
        drafts = {}
        for sequence, count in wanted.items():
            lookup = self._lookups.setdefault(sequence, _Lookup())
            drafts[sequence] = lookup.guess(sequence.tokens, count)
        return drafts

    def forget(self, sequence: Sequence) -> None:
        self._lookups.pop(sequence, None)

    def close(self) -> None:
        self._lookups.clear()


class _Lookup:
    """Where each n-gram of one sequence was last followed by something."""

    def __init__(self) -> None:
        self._next: dict[tuple[int, ...], int] = {}
        self._known = 0

    def guess(self, tokens: SequenceOf[int], count: int) -> tuple[int, ...]:
        for place in range(max(self._known, len(tokens) - _REACH, 1), len(tokens)):
            for size in _NGRAMS:
                if size <= place:
                    self._next[tuple(tokens[place - size : place])] = place
        self._known = len(tokens)
        for size in _NGRAMS:
            found = self._next.get(tuple(tokens[-size:]))
            if found is not None:
                return tuple(tokens[found : found + count])
        return ()
