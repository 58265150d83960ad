"""Patterns of run.yaml: `*` stands for any text, of any length."""

import re
from functools import lru_cache

__all__ = ["matches", "pattern_of"]


def matches(globs: tuple[str, ...], name: str) -> bool:
    """Whether the name is one that any of the patterns stands for."""
    return _known(globs).fullmatch(name) is not None


def pattern_of(*globs: str) -> re.Pattern[str]:
    """What any of the patterns stands for."""
    return re.compile("|".join(".*".join(map(re.escape, glob.split("*"))) for glob in globs), re.DOTALL)


@lru_cache(maxsize=1024)
def _known(globs: tuple[str, ...]) -> re.Pattern[str]:
    return pattern_of(*globs)
