"""LoRA adapters beside one model: what is loaded under which name. Knows no files; what they hold is the executor's.

A sequence keeps the adapter that it began with, so one that is unloaded lives until the last of them has ended.
"""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import uuid4

from local_engine.errors import InvalidInput, UnknownAdapter

if TYPE_CHECKING:  # the scheduler's side of the engine runs without torch
    from local_engine.layers.lora import LowRank

__all__ = ["MAX_ADAPTERS", "Adapter", "AdapterTable"]

MAX_ADAPTERS = 256
_MAX_NAME = 128


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Adapter:
    """One load of an adapter. generation: no other load has it, under the same name or another.

    deltas: by the name of the linear layer that they are added to.
    """

    name: str
    deltas: "Mapping[str, LowRank]"
    generation: str = field(default_factory=lambda: uuid4().hex)


class AdapterTable:
    """The adapters that requests may name, at most `limit`. Any thread may call it."""

    def __init__(self, limit: int = MAX_ADAPTERS) -> None:
        self._limit = limit
        self._by_name: dict[str, Adapter] = {}
        self._lock = threading.Lock()

    @property
    def names(self) -> tuple[str, ...]:
        """In the order of their loads."""
        return tuple(self._by_name)

    def find(self, name: str) -> Adapter:
        """Raises UnknownAdapter."""
        adapter = self._by_name.get(name)
        if adapter is None:
            raise UnknownAdapter(name)
        return adapter

    def check_new(self, name: str) -> None:
        """Raises InvalidInput for a name that is none, is taken, or is one too many."""
        if not name or len(name) > _MAX_NAME or not name.isprintable() or {":", "/"} & set(name):
            raise InvalidInput(
                "adapter", f"{name[:_MAX_NAME]!r} is no name: 1 to {_MAX_NAME} printable characters without ':' and '/'"
            )
        if name in self._by_name:
            raise InvalidInput("adapter", f"{name!r} is loaded already; unload it first")
        if len(self._by_name) >= self._limit:
            raise InvalidInput("adapter", f"{self._limit} adapters are loaded, which is as many as there may be")

    def add(self, adapter: Adapter) -> None:
        """From now on requests may name it. Raises what `check_new` raises."""
        with self._lock:
            self.check_new(adapter.name)
            self._by_name[adapter.name] = adapter

    def remove(self, name: str) -> None:
        """From now on no request may name it. Raises UnknownAdapter."""
        with self._lock:
            if self._by_name.pop(name, None) is None:
                raise UnknownAdapter(name)
