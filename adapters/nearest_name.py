"""The known name that a misspelt one may have meant. Knows no dialect."""

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = ["did_you_mean", "nearest"]

_MAX_LENGTH = 64
"""Comparing costs the square of a name's length, which a client chooses."""


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known name that is most like this one, None where none is."""
    found = get_close_matches(word, [*known], n=1) if len(word) <= _MAX_LENGTH else []
    return found[0] if found else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`, did you mean 'x'?`, or nothing."""
    found = nearest(word, known)
    return "" if found is None else f", did you mean '{found}'?"
