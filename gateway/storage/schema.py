"""The tables. A change here needs a migration beside it (`gateway.storage.migrations`) and a new NEWEST_SCHEMA.

Every object belongs to an owner: the id of the client's key, "" where there are no keys. Times are Unix seconds, `used`
is when the object was last needed (it decides what is dropped first), `bytes` is what it takes with all its rows.
Bodies, items and events are JSON as bytes, never decoded here.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
)

__all__ = [
    "CHATS",
    "CHAT_MESSAGES",
    "CHAT_METADATA",
    "CONVERSATIONS",
    "ENTRIES",
    "EVENTS",
    "ITEMS",
    "METADATA",
    "RESPONSES",
]

METADATA = MetaData()
_ID = String()
_OWNER = String()


def _kept(name: str, *columns: Column[object] | Index) -> Table:
    """A table of objects that clients know by id."""
    return Table(
        name,
        METADATA,
        Column("id", _ID, primary_key=True),
        Column("owner", _OWNER, nullable=False),
        Column("created", BigInteger, nullable=False),
        Column("used", BigInteger, nullable=False),
        Column("bytes", BigInteger, nullable=False),
        *columns,
        Index(f"{name}_used", "used"),
    )


def _of(parent: str) -> Column[object]:
    return Column(parent, _ID, ForeignKey(f"{parent}s.id", ondelete="CASCADE"), primary_key=True)


RESPONSES = _kept(
    "responses",
    Column("status", String(), nullable=False),
    Column("background", Boolean, nullable=False),
    Column("parent", _ID),
    Column("conversation", _ID),
    Column("worker", String()),
    Column("lease_until", Float),
    Column("body", LargeBinary, nullable=False),
    Index("responses_running", "lease_until"),
)
"""`worker` and `lease_until`: who makes it, and until when it is believed to live; null once it is final."""

ITEMS = Table(
    "items",
    METADATA,
    _of("response"),
    Column("position", Integer, primary_key=True),
    Column("item", _ID, nullable=False),
    Column("made", Boolean, nullable=False),
    Column("raw", LargeBinary, nullable=False),
    Index("items_item", "item"),
    sqlite_with_rowid=False,
)
"""What a response was given and what it made (`made`), in order."""

EVENTS = Table(
    "events",
    METADATA,
    _of("response"),
    Column("number", Integer, primary_key=True),
    Column("name", String(), nullable=False),
    Column("data", LargeBinary, nullable=False),
    sqlite_with_rowid=False,
)

CONVERSATIONS = _kept("conversations", Column("metadata", LargeBinary, nullable=False))

ENTRIES = Table(
    "conversation_items",
    METADATA,
    _of("conversation"),
    Column("position", BigInteger, primary_key=True),
    Column("item", _ID, nullable=False),
    Column("raw", LargeBinary, nullable=False),
    Index("conversation_items_item", "item"),
    sqlite_with_rowid=False,
)

CHATS = _kept(
    "chats",
    Column("model", String(), nullable=False),
    Column("body", LargeBinary, nullable=False),
    Index("chats_listed", "owner", "created", "id"),
)

CHAT_METADATA = Table(
    "chat_metadata",
    METADATA,
    _of("chat"),
    Column("name", String(), primary_key=True),
    Column("value", String(), nullable=False),
    Index("chat_metadata_value", "name", "value"),
)

CHAT_MESSAGES = Table(
    "chat_messages",
    METADATA,
    _of("chat"),
    Column("position", Integer, primary_key=True),
    Column("item", _ID, nullable=False),
    Column("raw", LargeBinary, nullable=False),
    sqlite_with_rowid=False,
)
