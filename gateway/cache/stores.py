"""Where stored answers are; in this process, unless several share them (`gateway.cache.redis_store`)."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

__all__ = ["MemoryStore", "Store"]


class Store(Protocol):
    async def get(self, key: bytes) -> bytes | None: ...

    async def put(self, key: bytes, data: bytes) -> None: ...

    async def aclose(self) -> None: ...


class MemoryStore:
    """Holds at most `max_bytes`, keys included, each for `ttl_s`. What was not used for longest goes first."""

    def __init__(self, max_bytes: int, ttl_s: float, clock: Callable[[], float]) -> None:
        self._max_bytes = max_bytes
        self._ttl_s = ttl_s
        self._clock = clock
        self._held: OrderedDict[bytes, tuple[float, bytes]] = OrderedDict()
        self.size = 0

    async def get(self, key: bytes) -> bytes | None:
        found = self._held.get(key)
        if found is None:
            return None
        if found[0] <= self._clock():
            self._drop(key)
            return None
        self._held.move_to_end(key)
        return found[1]

    async def put(self, key: bytes, data: bytes) -> None:
        self._drop(key)
        if len(key) + len(data) > self._max_bytes:
            return
        self._held[key] = (self._clock() + self._ttl_s, data)
        self.size += len(key) + len(data)
        while self.size > self._max_bytes:
            self._drop(next(iter(self._held)))

    async def aclose(self) -> None:
        self._held.clear()
        self.size = 0

    def _drop(self, key: bytes) -> None:
        found = self._held.pop(key, None)
        if found is not None:
            self.size -= len(key) + len(found[1])
