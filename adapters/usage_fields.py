"""Fields of an upstream's usage object that nobody maps, on their way to a client of the same dialect.

They travel among the fields of the answer, each named `<usage object>.<name>`.
"""

from collections.abc import Mapping

__all__ = ["told_apart"]


def told_apart(fields: Mapping[str, bytes], usage: str) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """The fields of the answer, and those of its usage object, which is called `usage`."""
    prefix = f"{usage}."
    inner = {name.removeprefix(prefix): raw for name, raw in fields.items() if name.startswith(prefix)}
    return {name: raw for name, raw in fields.items() if not name.startswith(prefix)}, inner
