"""One thing that people are told. Plain values; knows no way to tell them."""

from collections.abc import Callable, Mapping

from msgspec import Struct

__all__ = ["Alert", "Tell"]


class Alert(Struct, frozen=True):
    """`id` is the same for the same thing, so that who hears it from several gateways can pass over the others. `text`
    is for people, `fields` for programs."""

    event: str
    id: str
    text: str
    fields: Mapping[str, object]


Tell = Callable[[Alert], None]
"""Takes no time, and never fails."""
