"""Chat completions that clients asked to keep (`store: true`), with what was said before them."""

from collections.abc import Mapping, Sequence

from sqlalchemy import ColumnElement, delete, exists, insert, select, tuple_
from sqlalchemy.engine import Connection

from adapters.canonical.errors import InvalidRequest
from gateway.storage.database import Database
from gateway.storage.records import KeptChat, KeptItem, Page, PageOf
from gateway.storage.retention import Retention
from gateway.storage.rows import add_items, owned, page_of_items, size_of
from gateway.storage.schema import CHAT_MESSAGES, CHAT_METADATA, CHATS

__all__ = ["ChatStore"]

_COLUMNS = (CHATS.c.id, CHATS.c.owner, CHATS.c.created, CHATS.c.model, CHATS.c.body)


class ChatStore:
    def __init__(self, database: Database, retention: Retention) -> None:
        self.database = database
        self._retention = retention

    async def add(self, chat: KeptChat, messages: Sequence[KeptItem]) -> None:
        size = len(chat.body) + size_of(messages)
        values = {column.name: getattr(chat, column.name) for column in _COLUMNS}
        row = {**values, "used": self._retention.stamp(), "bytes": size}

        def work(connection: Connection) -> tuple[None, int]:
            change = self._retention.make_room(connection, size, for_id=chat.id)
            connection.execute(insert(CHATS), [row])
            _add_metadata(connection, chat.id, chat.metadata)
            add_items(connection, CHAT_MESSAGES, messages, first=0, chat=chat.id)
            return None, change

        await self._retention.write(work)

    async def find(self, owner: str, chat_id: str) -> KeptChat | None:
        found = await self.database.read(lambda connection: _chats(connection, owned(CHATS, owner, chat_id), limit=1))
        return found[0] if found else None

    async def list(
        self, owner: str, page: Page, *, model: str | None, metadata: Mapping[str, str]
    ) -> tuple[Sequence[KeptChat], bool]:
        """Those of the model (None: of any) that have all this metadata, and whether there are more.

        Raises InvalidRequest for a cursor that is not there.
        """
        wanted = CHATS.c.owner == owner
        if model is not None:
            wanted &= CHATS.c.model == model
        for name, value in metadata.items():
            pair = (CHAT_METADATA.c.chat == CHATS.c.id, CHAT_METADATA.c.name == name, CHAT_METADATA.c.value == value)
            wanted &= exists().where(*pair)
        found = await self.database.read(lambda connection: _page_of_chats(connection, owner, wanted, page))
        return found[: page.limit], len(found) > page.limit

    async def set_metadata(self, chat_id: str, metadata: Mapping[str, str]) -> None:
        def work(connection: Connection) -> None:
            connection.execute(delete(CHAT_METADATA).where(CHAT_METADATA.c.chat == chat_id))
            _add_metadata(connection, chat_id, metadata)

        await self.database.write(work)

    async def delete(self, owner: str, chat_id: str) -> bool:
        """Whether there was one."""
        return await self._retention.drop(CHATS, owned(CHATS, owner, chat_id))

    async def messages(self, chat_id: str, page: Page) -> PageOf:
        """Raises InvalidRequest for a cursor that is not there."""
        wanted = CHAT_MESSAGES.c.chat == chat_id
        return await self.database.read(lambda connection: page_of_items(connection, CHAT_MESSAGES, wanted, page))


def _add_metadata(connection: Connection, chat_id: str, metadata: Mapping[str, str]) -> None:
    if metadata:
        rows = [{"chat": chat_id, "name": name, "value": value} for name, value in metadata.items()]
        connection.execute(insert(CHAT_METADATA), rows)


def _page_of_chats(connection: Connection, owner: str, wanted: ColumnElement[bool], page: Page) -> Sequence[KeptChat]:
    """One more than the page holds, where there are more."""
    if page.after is not None:
        cursor = _chats(connection, owned(CHATS, owner, page.after), limit=1)
        if not cursor:
            raise InvalidRequest.at("after", f"there is no completion '{page.after[:100]}'")
        place, at = tuple_(CHATS.c.created, CHATS.c.id), tuple_(cursor[0].created, cursor[0].id)
        wanted &= place < at if page.descending else place > at
    return _chats(connection, wanted, limit=page.limit + 1, descending=page.descending)


def _chats(
    connection: Connection, wanted: ColumnElement[bool], *, limit: int, descending: bool = True
) -> Sequence[KeptChat]:
    query = select(*_COLUMNS).where(wanted).limit(limit)
    if descending:
        query = query.order_by(CHATS.c.created.desc(), CHATS.c.id.desc())
    else:
        query = query.order_by(CHATS.c.created, CHATS.c.id)
    rows = [dict(row._mapping) for row in connection.execute(query)]
    said: dict[str, dict[str, str]] = {row["id"]: {} for row in rows}
    pairs = select(CHAT_METADATA.c.chat, CHAT_METADATA.c.name, CHAT_METADATA.c.value)
    for chat_id, name, value in connection.execute(pairs.where(CHAT_METADATA.c.chat.in_(list(said)))):
        said[chat_id][name] = value
    return [KeptChat(**row, metadata=said[row["id"]]) for row in rows]
