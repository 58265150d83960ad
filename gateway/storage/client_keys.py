"""Keys made at run time: what is kept of them never lets anybody in."""

from collections.abc import Callable, Collection, Sequence

from sqlalchemy import ColumnElement, Connection, func, insert, or_, select, update
from sqlalchemy.exc import IntegrityError

from adapters.canonical.errors import Conflict, NotReady
from gateway.storage.database import Database
from gateway.storage.records import KeptKey
from gateway.storage.schema import CLIENT_KEYS

__all__ = ["MAX_KEYS", "ClientKeyStore"]

MAX_KEYS = 100_000


class ClientKeyStore:
    def __init__(self, database: Database) -> None:
        self.database = database

    async def add(self, key: KeptKey) -> None:
        """Raises Conflict for an id that there is, also of a revoked key: usage is told by it."""

        def work(connection: Connection) -> None:
            if connection.execute(select(func.count()).select_from(CLIENT_KEYS)).scalar_one() >= MAX_KEYS:
                raise NotReady(f"there are {MAX_KEYS} keys already", code="storage_full")
            try:
                connection.execute(insert(CLIENT_KEYS), [key._asdict()])
            except IntegrityError:
                raise Conflict(f"there is a key '{key.id}' already", param="id", code="key_exists") from None

        await self.database.write(work)

    async def find(self, key_id: str) -> KeptKey | None:
        return await self._one(CLIENT_KEYS.c.id == key_id)

    async def find_by_hash(self, digest: bytes) -> KeptKey | None:
        """The key with this hash, or with this one before its newest."""
        return await self._one(or_(CLIENT_KEYS.c.hash == digest, CLIENT_KEYS.c.previous_hash == digest))

    async def _one(self, wanted: ColumnElement[bool]) -> KeptKey | None:
        query = select(CLIENT_KEYS).where(wanted)
        row = await self.database.read(lambda connection: connection.execute(query).one_or_none())
        return None if row is None else KeptKey(**row._mapping)

    async def taken(self, ids: Collection[str]) -> Sequence[str]:
        """Those of the ids that a key has, also a revoked one."""
        wanted = select(CLIENT_KEYS.c.id).where(CLIENT_KEYS.c.id.in_(ids)).order_by(CLIENT_KEYS.c.id)
        return await self.database.read(lambda connection: connection.execute(wanted).scalars().all())

    async def list(self, after: str | None, limit: int) -> tuple[Sequence[KeptKey], bool]:
        """By id, revoked ones too, and whether there are more."""
        query = select(CLIENT_KEYS).order_by(CLIENT_KEYS.c.id).limit(limit + 1)
        if after is not None:
            query = query.where(CLIENT_KEYS.c.id > after)
        found = await self.database.read(lambda connection: connection.execute(query).all())
        rows = [KeptKey(**row._mapping) for row in found]
        return rows[:limit], len(rows) > limit

    async def change(self, key_id: str, changed: Callable[[KeptKey], KeptKey]) -> tuple[KeptKey, KeptKey] | None:
        """The key before and after, in one step; None: there is none. Raises what `changed` raises."""
        wanted = CLIENT_KEYS.c.id == key_id

        def work(connection: Connection) -> tuple[KeptKey, KeptKey] | None:
            row = connection.execute(select(CLIENT_KEYS).where(wanted).with_for_update()).one_or_none()
            if row is None:
                return None
            before = KeptKey(**row._mapping)
            after = changed(before)
            connection.execute(update(CLIENT_KEYS).where(wanted).values(after._asdict()))
            return before, after

        return await self.database.write(work)

    async def revoke(self, key_id: str, at: int) -> KeptKey | None:
        """The key as it is now; None: there is none. One that is revoked keeps its time."""
        wanted = CLIENT_KEYS.c.id == key_id

        def work(connection: Connection) -> KeptKey | None:
            connection.execute(update(CLIENT_KEYS).where(wanted, CLIENT_KEYS.c.revoked.is_(None)).values(revoked=at))
            row = connection.execute(select(CLIENT_KEYS).where(wanted)).one_or_none()
            return None if row is None else KeptKey(**row._mapping)

        return await self.database.write(work)
