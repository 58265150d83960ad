"""What every endpoint answers with."""

from collections.abc import Callable
from dataclasses import dataclass

from gateway.routing.router import Router
from gateway.server.body import BodyReader

__all__ = ["Means"]


@dataclass(frozen=True, slots=True)
class Means:
    """`now` gives Unix seconds, `max_depth` bounds JSON."""

    router: Router
    bodies: BodyReader
    now: Callable[[], float]
    max_depth: int
