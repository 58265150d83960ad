"""A provider's model list, kept for a minute. Several callers at once make one call."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

from providers.base import ModelEntry

__all__ = ["KeptModels"]

_KEPT_S = 60.0


class KeptModels:
    """`fetch` gets the list anew; what it raises is raised, and nothing is kept."""

    def __init__(self, fetch: Callable[[], Awaitable[Sequence[ModelEntry]]]) -> None:
        self._fetch = fetch
        self._models: Sequence[ModelEntry] = ()
        self._until = 0.0
        self._lock = asyncio.Lock()

    async def renew(self) -> None:
        """Fetches the list whether or not there is one."""
        async with self._lock:
            await self._fetch_now()

    async def get(self) -> Sequence[ModelEntry]:
        async with self._lock:
            if time.monotonic() >= self._until:
                await self._fetch_now()
            return self._models

    async def _fetch_now(self) -> None:
        self._models = await self._fetch()
        self._until = time.monotonic() + _KEPT_S
