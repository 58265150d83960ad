"""Raw JSON on its way into a body that orjson writes: as it came, never decoded. Knows no dialect."""

from collections.abc import Mapping

from orjson import Fragment

__all__ = ["fragments"]


def fragments(fields: Mapping[str, bytes]) -> dict[str, Fragment]:
    """The same fields, each to be written as it is."""
    return {name: Fragment(raw) for name, raw in fields.items()}
