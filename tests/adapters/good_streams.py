"""Recorded streams that end well, each read once: what the SDKs, as oracles, see rendered for their clients."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import pytest

from adapters.canonical.events import Event
from tests.adapters.golden_case import golden_cases
from tests.adapters.sides import Sides

__all__ = ["GoodStream", "good_streams", "streams"]

S = TypeVar("S", bound=Sides)


@dataclass(frozen=True)
class GoodStream(Generic[S]):
    """`exchange` is the request, `events` are what its upstream said."""

    name: str
    exchange: S
    events: list[Event]


def good_streams(
    dialect: str, exchange: Callable[[bytes], S], *, of: Callable[[S], bool] = lambda exchange: True
) -> list[GoodStream[S]]:
    """Of the golden cases of a dialect, those whose exchange is `of` the wanted kind."""
    found: list[GoodStream[S]] = []
    for case in golden_cases(dialect):
        if case.stream is None:
            continue
        sides = exchange(case.request)
        events, error = sides.read_stream(case.stream)
        if error is None and of(sides):
            found.append(GoodStream(case.name, sides, events))
    return found


def streams(found: Sequence[GoodStream[Any]]) -> pytest.MarkDecorator:
    """For a test that takes one `stream` of these."""
    return pytest.mark.parametrize("stream", found, ids=[each.name for each in found])
