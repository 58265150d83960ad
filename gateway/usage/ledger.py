"""Rows of usage on their way to the database: gathered here and written together, off the requests' way."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from adapters.canonical.errors import NotReady
from gateway.usage.row import UsageRow
from gateway.waiting import set_within

__all__ = ["MAX_PENDING", "Ledger", "UsageSink"]

MAX_PENDING = 20_000
"""Rows that wait for the database; more are counted, told in the log and left out."""
_EVERY_S = 1.0
_GROUP = 2000


class UsageSink(Protocol):
    """Where rows go, whole groups or none. Raises NotReady where it fails."""

    async def __call__(self, rows: Sequence[UsageRow]) -> None: ...


class Ledger:
    """`log` takes an event and its fields. Close it with `aclose`, which writes what waits."""

    def __init__(self, sink: UsageSink, log: Callable[[str, dict[str, object]], None]) -> None:
        self._sink = sink
        self._log = log
        self._pending: list[UsageRow] = []
        self._lost = 0
        self._writing: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()
        self._flushing = asyncio.Lock()

    def add(self, row: UsageRow) -> None:
        """Takes no time. The row is written within a second or two."""
        if len(self._pending) >= MAX_PENDING:
            self._lost += 1
            return
        self._pending.append(row)
        if self._writing is None:
            self._writing = asyncio.get_running_loop().create_task(self._write())

    async def flush(self) -> None:
        """Writes what waits now, and not what comes meanwhile: under load that would be a transaction for every few.

        Goes on to its end when the waiting task is cancelled, or rows that are written would still wait. Raises
        NotReady where the database fails; what waits then waits on.
        """
        await asyncio.shield(self._flush())

    async def _flush(self) -> None:
        async with self._flushing:
            left = len(self._pending)
            while left:
                group = self._pending[: min(left, _GROUP)]
                await self._sink(group)
                del self._pending[: len(group)]
                left -= len(group)
        if self._lost:
            lost, self._lost = self._lost, 0
            self._log("usage_rows_lost", {"count": lost})

    async def aclose(self) -> None:
        self._closing.set()
        if self._writing is not None:
            await self._writing

    async def _write(self) -> None:
        """Until nothing waits. One task at a time."""
        while self._pending:
            await set_within(self._closing, _EVERY_S)
            try:
                await self.flush()
            except NotReady as error:
                self._log("usage_not_written", {"error": error.code or error.type, "waiting": len(self._pending)})
                if self._closing.is_set():
                    break
        self._writing = None
