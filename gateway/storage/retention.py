"""What is kept stays bounded: by age, and by the bytes of everything together.

Room is made in the transaction that takes it, so the bound always holds; age is looked at in the background. What was
used longest ago goes first. A response that is being made stays.
"""

from collections.abc import Callable, Sequence
from functools import partial
from threading import Lock
from typing import TypeVar

from sqlalchemy import ColumnElement, Connection, Table, delete, func, select

from adapters.canonical.errors import NotReady
from gateway.storage.bounds import Bounds
from gateway.storage.database import Database
from gateway.storage.schema import CHATS, CONVERSATIONS, RESPONSES

__all__ = ["Retention"]

T = TypeVar("T")

_TABLES = (RESPONSES, CONVERSATIONS, CHATS)
_STEP = 64
"""How many objects are dropped in one transaction."""


class Retention:
    """`now` gives Unix seconds. Load it before use."""

    def __init__(self, database: Database, bounds: Bounds, now: Callable[[], float]) -> None:
        self.database = database
        self._bounds = bounds
        self._now = now
        self.bytes = 0
        """What everything takes together, as this process counts it."""
        self._counting = Lock()  # several threads write to a server's database

    def stamp(self) -> int:
        """The time as the tables have it: Unix microseconds, so that what came first is older."""
        return int(self._now() * 1_000_000)

    async def load(self) -> None:
        """Counts anew, since other processes may write as well."""
        sums = [select(func.coalesce(func.sum(table.c.bytes), 0)) for table in _TABLES]
        self.bytes = await self.database.read(
            lambda connection: sum(int(connection.execute(one).scalar_one()) for one in sums)
        )

    async def write(self, work: Callable[[Connection], tuple[T, int]]) -> T:
        """As the database's: `work` gives a result, and what the bytes change by once it is committed."""
        result, _ = await self.database.write(work, self._count)
        return result

    def _count(self, done: tuple[object, int]) -> None:
        with self._counting:
            self.bytes += done[1]

    async def drop(self, table: Table, wanted: ColumnElement[bool]) -> bool:
        """Deletes the one object that is wanted; whether there was one."""
        one = delete(table).where(wanted).returning(table.c.bytes)

        def work(connection: Connection) -> tuple[bool, int]:
            size: int | None = connection.execute(one).scalar_one_or_none()
            return size is not None, -(size or 0)

        return await self.write(work)

    def make_room(self, connection: Connection, added: int, *, for_id: str) -> int:
        """What the bytes change by with the transaction that adds `added` to `for_id`. Raises NotReady where too little
        can go."""
        excess = self.bytes + added - self._bounds.max_bytes
        freed = 0
        while freed < excess:
            oldest = self._oldest(connection, for_id)
            if not oldest:
                raise NotReady("the gateway's database is full", code="storage_full")
            for _, index, object_id, size in oldest:
                if freed < excess:
                    connection.execute(delete(_TABLES[index]).where(_TABLES[index].c.id == object_id))
                    freed += size
        return added - freed

    async def expire(self) -> bool:
        """Drops some of what is too old. Tells whether there may be more."""
        before = self.stamp() - int(self._bounds.ttl_s * 1_000_000)
        more = False
        for table in _TABLES:
            count = await self.write(partial(_drop_before, before, table))
            more = more or count == _STEP
        return more

    @staticmethod
    def _oldest(connection: Connection, but: str) -> Sequence[tuple[int, int, str, int]]:
        found: list[tuple[int, int, str, int]] = []
        for index, table in enumerate(_TABLES):
            wanted = select(table.c.used, table.c.id, table.c.bytes).where(table.c.id != but)
            if table is RESPONSES:
                wanted = wanted.where(RESPONSES.c.lease_until.is_(None))
            rows = connection.execute(wanted.order_by(table.c.used).limit(_STEP))
            found += [(used, index, object_id, size) for used, object_id, size in rows]
        return sorted(found)[:_STEP]


def _drop_before(before: int, table: Table, connection: Connection) -> tuple[int, int]:
    """Drops a step of what was used longest ago, and not since: how many, and what the bytes change by."""
    old = select(table.c.id, table.c.bytes).where(table.c.used < before)
    if table is RESPONSES:
        old = old.where(RESPONSES.c.lease_until.is_(None))
    rows = connection.execute(old.order_by(table.c.used).limit(_STEP)).all()
    if rows:
        connection.execute(delete(table).where(table.c.id.in_([row.id for row in rows])))
    return len(rows), -sum(row.bytes for row in rows)
