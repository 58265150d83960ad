"""What the gateway keeps, opened when it is first needed: until then nothing of the database's code is imported.

stores = await storage.stores()
await stores.responses.find(owner, response_id)
"""

import asyncio
import importlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from adapters.canonical.errors import NotReady
from gateway.failures import shutting_down
from gateway.storage.bounds import Bounds
from gateway.storage.place import FilePlace, MemoryPlace, Place, ServerPlace, check_schema_of_file

if TYPE_CHECKING:
    from gateway.storage.opening import Stores

__all__ = ["Storage"]

_CLEAN_EVERY_S = 60.0


class Storage:
    """`now` gives Unix seconds. Close it with `aclose`.

    `when_open` is called with the open database before anybody else gets it; `report` hears why the database fails.
    """

    def __init__(
        self,
        place: Place,
        bounds: Bounds,
        now: Callable[[], float],
        *,
        when_open: "Callable[[Stores], Awaitable[None]]",
        report: Callable[[str], None],
    ) -> None:
        self.place = place
        self._bounds = bounds
        self._now = now
        self._when_open = when_open
        self._report = report
        self._opening = asyncio.Lock()
        self._stores: Stores | None = None
        self._tasks: list[asyncio.Task[object]] = []
        self._closed = False

    def check(self) -> None:
        """Raises SchemaMismatch where the file that is there can't be used."""
        if isinstance(self.place, FilePlace):
            check_schema_of_file(self.place.path)

    @property
    def holds_nothing(self) -> bool:
        """Whether nothing was ever kept here, so that there is nothing to look for."""
        if self._stores is not None or isinstance(self.place, ServerPlace):
            return False
        return isinstance(self.place, MemoryPlace) or not self.place.path.exists()

    async def stores(self) -> "Stores":
        """Raises NotReady where the database can't be reached, and SchemaMismatch where it is of another version."""
        if self._stores is not None:
            return self._stores
        async with self._opening:
            if self._closed:
                raise shutting_down()
            if self._stores is None:
                self._stores = await self._open()
        return self._stores

    async def aclose(self) -> None:
        self._closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        async with self._opening:
            stores, self._stores = self._stores, None
            if stores is not None:
                await stores.aclose()

    async def _open(self) -> "Stores":
        # The first import takes a third of a second, in which the loop has other things to do.
        await asyncio.to_thread(importlib.import_module, "gateway.storage.opening")
        from gateway.storage.opening import open_stores

        stores = await open_stores(self.place, self._bounds, self._now, report=self._report)
        try:
            await self._when_open(stores)
        except BaseException:
            await stores.aclose()
            raise
        self._tasks.append(asyncio.get_running_loop().create_task(_clean(stores)))
        return stores


async def _clean(stores: "Stores") -> None:
    """Drops what is old, in small steps, until it is cancelled."""
    while True:
        try:
            more = True
            while more:
                more = await stores.retention.expire()
            await stores.retention.load()
        except NotReady:
            pass  # whoever needs the database now is told; the next round tries again
        await asyncio.sleep(_CLEAN_EVERY_S)
