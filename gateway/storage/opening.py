"""Opens a database and makes its stores. The one module that imports the database's code for all of them."""

from collections.abc import Callable
from dataclasses import dataclass

from gateway.storage.bounds import Bounds
from gateway.storage.chats import ChatStore
from gateway.storage.client_keys import ClientKeyStore
from gateway.storage.conversations import ConversationStore
from gateway.storage.database import Database
from gateway.storage.place import Place
from gateway.storage.responses import ResponseStore
from gateway.storage.retention import Retention
from gateway.storage.usage import UsageStore

__all__ = ["Stores", "open_stores"]


@dataclass(frozen=True, slots=True)
class Stores:
    """Of one open database. Close it with `aclose`."""

    responses: ResponseStore
    conversations: ConversationStore
    chats: ChatStore
    usage: UsageStore
    client_keys: ClientKeyStore
    retention: Retention
    database: Database

    async def aclose(self) -> None:
        await self.database.aclose()


async def open_stores(
    place: Place, bounds: Bounds, now: Callable[[], float], *, report: Callable[[str], None] = lambda reason: None
) -> Stores:
    """`now` gives Unix seconds, `report` hears why the database fails, whenever it does.

    Raises SchemaMismatch, or NotReady where it can't be reached.
    """
    database = await Database.open(place, report)
    retention = Retention(database, bounds, now)
    try:
        await retention.load()
    except BaseException:
        await database.aclose()
        raise
    return Stores(
        ResponseStore(database, retention),
        ConversationStore(database, retention),
        ChatStore(database, retention),
        UsageStore(database, now),
        ClientKeyStore(database),
        retention,
        database,
    )
