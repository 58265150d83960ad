"""The first tables."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_ID = sa.String()
_BYTES = sa.LargeBinary


def upgrade() -> None:
    _kept(
        "responses",
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("background", sa.Boolean, nullable=False),
        sa.Column("parent", _ID),
        sa.Column("conversation", _ID),
        sa.Column("worker", sa.String()),
        sa.Column("lease_until", sa.Float),
        sa.Column("body", _BYTES, nullable=False),
    )
    running = sa.text("lease_until is not null")
    op.create_index("responses_running", "responses", ["worker"], sqlite_where=running, postgresql_where=running)
    _rows("items", "response", sa.Column("item", _ID, nullable=False), sa.Column("made", sa.Boolean, nullable=False))
    op.create_index("items_item", "items", ["item"])
    op.create_table(
        "events",
        _of("response"),
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("data", _BYTES, nullable=False),
        sqlite_with_rowid=False,
    )
    _kept("conversations", sa.Column("metadata", _BYTES, nullable=False))
    _rows("conversation_items", "conversation", sa.Column("item", _ID, nullable=False), position=sa.BigInteger)
    op.create_index("conversation_items_item", "conversation_items", ["item"])
    _kept("chats", sa.Column("model", sa.String(), nullable=False), sa.Column("body", _BYTES, nullable=False))
    op.create_index("chats_listed", "chats", ["owner", "created", "id"])
    op.create_table(
        "chat_metadata",
        _of("chat"),
        sa.Column("name", sa.String(), primary_key=True),
        sa.Column("value", sa.String(), nullable=False),
    )
    op.create_index("chat_metadata_value", "chat_metadata", ["name", "value"])
    _rows("chat_messages", "chat", sa.Column("item", _ID, nullable=False))


def downgrade() -> None:
    for table in (
        "chat_messages",
        "chat_metadata",
        "chats",
        "conversation_items",
        "conversations",
        "events",
        "items",
        "responses",
    ):
        op.drop_table(table)


def _kept(name: str, *columns: "sa.Column[object]") -> None:
    op.create_table(
        name,
        sa.Column("id", _ID, primary_key=True),
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("created", sa.BigInteger, nullable=False),
        sa.Column("used", sa.BigInteger, nullable=False),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        *columns,
    )
    op.create_index(f"{name}_used", name, ["used", "bytes"])


def _of(parent: str) -> "sa.Column[str]":
    return sa.Column(parent, _ID, sa.ForeignKey(f"{parent}s.id", ondelete="CASCADE"), primary_key=True)


def _rows(name: str, parent: str, *columns: "sa.Column[object]", position: "type[sa.Integer]" = sa.Integer) -> None:
    op.create_table(
        name,
        _of(parent),
        sa.Column("position", position, primary_key=True),
        *columns,
        sa.Column("raw", _BYTES, nullable=False),
        sqlite_with_rowid=False,
    )
