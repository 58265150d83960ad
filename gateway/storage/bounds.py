"""How much is kept, and for how long."""

from typing import NamedTuple

__all__ = ["Bounds"]


class Bounds(NamedTuple):
    """`max_bytes` holds for everything together."""

    ttl_s: float
    max_bytes: int
