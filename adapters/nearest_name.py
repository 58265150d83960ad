"""The known name that a misspelt one may have meant. Knows no dialect."""

from collections.abc import Collection, Iterable
from difflib import get_close_matches

__all__ = ["did_you_mean", "did_you_mean_or_all", "nearest"]

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


def did_you_mean_or_all(word: str, known: Collection[str]) -> str:
    """The same, or `, expected one of: ...` where none is like it; nothing if none is known."""
    return did_you_mean(word, known) or (f", expected one of: {', '.join(known)}" if known else "")
