"""What requests used, and keys made at run time."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_COUNT = sa.BigInteger


def upgrade() -> None:
    op.create_table(
        "usage_groups",
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
        sa.Column("first", sa.Float(53), nullable=False),
        sa.Column("last", sa.Float(53), nullable=False),
        sa.Column("count", sa.Integer, nullable=False),
        sa.Column("rows", sa.LargeBinary, nullable=False),
    )
    op.create_index("usage_groups_last", "usage_groups", ["last"])
    op.create_table(
        "usage_hours",
        sa.Column("hour", sa.BigInteger, primary_key=True),
        sa.Column("key", sa.String, primary_key=True),
        sa.Column("model", sa.String, primary_key=True),
        sa.Column("provider", sa.String, primary_key=True),
        sa.Column("upstream_model", sa.String, primary_key=True),
        sa.Column("is_shadow", sa.Boolean, primary_key=True),
        sa.Column("attempts", _COUNT, nullable=False),
        sa.Column("failed", _COUNT, nullable=False),
        sa.Column("estimated", _COUNT, nullable=False),
        sa.Column("prompt_tokens", _COUNT, nullable=False),
        sa.Column("completion_tokens", _COUNT, nullable=False),
        sa.Column("cached_tokens", _COUNT, nullable=False),
        sa.Column("cache_write_tokens", _COUNT, nullable=False),
        sa.Column("reasoning_tokens", _COUNT, nullable=False),
        sa.Column("cost_nano_usd", _COUNT, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "client_keys",
        sa.Column("id", sa.String(128), primary_key=True),
        sa.Column("hash", sa.LargeBinary, nullable=False),
        sa.Column("created", sa.BigInteger, nullable=False),
        sa.Column("expires", sa.BigInteger),
        sa.Column("revoked", sa.BigInteger),
        sa.Column("rules", sa.LargeBinary, nullable=False),
    )
    op.create_index("client_keys_hash", "client_keys", ["hash"], unique=True)


def downgrade() -> None:
    for table in ("client_keys", "usage_hours", "usage_groups"):
        op.drop_table(table)
