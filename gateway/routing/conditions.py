"""Conditions of a target: which requests it is for, by their headers, the `metadata` of their bodies, and
who the client is."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gateway.globs import pattern_of

__all__ = ["Conditions", "conditions_of"]

_NO_VALUES: Mapping[str, Sequence[str]] = {}


@dataclass(frozen=True, slots=True)
class Conditions:
    """All of them have to hold: of each header (named in lower case) and of each name in metadata the whole value has
    to match the pattern. Metadata that is no text matches nothing."""

    headers: tuple[tuple[str, re.Pattern[str]], ...]
    metadata: tuple[tuple[str, re.Pattern[str]], ...]
    key: tuple[tuple[str, re.Pattern[str]], ...]

    def unmet(self, headers: Mapping[str, str], metadata: Mapping[str, object], key: Mapping[str, str]) -> str | None:
        """The first that does not hold; None: all do."""
        for name, pattern in self.headers:
            value = headers.get(name)
            if value is None or pattern.fullmatch(value) is None:
                return f"the header {name}"
        for name, pattern in self.metadata:
            found = metadata.get(name)
            if not isinstance(found, str) or pattern.fullmatch(found) is None:
                return f"metadata.{name}"
        for name, pattern in self.key:
            value = key.get(name)
            if value is None or pattern.fullmatch(value) is None:
                return f"the key's {name}"
        return None


def conditions_of(
    headers: Mapping[str, Sequence[str]],
    metadata: Mapping[str, Sequence[str]],
    key: Mapping[str, Sequence[str]] = _NO_VALUES,
) -> Conditions:
    """From the values that each may have; in one, `*` stands for any text."""
    return Conditions(
        tuple([(name.lower(), pattern_of(*values)) for name, values in headers.items()]),
        tuple([(name, pattern_of(*values)) for name, values in metadata.items()]),
        tuple([(name, pattern_of(*values)) for name, values in key.items()]),
    )
