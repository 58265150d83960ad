"""The secret that a key had before its newest one, which may be good for a while."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("client_keys", sa.Column("previous_hash", sa.LargeBinary))
    op.add_column("client_keys", sa.Column("previous_until", sa.BigInteger))
    op.create_index("client_keys_previous_hash", "client_keys", ["previous_hash"], unique=True)


def downgrade() -> None:
    op.drop_index("client_keys_previous_hash", "client_keys")
    op.drop_column("client_keys", "previous_until")
    op.drop_column("client_keys", "previous_hash")
