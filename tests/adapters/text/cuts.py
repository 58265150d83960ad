"""Ways to cut a text into pieces."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

__all__ = ["all_cuts", "cut_at"]


def cut_at(text: str, places: Sequence[int]) -> list[str]:
    """The pieces between these places; places behind the end cut nothing."""
    borders = [0, *sorted(min(place, len(text)) for place in places), len(text)]
    return [text[start:end] for start, end in pairwise(borders)]


def all_cuts(text: str) -> Iterator[list[str]]:
    """In one piece, in two at every place, and one character a piece."""
    yield [text]
    yield list(text)
    for place in range(1, len(text)):
        yield cut_at(text, [place])
