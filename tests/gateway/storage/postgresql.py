"""The PostgreSQL that tests keep things in, where there is one; `.ci/run` starts it and demands it."""

import os

import pytest
from sqlalchemy import Connection

from gateway.storage.database import Database
from gateway.storage.migrate import migrate_database
from gateway.storage.place import Place, parse_place
from gateway.storage.schema import METADATA

__all__ = ["empty_postgresql"]

_URL = os.environ.get("GATEWAY_TEST_POSTGRESQL")


async def empty_postgresql() -> Place:
    """The database, brought up to date and with nothing in it. Skips the test where there is none."""
    if _URL is None:
        assert os.environ.get("GATEWAY_TEST_SERVERS") != "required", "there is no PostgreSQL"
        pytest.skip("GATEWAY_TEST_POSTGRESQL names no database")
    place = parse_place(_URL)
    await migrate_database(place)
    database = Database(place)
    await database.write(_empty)
    await database.aclose()
    return place


def _empty(connection: Connection) -> None:
    for table in reversed(METADATA.sorted_tables):
        connection.execute(table.delete())
