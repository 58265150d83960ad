"""What every endpoint answers with."""

from collections.abc import Callable
from dataclasses import dataclass

from gateway.keys.client_key import ClientKey
from gateway.routing.router import Router
from gateway.server.body import BodyReader

__all__ = ["Means"]


@dataclass(frozen=True, slots=True)
class Means:
    """`now` gives Unix seconds, `max_depth` bounds JSON; `unnamed` is the model of a client that names none."""

    router: Router
    bodies: BodyReader
    now: Callable[[], float]
    max_depth: int
    unnamed: Callable[[ClientKey | None], str]
