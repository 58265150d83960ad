"""One request on its way to one target: whether they speak one dialect, and what has to be left out."""

from collections.abc import Callable, Mapping

from adapters.canonical.messages import ProviderData
from adapters.canonical.request import Request
from adapters.hints import is_hint
from adapters.openai.cache_fields import BREAKPOINT, CACHE_CONTROL
from providers.base import Capabilities

__all__ = ["Fitting", "Spelling"]

Spelling = Callable[[str], str]
"""From a canonical field name to the client's."""
_CACHE_FIELDS = (BREAKPOINT, CACHE_CONTROL)


class Fitting:
    """`dropped` and `hints` are the client's names of what was left out; hints are left out in any case."""

    __slots__ = ("_dialect", "capabilities", "dropped", "hints", "is_native", "spell")

    def __init__(self, request: Request, capabilities: Capabilities, spell: Spelling) -> None:
        self._dialect = request.dialect
        self.capabilities = capabilities
        self.spell = spell
        self.is_native = request.dialect in capabilities.forwards
        """The target speaks the client's dialect."""
        self.dropped: list[str] = []
        self.hints: list[str] = []

    def leave_out(self, name: str, raw: bytes, path: str) -> None:
        """An unmapped field of the client's dialect with this name and value, where it stands."""
        (self.hints if is_hint(self._dialect, name, raw) else self.dropped).append(path)

    def foreign(self, data: ProviderData | None) -> Mapping[str, bytes]:
        """The unmapped fields of a dialect that it does not speak, without hints for caches, which were read."""
        if data is None or data.origin in self.capabilities.forwards:
            return {}
        return {name: raw for name, raw in data.fields.items() if name.rpartition(".")[2] not in _CACHE_FIELDS}
