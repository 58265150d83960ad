"""A client, by whichever key it came in."""

import re
from dataclasses import dataclass
from functools import lru_cache

from gateway.limits.rules import NO_RULES, Rules

__all__ = ["ClientKey", "matches"]


@dataclass(frozen=True, slots=True)
class ClientKey:
    """In `models` and in the names of `per_model`, `*` stands for any text."""

    id: str
    models: tuple[str, ...] = ("*",)
    admin: bool = False
    """Whether it opens the admin routes."""
    rules: Rules = NO_RULES
    per_model: tuple[tuple[str, Rules], ...] = ()
    """Rules for single models, beside `rules`."""
    upstream_key: str | None = None
    """The client's own key, which goes to the provider in place of the configured one."""

    def may_use(self, *names: str) -> bool:
        """Whether one of the names of a model is on the key's list."""
        return "*" in self.models or any(matches(self.models, name) for name in names)


def matches(globs: tuple[str, ...], name: str) -> bool:
    return _pattern(globs).fullmatch(name) is not None


@lru_cache(maxsize=1024)
def _pattern(globs: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(".*".join(map(re.escape, glob.split("*"))) for glob in globs), re.DOTALL)
