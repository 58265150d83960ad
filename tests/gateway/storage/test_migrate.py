"""A migrated database is the one that this version makes at once; an old one is refused with the command to run."""

import asyncio
import sqlite3
import sys
from contextlib import aclosing, closing
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, create_engine, make_url, text

from gateway.storage import migrate as migrating
from gateway.storage.bounds import Bounds
from gateway.storage.database import Database
from gateway.storage.migrate import migrate, migrate_database
from gateway.storage.opening import open_stores
from gateway.storage.place import NEWEST_SCHEMA, FilePlace, Place, SchemaMismatch, ServerPlace, check_schema_of_file
from gateway.storage.schema import METADATA
from tests.gateway.storage.postgresql import empty_postgresql

BOUNDS = Bounds(1e9, 1 << 30)


def tables(path: Path) -> dict[str, str]:
    """The statement that makes each table and index, without the blanks."""
    with closing(sqlite3.connect(path)) as database:
        rows = database.execute("select name, sql from sqlite_master where sql is not null")
        return {name: "".join(sql.split()) for name, sql in rows if name != "alembic_version"}


def set_revision(path: Path, revision: str) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute("update alembic_version set version_num = ?", (revision,))
        database.commit()


async def opened(path: Path) -> None:
    async with aclosing(await open_stores(FilePlace(path), BOUNDS, lambda: 1.0)):
        pass


async def test_a_fresh_file_and_a_migrated_one_have_the_same_tables(tmp_path: Path) -> None:
    fresh, migrated = tmp_path / "fresh.db", tmp_path / "migrated.db"
    await opened(fresh)
    assert await migrate_database(FilePlace(migrated)) == (None, NEWEST_SCHEMA)
    await opened(migrated)
    assert set(tables(fresh)) == set(tables(migrated))
    engine = create_engine(f"sqlite:///{migrated}")
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), METADATA) == []
    engine.dispose()


def test_the_newest_migration_is_the_one_that_this_version_wants() -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(migrating.__file__).parent / "migrations"))
    assert ScriptDirectory.from_config(config).get_current_head() == NEWEST_SCHEMA


async def kept_place(kind: str, folder: Path) -> Place:
    """A database without tables."""
    if kind == "sqlite":
        return FilePlace(folder / "gateway.db")
    place = await empty_postgresql()
    database = Database(place)
    await database.write(_drop_all)
    await database.aclose()
    return place


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
async def test_what_was_used_before_there_were_teams_is_kept_on_the_way_up_and_down(kind: str, tmp_path: Path) -> None:
    place = await kept_place(kind, tmp_path)
    names = "hour, key, model, provider, upstream_model, is_shadow"
    sums = "attempts, failed, estimated, prompt_tokens, completion_tokens, cached_tokens, cache_write_tokens, "
    sums += "reasoning_tokens, cost_nano_usd"

    def moved(connection: Connection) -> list[int]:
        config = Config()
        config.set_main_option("script_location", str(Path(migrating.__file__).parent / "migrations"))
        config.attributes["connection"] = connection
        command.upgrade(config, "0003")
        row = "3600, 'a', 'm', 'p', 'm', false, 1, 0, 0, 5, 6, 0, 0, 0, 7"
        connection.execute(text(f"INSERT INTO usage_hours ({names}, {sums}) VALUES ({row})"))
        command.upgrade(config, "0004")
        row = "3600, 'a', 'm', 'p', 'm', false, 't', 'u', 1, 0, 0, 5, 6, 0, 0, 0, 8"
        connection.execute(text(f"INSERT INTO usage_hours ({names}, team, end_user, {sums}) VALUES ({row})"))
        query = "SELECT cost_nano_usd FROM usage_hours ORDER BY team"
        found = [int(cost) for (cost,) in connection.execute(text(query))]
        command.downgrade(config, "0003")
        return [*found, *connection.execute(text("SELECT cost_nano_usd FROM usage_hours")).scalars()]

    database = Database(place)
    assert await database.write(moved) == [7, 8, 15]
    await database.aclose()
    assert await migrate_database(place) == ("0003", NEWEST_SCHEMA)


def test_a_database_that_is_up_to_date_stays_as_it_is(tmp_path: Path) -> None:
    place = FilePlace(tmp_path / "gateway.db")
    assert migrate(place) == (None, NEWEST_SCHEMA)
    assert migrate(place) == (NEWEST_SCHEMA, NEWEST_SCHEMA)


@pytest.mark.parametrize(("revision", "words"), [("0000", "run 'gateway migrate'"), ("9999", "newer version")])
async def test_a_database_of_another_version_is_refused(tmp_path: Path, revision: str, words: str) -> None:
    path = tmp_path / "gateway.db"
    check_schema_of_file(path)  # there is none yet
    await opened(path)
    check_schema_of_file(path)
    set_revision(path, revision)
    with pytest.raises(SchemaMismatch, match=words):
        check_schema_of_file(path)
    with pytest.raises(SchemaMismatch, match=words):
        await opened(path)


def test_the_file_of_another_program_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as database:
        database.execute("create table songs (name text)")
    with pytest.raises(SchemaMismatch, match="another program"):
        check_schema_of_file(path)
    path.write_text("no database at all, but long enough to be looked at as one" * 20)
    with pytest.raises(SchemaMismatch, match="can't be read"):
        check_schema_of_file(path)


async def test_replicas_that_start_together_bring_one_database_up_to_date(tmp_path: Path) -> None:
    place = await empty_postgresql()
    assert isinstance(place, ServerPlace)
    database = Database(place)
    await database.write(_drop_all)
    await database.aclose()
    run = tmp_path / "run.yaml"
    url = place.url.replace("+psycopg", "")
    provider = "{type: openai-compatible, base_url: 'http://127.0.0.1:9/v1'}"
    run.write_text(f"version: 1\nproviders: {{up: {provider}}}\nstorage: {{url: '{url}'}}\n")
    command = (sys.executable, "-m", "gateway", "migrate", "--config", str(run))
    replicas = [
        await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE)
        for _ in range(3)
    ]
    told = [await replica.communicate() for replica in replicas]
    assert [replica.returncode for replica in replicas] == [0, 0, 0], told
    assert sum(b"it was empty" in said for said, _ in told) == 1


async def test_a_database_of_no_encoding_serves_as_well() -> None:
    beside = await empty_postgresql()
    assert isinstance(beside, ServerPlace)
    url = make_url(beside.url).set(database="gateway_test_ascii").render_as_string(hide_password=False)
    engine = create_engine(beside.url, isolation_level="AUTOCOMMIT")
    with closing(engine.connect()) as connection:
        connection.execute(text("drop database if exists gateway_test_ascii"))
        connection.execute(
            text("create database gateway_test_ascii encoding 'SQL_ASCII' locale 'C' template template0")
        )
        try:
            assert await migrate_database(ServerPlace(url)) == (None, NEWEST_SCHEMA)
        finally:
            connection.execute(text("drop database gateway_test_ascii with (force)"))
    engine.dispose()


def _drop_all(connection: Connection) -> None:
    METADATA.drop_all(connection)
    connection.execute(text("drop table alembic_version"))
