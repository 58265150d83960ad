"""Names of tools that an upstream forbids, as it allows them, and back.

What a name becomes depends on the name alone, so that it is the same in every request: what is forbidden in it is
replaced, and a piece of its hash keeps two names apart. A name that is allowed stays as it is.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from hashlib import blake2b

from adapters.canonical.request import Request

__all__ = ["NameRule"]

_HASH_CHARS = 8


class NameRule:
    """`allowed` are characters as a regular expression's class has them, `first` those that may begin a name."""

    def __init__(self, *, first: str, allowed: str, max_length: int) -> None:
        self._legal = re.compile(rf"[{first}][{allowed}]{{0,{max_length - 1}}}")
        self._first = re.compile(rf"[{first}]")
        self._forbidden = re.compile(rf"[^{allowed}]")
        self._kept = max_length - _HASH_CHARS - 2
        self.sent = lru_cache(maxsize=1024)(self._sent)
        """The name as the upstream gets it."""

    def _sent(self, name: str) -> str:
        if self._legal.fullmatch(name):
            return name
        clean = self._forbidden.sub("_", name)[: self._kept]
        if not self._first.match(clean):
            clean = f"_{clean}"
        return f"{clean}_{blake2b(name.encode(), digest_size=_HASH_CHARS // 2).hexdigest()}"

    def originals(self, request: Request) -> Mapping[str, str]:
        """The client's names by those that the upstream got in their place; empty where all are allowed."""
        names = [tool.name for tool in request.tools or () if tool.raw is None]
        return {sent: name for name in names if (sent := self.sent(name)) != name}
