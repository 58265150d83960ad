"""The PostgreSQL that tests keep things in, where there is one; `.ci/run` starts it and demands it.

Processes of one run have a database each, which they make beside the one that is named.
"""

import os
from functools import cache

import pytest
from sqlalchemy import Connection, create_engine, make_url, text

from gateway.storage.database import Database
from gateway.storage.migrate import migrate_database
from gateway.storage.place import Place, ServerPlace, parse_place
from gateway.storage.schema import METADATA

__all__ = ["empty_postgresql"]

_URL = os.environ.get("GATEWAY_TEST_POSTGRESQL")


async def empty_postgresql() -> Place:
    """The database, brought up to date and with nothing in it. Skips the test where there is none."""
    if _URL is None:
        assert os.environ.get("GATEWAY_TEST_SERVERS") != "required", "there is no PostgreSQL"
        pytest.skip("GATEWAY_TEST_POSTGRESQL names no database")
    place = _own(_URL)
    await migrate_database(place)
    database = Database(place)
    await database.write(_empty)
    await database.aclose()
    return place


@cache
def _own(url: str) -> Place:
    place = parse_place(url)
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker is None or not isinstance(place, ServerPlace):
        return place
    own = make_url(place.url).set(database=f"gateway_test_{worker}")
    engine = create_engine(place.url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f"drop database if exists {own.database}"))
        connection.execute(text(f"create database {own.database}"))
    engine.dispose()
    return ServerPlace(own.render_as_string(hide_password=False))


def _empty(connection: Connection) -> None:
    for table in reversed(METADATA.sorted_tables):
        connection.execute(table.delete())
