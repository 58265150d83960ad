"""LoRA adapters that all ranks have read: this rank's share of one, and the number that the others know it by."""

import threading
import weakref
from collections.abc import Mapping

from local_engine.layers.lora import LowRank

__all__ = ["AdapterNumbers", "SharedAdapter"]


class SharedAdapter(dict[str, LowRank]):
    """What the adapter adds to each linear layer here."""

    def __init__(self, deltas: Mapping[str, LowRank], number: int) -> None:
        super().__init__(deltas)
        self.number = number


class AdapterNumbers:
    """Numbers adapters, and knows which of them nobody holds any more. Any thread may call it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = 0
        self._forgotten: list[int] = []

    def next(self) -> int:
        with self._lock:
            self._last += 1
            return self._last

    def share(self, deltas: Mapping[str, LowRank], number: int) -> SharedAdapter:
        shared = SharedAdapter(deltas, number)
        weakref.finalize(shared, self.forget, number)
        return shared

    def forget(self, number: int) -> None:
        """The other ranks may, too: they hear of it with the next step."""
        self._forgotten.append(number)

    def take_forgotten(self) -> list[int]:
        """Each is given once."""
        taken = self._forgotten[:]
        del self._forgotten[: len(taken)]
        return taken
