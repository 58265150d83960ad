"""Conversations and their items."""

from collections.abc import Sequence
from dataclasses import asdict, fields

from sqlalchemy import Connection, delete, func, insert, select, update

from gateway.storage.database import Database
from gateway.storage.records import KeptConversation, KeptItem, Page, PageOf
from gateway.storage.retention import Retention
from gateway.storage.rows import add_items, owned, page_of_items, size_of
from gateway.storage.schema import CONVERSATIONS, ENTRIES

__all__ = ["ConversationStore", "append_entries"]

_COLUMNS = tuple([CONVERSATIONS.c[field.name] for field in fields(KeptConversation)])


class ConversationStore:
    def __init__(self, database: Database, retention: Retention) -> None:
        self.database = database
        self._retention = retention

    async def add(self, conversation: KeptConversation, items: Sequence[KeptItem]) -> None:
        size = len(conversation.metadata) + size_of(items)
        row = {**asdict(conversation), "used": self._retention.stamp(), "bytes": size}

        def work(connection: Connection) -> tuple[None, int]:
            change = self._retention.make_room(connection, size, for_id=conversation.id)
            connection.execute(insert(CONVERSATIONS), [row])
            add_items(connection, ENTRIES, items, first=0, conversation=conversation.id)
            return None, change

        await self._retention.write(work)

    async def find(self, owner: str, conversation_id: str) -> KeptConversation | None:
        wanted = select(*_COLUMNS).where(owned(CONVERSATIONS, owner, conversation_id))
        row = await self.database.read(lambda connection: connection.execute(wanted).one_or_none())
        return None if row is None else KeptConversation(**row._mapping)

    async def set_metadata(self, owner: str, conversation_id: str, metadata: bytes) -> None:
        """Of one that is there."""
        own = owned(CONVERSATIONS, owner, conversation_id)
        stamp = self._retention.stamp()

        def work(connection: Connection) -> tuple[None, int]:
            length = connection.execute(select(func.length(CONVERSATIONS.c.metadata)).where(own)).scalar_one()
            grown = len(metadata) - int(length)
            values = {"metadata": metadata, "bytes": CONVERSATIONS.c.bytes + grown, "used": stamp}
            connection.execute(update(CONVERSATIONS).where(own).values(**values))
            return None, grown

        await self._retention.write(work)

    async def delete(self, owner: str, conversation_id: str) -> bool:
        """Whether there was one."""
        return await self._retention.drop(CONVERSATIONS, owned(CONVERSATIONS, owner, conversation_id))

    async def append(self, conversation_id: str, items: Sequence[KeptItem]) -> None:
        size, stamp = size_of(items), self._retention.stamp()

        def work(connection: Connection) -> tuple[None, int]:
            change = self._retention.make_room(connection, size, for_id=conversation_id)
            return None, change - size + append_entries(connection, conversation_id, items, stamp)

        await self._retention.write(work)

    async def items(self, conversation_id: str, page: Page) -> PageOf:
        """Raises InvalidRequest for a cursor that is not there."""
        wanted = ENTRIES.c.conversation == conversation_id
        return await self.database.read(lambda connection: page_of_items(connection, ENTRIES, wanted, page))

    async def all_items(self, conversation_id: str) -> list[KeptItem]:
        """In order."""
        wanted = select(ENTRIES.c.item, ENTRIES.c.raw).where(ENTRIES.c.conversation == conversation_id)
        query = wanted.order_by(ENTRIES.c.position)
        return await self.database.read(lambda connection: [KeptItem(*row) for row in connection.execute(query)])

    async def find_item(self, conversation_id: str, item_id: str) -> bytes | None:
        wanted = select(ENTRIES.c.raw).where(ENTRIES.c.conversation == conversation_id, ENTRIES.c.item == item_id)
        query = wanted.limit(1)
        return await self.database.read(lambda connection: connection.execute(query).scalar_one_or_none())

    async def delete_item(self, conversation_id: str, item_id: str) -> bool:
        """Whether there was one."""
        own = (ENTRIES.c.conversation == conversation_id) & (ENTRIES.c.item == item_id)
        wanted = delete(ENTRIES).where(own).returning(ENTRIES.c.raw)
        shrunk = update(CONVERSATIONS).where(CONVERSATIONS.c.id == conversation_id)

        def work(connection: Connection) -> tuple[bool, int]:
            size = size_of([KeptItem(item_id, raw) for raw in connection.execute(wanted).scalars()])
            if size:
                connection.execute(shrunk.values(bytes=CONVERSATIONS.c.bytes - size))
            return size > 0, -size

        return await self._retention.write(work)


def append_entries(connection: Connection, conversation_id: str, items: Sequence[KeptItem], stamp: int) -> int:
    """Puts items at a conversation's end; what it grew by. A conversation that was deleted meanwhile stays deleted."""
    size = size_of(items)
    values = {"bytes": CONVERSATIONS.c.bytes + size, "used": stamp}
    locked = update(CONVERSATIONS).where(CONVERSATIONS.c.id == conversation_id).values(**values)
    if connection.execute(locked.returning(CONVERSATIONS.c.id)).one_or_none() is None:
        return 0
    last = select(func.coalesce(func.max(ENTRIES.c.position), -1)).where(ENTRIES.c.conversation == conversation_id)
    first = connection.execute(last).scalar_one() + 1
    add_items(connection, ENTRIES, items, first=first, conversation=conversation_id)
    return size
