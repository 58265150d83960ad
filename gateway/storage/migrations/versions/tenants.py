"""The team of the client and its end user, beside its key, in the sums of what was used."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_PLACES = ("hour", "key", "model", "provider", "upstream_model", "is_shadow")
_SUMS = (
    "attempts", "failed", "estimated", "prompt_tokens", "completion_tokens", "cached_tokens", "cache_write_tokens",
    "reasoning_tokens", "cost_nano_usd",
)  # fmt: skip


def upgrade() -> None:
    _replace(((*_PLACES, "team", "end_user"), (*_PLACES, "''", "''")), "")
    is_told = sa.text("end_user <> ''")
    columns = ["end_user", "hour"]
    op.create_index("usage_hours_end_user", "usage_hours", columns, sqlite_where=is_told, postgresql_where=is_told)


def downgrade() -> None:
    _replace((_PLACES, _PLACES), f" GROUP BY {', '.join(_PLACES)}")


def _replace(places: tuple[tuple[str, ...], tuple[str, ...]], group: str) -> None:
    """Another table in its place, since SQLite can't change what a row is found by. `places` are the columns of the new
    table and what the old one has for them."""
    new, old = places
    op.create_table(
        "usage_hours_next",
        *[sa.Column(name, _TYPES.get(name, sa.String), primary_key=True, autoincrement=False) for name in new],
        *[sa.Column(name, sa.BigInteger, nullable=False) for name in _SUMS],
        sqlite_with_rowid=False,
    )
    sums = [f"sum({name})" for name in _SUMS] if group else _SUMS
    columns = ", ".join((*new, *_SUMS))
    op.execute(f"INSERT INTO usage_hours_next ({columns}) SELECT {', '.join((*old, *sums))} FROM usage_hours{group}")
    op.drop_table("usage_hours")
    op.rename_table("usage_hours_next", "usage_hours")


_TYPES = {"hour": sa.BigInteger, "is_shadow": sa.Boolean}
