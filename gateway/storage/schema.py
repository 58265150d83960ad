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
    text,
)

from gateway.usage.row import USAGE_SUMS

__all__ = [
    "CHATS",
    "CHAT_MESSAGES",
    "CHAT_METADATA",
    "CLIENT_KEYS",
    "CONVERSATIONS",
    "ENTRIES",
    "EVENTS",
    "ITEMS",
    "METADATA",
    "RESPONSES",
    "USAGE_GROUPS",
    "USAGE_HOURS",
]

METADATA = MetaData()
_ID = String()
_OWNER = String()
_POSITION = Integer()


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
        Index(f"{name}_used", "used", "bytes"),  # what everything takes is summed up in it
    )


def _of(parent: str) -> Column[object]:
    return Column(parent, _ID, ForeignKey(f"{parent}s.id", ondelete="CASCADE"), primary_key=True)


def _rows(name: str, parent: str, *columns: Column[object] | Index, position: Integer = _POSITION) -> Table:
    """A table of the items of such an object, in order."""
    return Table(
        name,
        METADATA,
        _of(parent),
        Column("position", position, primary_key=True),
        Column("item", _ID, nullable=False),
        *columns,
        Column("raw", LargeBinary, nullable=False),
        sqlite_with_rowid=False,
    )


RESPONSES = _kept(
    "responses",
    Column("status", String(), nullable=False),
    Column("background", Boolean, nullable=False),
    Column("parent", _ID),
    Column("conversation", _ID),
    Column("worker", String()),
    Column("lease_until", Float),
    Column("body", LargeBinary, nullable=False),
    Index(
        "responses_running",
        "worker",
        sqlite_where=text("lease_until is not null"),
        postgresql_where=text("lease_until is not null"),
    ),
)
"""`worker` and `lease_until`: who makes it, and until when it is believed to live; null once it is final."""

ITEMS = _rows("items", "response", Column("made", Boolean, nullable=False), Index("items_item", "item"))
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

ENTRIES = _rows("conversation_items", "conversation", Index("conversation_items_item", "item"), position=BigInteger())

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

CHAT_MESSAGES = _rows("chat_messages", "chat")

USAGE_GROUPS = Table(
    "usage_groups",
    METADATA,
    Column("number", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("first", Float(53), nullable=False),
    Column("last", Float(53), nullable=False),
    Column("count", Integer, nullable=False),
    Column("rows", LargeBinary, nullable=False),
    Index("usage_groups_last", "last"),
)
"""The attempts of late, as they were written: `rows` is a JSON list of lists (`gateway.usage.row`), `first` and `last`
are the times of its ends in Unix seconds. A row of its own for each would cost the requests eight times as much."""

USAGE_HOURS = Table(
    "usage_hours",
    METADATA,
    Column("hour", BigInteger, primary_key=True, autoincrement=False),
    Column("key", String(), primary_key=True),
    Column("model", String(), primary_key=True),
    Column("provider", String(), primary_key=True),
    Column("upstream_model", String(), primary_key=True),
    Column("is_shadow", Boolean, primary_key=True, autoincrement=False),
    Column("team", String(), primary_key=True),
    Column("end_user", String(), primary_key=True),
    *[Column(name, BigInteger, nullable=False) for name in USAGE_SUMS],
    Index(
        "usage_hours_end_user",
        "end_user",
        "hour",
        sqlite_where=text("end_user <> ''"),
        postgresql_where=text("end_user <> ''"),
    ),
    sqlite_with_rowid=False,
)
"""Sums of all attempts, written with their rows; `hour` is its beginning in Unix seconds. What is missing is 0."""

CLIENT_KEYS = Table(
    "client_keys",
    METADATA,
    Column("id", String(128), primary_key=True),
    Column("hash", LargeBinary, nullable=False),
    Column("created", BigInteger, nullable=False),
    Column("expires", BigInteger),
    Column("revoked", BigInteger),
    Column("rules", LargeBinary, nullable=False),
    Column("previous_hash", LargeBinary),
    Column("previous_until", BigInteger),
    Index("client_keys_hash", "hash", unique=True),
    Index("client_keys_previous_hash", "previous_hash", unique=True),
)
"""Keys made at run time. `rules` is JSON (`gateway.keys.stored`); times are Unix seconds."""
