"""Brings a database up to date."""

import asyncio
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, func, select

from gateway.storage.database import Database
from gateway.storage.place import Place

__all__ = ["migrate", "migrate_database"]

_LOCK = 0x6C6C_6D67
"""A number of our own among the advisory locks of the database."""
_SCRIPTS = Path(__file__).parent / "migrations"


def migrate(place: Place) -> tuple[str | None, str]:
    """The revisions before and after; None: it had no tables. Raises NotReady where it can't be reached."""
    return asyncio.run(migrate_database(place))


async def migrate_database(place: Place) -> tuple[str | None, str]:
    """The same inside a running loop."""
    database = Database(place)
    try:
        return await database.write(_upgrade, gives_up=False)
    finally:
        await database.aclose()


def _upgrade(connection: Connection) -> tuple[str | None, str]:
    if connection.dialect.name == "postgresql":  # replicas that start together take turns; SQLite has one writer anyway
        connection.execute(select(func.pg_advisory_xact_lock(_LOCK)))
    before = MigrationContext.configure(connection).get_current_revision()
    config = Config()
    config.set_main_option("script_location", str(_SCRIPTS).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
    after = MigrationContext.configure(connection).get_current_revision()
    assert after is not None
    return before, after
