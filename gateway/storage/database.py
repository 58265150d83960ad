"""One database behind SQLAlchemy: connections, transactions, and what an error of it means to a client.

Whatever uses a connection is plain code that runs in a thread, a whole read or a whole transaction at a time: through
an asynchronous driver each of its steps would be a way to another thread and back.

SQLite has one writer at a time, so one thread writes, in order, and nothing fails for that. Of several processes on one
file each looks now and then whether it is free, and who writes without a break may keep the others out; so none does.
In memory there is one connection, so that thread reads as well. PostgreSQL sorts this out itself.
"""

import asyncio
import sqlite3
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from importlib.util import find_spec
from typing import Any, TypeVar

from sqlalchemy import URL, Connection, Engine, StaticPool, create_engine, event, inspect, make_url, text
from sqlalchemy.engine.interfaces import DBAPICursor
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.pool import ConnectionPoolEntry

from adapters.canonical.errors import NotReady
from gateway.storage.place import NEWEST_SCHEMA, FilePlace, MemoryPlace, Place, ServerPlace, check_schema
from gateway.storage.schema import METADATA

__all__ = ["Database"]

T = TypeVar("T")

_CONNECTIONS = 8
_BUSY_MS = 10_000
_ANSWER_S = 30.0
_LAST_S = 2.0
_PATIENCE = {"connect_timeout": 5, "tcp_user_timeout": 10_000, "keepalives_idle": 30, "keepalives_interval": 10}
"""With a PostgreSQL that is gone without a word: else the system waits a quarter of an hour (libpq's parameters)."""
_TEXT = {"client_encoding": "utf8"}
"""Else a PostgreSQL database of no encoding (SQL_ASCII) gives bytes."""
_MAX_LOG = 16 << 20
"""The write-ahead log grows while somebody reads what it has still to write back; then it is cut to so many bytes."""
_PRAGMAS = (f"busy_timeout={_BUSY_MS}", "synchronous=NORMAL", "foreign_keys=ON", f"journal_size_limit={_MAX_LOG}")
_LOOK_S = 1.0
_MAX_SHARE = 0.5
"""A process that has written for so much of the last second leaves a gap."""
_GAP_S = 0.11
"""SQLite looks every 0.1 s whether a file is free."""


def _unheard(reason: str) -> None: ...


class Database:
    """Open. Close it with `aclose`. `report` hears why it fails, where it does; clients are not told."""

    def __init__(self, place: Place, report: Callable[[str], None] = _unheard) -> None:
        """Whatever is in it, for what brings it up to date. Raises OSError where its folder can't be made."""
        self._place = place
        self._report = report
        match place:
            case MemoryPlace():
                self._writes = self._reads = _Threads(_writing(_sqlite(URL.create("sqlite"), poolclass=StaticPool)), 1)
            case FilePlace(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                url = URL.create("sqlite", database=str(path))
                self._writes = _Threads(_writing(_sqlite(url, pool_size=1)), 1)
                # A read is one statement or needs no common moment: beginning and ending a transaction would cost as
                # much as the read.
                self._reads = _Threads(
                    _sqlite(
                        url, pool_reset_on_return=None, isolation_level="AUTOCOMMIT", skip_autocommit_rollback=True
                    ),
                    _CONNECTIONS,
                )
            case ServerPlace():
                if find_spec("psycopg") is None:
                    needed = "PostgreSQL needs the extra: pip install 'llm-protocol-gateway[postgres]'"
                    raise ImportError(f"storage: {needed}")
                said = make_url(place.url).query
                patience = {name: value for name, value in _PATIENCE.items() if name not in said}
                engine = create_engine(
                    place.url, pool_size=_CONNECTIONS, max_overflow=0, pool_pre_ping=True, connect_args=_TEXT | patience
                )
                self._writes = self._reads = _Threads(engine, _CONNECTIONS)
        self._pace = _Pace() if isinstance(place, FilePlace) else nullcontext()

    @classmethod
    async def open(cls, place: Place, report: Callable[[str], None] = _unheard) -> "Database":
        """An empty SQLite database gets its tables. Raises SchemaMismatch, or NotReady where it can't be reached."""
        with _told(place, report):
            database = cls(place, report)
        try:
            await database.write(partial(_check, creates=not database.is_shared))
        except BaseException:
            await database.aclose()
            raise
        return database

    @property
    def is_shared(self) -> bool:
        """Whether other machines may use it as well."""
        return isinstance(self._place, ServerPlace)

    async def read(self, work: Callable[[Connection], T]) -> T:
        """What `work` gives, which changes nothing, and whose statements need not see the same moment. It goes on to
        its end when the waiting task is cancelled. Raises NotReady where the database fails, or is silent for long."""
        with _told(self._place, self._report):
            async with asyncio.timeout(_ANSWER_S):
                return await self._reads.run(partial(_read, work=work))

    async def write(
        self, work: Callable[[Connection], T], committed: Callable[[T], None] | None = None, *, gives_up: bool = True
    ) -> T:
        """What `work` gives, in a transaction that is committed at its end; then `committed` is told, in its thread.

        Raises NotReady where the database fails, or is silent for long; where it does not give up, it waits. Done or
        not done then, as where the waiting task is cancelled: one that has begun goes on to its end.
        """
        with _told(self._place, self._report):
            async with asyncio.timeout(_ANSWER_S if gives_up else None):
                return await self._writes.run(partial(self._write, work=work, committed=committed))

    def _write(self, engine: Engine, work: Callable[[Connection], T], committed: Callable[[T], None] | None) -> T:
        with self._pace, engine.begin() as connection:
            done = work(connection)
        if committed is not None:
            committed(done)
        return done

    async def aclose(self) -> None:
        """Waits for what runs, or waits for its turn; where the database is silent that ends behind it."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_LAST_S):
                await self._writes.aclose()
                if self._reads is not self._writes:
                    await self._reads.aclose()


@contextmanager
def _told(place: Place, report: Callable[[str], None]) -> Iterator[None]:
    """Turns an error of the database into the client's, and tells the operator where and why."""
    try:
        yield
    except (SQLAlchemyError, OSError) as error:
        report(_reason(place, error))
        raise NotReady("the gateway's database can't be used now", code="storage_unavailable") from error


def _reason(place: Place, error: SQLAlchemyError | OSError) -> str:
    """The driver's words: SQLAlchemy's own would quote what was to be kept."""
    cause = error.orig if isinstance(error, DBAPIError) else error if isinstance(error, OSError) else None
    why = next(iter(str(cause).splitlines()), "") if cause is not None else ""
    where = f"{place.path}: " if isinstance(place, FilePlace) else ""
    return f"{where}{why or type(error).__name__}"


class _Threads:
    """An engine, and the threads that use its connections, one each."""

    def __init__(self, engine: Engine, count: int) -> None:
        self._engine = engine
        self._threads = ThreadPoolExecutor(count, thread_name_prefix="storage")

    async def run(self, work: Callable[[Engine], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, self._engine)

    async def aclose(self) -> None:
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._threads.shutdown()
        self._engine.dispose()


class _Pace:
    """Around each transaction of one thread: leaves a gap for other processes now and then."""

    def __init__(self) -> None:
        self._since = self._began = 0.0
        self._written_s = 0.0
        """For how long it has written since then."""

    def __enter__(self) -> None:
        passed_s = time.monotonic() - self._since
        if passed_s >= _LOOK_S:
            if self._written_s > _MAX_SHARE * passed_s:
                time.sleep(_GAP_S)
            self._since, self._written_s = time.monotonic(), 0.0
        self._began = time.monotonic()

    def __exit__(self, *exc_info: object) -> None:
        self._written_s += time.monotonic() - self._began


def _sqlite(url: URL, **options: Any) -> Engine:
    engine = create_engine(url, connect_args={"check_same_thread": False}, **options)
    event.listen(engine, "connect", _prepare)
    return engine


def _writing(engine: Engine) -> Engine:
    event.listen(engine, "begin", _begin)
    return engine


def _prepare(connection: object, entry: ConnectionPoolEntry) -> None:
    """SQLite: transactions begin where `_begin` says so, not where its driver guesses."""
    dbapi = entry.dbapi_connection
    assert dbapi is not None
    dbapi.isolation_level = None
    cursor = dbapi.cursor()
    for pragma in _PRAGMAS:
        cursor.execute(f"PRAGMA {pragma}")
    _write_ahead(cursor)
    cursor.close()


def _write_ahead(cursor: DBAPICursor) -> None:
    """Of several that open a new file at once, SQLite refuses some this step without waiting."""
    until = time.monotonic() + _BUSY_MS / 1000
    while True:
        try:
            cursor.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
        time.sleep(0.01)


def _begin(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def _read(engine: Engine, work: Callable[[Connection], T]) -> T:
    with engine.connect() as connection:
        return work(connection)


def _check(connection: Connection, *, creates: bool) -> None:
    """Raises SchemaMismatch. `creates` the tables where there are none."""
    found: str | None = None
    if inspect(connection).has_table("alembic_version"):
        found = str(connection.execute(text("select version_num from alembic_version")).scalar_one())
    if found is None and creates:
        _create(connection)
    else:
        check_schema(found)


def _create(connection: Connection) -> None:
    """All tables at once, marked as the newest revision."""
    METADATA.create_all(connection, checkfirst=False)
    connection.execute(text("create table alembic_version (version_num varchar(32) not null primary key)"))
    connection.execute(text("insert into alembic_version values (:revision)"), {"revision": NEWEST_SCHEMA})
