"""One database behind SQLAlchemy: connections, transactions, and what an error of it means to a client.

SQLite has one writer at a time: writes wait for each other here, in order, instead of failing there. Of several
processes on one file each looks now and then whether it is free, and who writes without a break may keep the others
out; so none does. In memory there is one connection, so reads wait as well. PostgreSQL sorts this out itself.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, nullcontext
from functools import wraps
from importlib.util import find_spec
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from sqlalchemy import URL, create_engine, event, inspect, text
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import ConnectionPoolEntry, StaticPool

from adapters.canonical.errors import NotReady
from gateway.storage.place import NEWEST_SCHEMA, FilePlace, MemoryPlace, Place, ServerPlace, check_schema
from gateway.storage.schema import METADATA

__all__ = ["Database", "OnDatabase", "whole"]

P = ParamSpec("P")
T = TypeVar("T")

_DRIVER = "sqlite+aiosqlite"
_CONNECTIONS = 8
_BUSY_MS = 10_000
_PRAGMAS = (f"busy_timeout={_BUSY_MS}", "journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON")
_LOOK_S = 1.0
_MAX_SHARE = 0.7
"""A process that has written for so much of the last second leaves a gap."""
_GAP_S = 0.11
"""SQLite looks every 0.1 s whether a file is free."""
_WRITES = "writes"


def _unheard(reason: str) -> None: ...


class Database:
    """Open. Close it with `aclose`. `report` hears why it fails, where it does; clients are not told."""

    def __init__(self, engine: AsyncEngine, place: Place, report: Callable[[str], None]) -> None:
        self._engine = engine
        self._report = report
        self._file = _FileThreads(place) if isinstance(place, FilePlace) else None
        self._place = place
        self._writer = asyncio.Lock()
        self._since = 0.0
        self._written_s = 0.0
        """For how long it has written since then."""
        self._operations: set[asyncio.Task[Any]] = set()

    @classmethod
    async def open(cls, place: Place, report: Callable[[str], None] = _unheard) -> "Database":
        """An empty SQLite database gets its tables. Raises SchemaMismatch, or NotReady where it can't be reached."""
        with _told(place, report):
            database = cls.unchecked(place, report)
        try:
            async with database.writing() as connection:
                found = await connection.run_sync(_revision)
                if found is None and not isinstance(place, ServerPlace):
                    await connection.run_sync(_create)
                else:
                    check_schema(found)
        except BaseException:
            await database.aclose()
            raise
        return database

    @classmethod
    def unchecked(cls, place: Place, report: Callable[[str], None] = _unheard) -> "Database":
        """Whatever is in it, for what brings it up to date. Raises OSError where its folder can't be made."""
        if isinstance(place, FilePlace):
            place.path.parent.mkdir(parents=True, exist_ok=True)
        return cls(_engine(place), place, report)

    @property
    def is_shared(self) -> bool:
        """Whether other machines may use it as well."""
        return isinstance(self._place, ServerPlace)

    async def read(self, work: Callable[[Connection], T]) -> T:
        """What `work` gives, which changes nothing, and whose statements need not see the same moment. It may run in
        another thread, and goes on to its end when the waiting task is cancelled. Raises NotReady where the database
        fails."""
        with _told(self._place, self._report):
            if self._file is not None:
                return await self._file.run(_read, work)
            return await self.to_its_end(self._read(work))

    async def _read(self, work: Callable[[Connection], T]) -> T:
        turn = self._writer if isinstance(self._place, MemoryPlace) else nullcontext()
        async with turn, self._engine.connect() as connection:
            return await connection.run_sync(work)

    async def write(self, work: Callable[[Connection], T]) -> T:
        """What `work` gives, in one transaction that is done or not done. It may run in another thread, and goes on to
        its end when the waiting task is cancelled. Raises NotReady where the database fails."""
        return await self.to_its_end(self._write(work))

    async def _write(self, work: Callable[[Connection], T]) -> T:
        if self._file is None:
            async with self.writing() as connection:
                return await connection.run_sync(work)
        async with self._turn():
            with _told(self._place, self._report):
                return await self._file.run(_write, work)

    @asynccontextmanager
    async def writing(self) -> AsyncGenerator[AsyncConnection, None]:
        """A transaction, committed at the end of the block. Raises NotReady where the database fails."""
        async with nullcontext() if self.is_shared else self._turn():
            with _told(self._place, self._report):
                async with self._engine.connect() as connection:
                    await connection.execution_options(**{_WRITES: True})
                    async with connection.begin():
                        yield connection

    @asynccontextmanager
    async def _turn(self) -> AsyncGenerator[None, None]:
        """To write."""
        clock = asyncio.get_running_loop().time
        async with self._writer:
            passed_s = clock() - self._since
            if passed_s >= _LOOK_S:
                if self._written_s > _MAX_SHARE * passed_s and isinstance(self._place, FilePlace):
                    await asyncio.sleep(_GAP_S)
                self._since, self._written_s = clock(), 0.0
            began = clock()
            try:
                yield
            finally:
                self._written_s += clock() - began

    async def to_its_end(self, operation: Coroutine[Any, Any, T]) -> T:
        """Waits for an operation that goes on when the waiting task is cancelled."""
        task = asyncio.get_running_loop().create_task(operation)
        self._operations.add(task)
        task.add_done_callback(self._settle)
        return await asyncio.shield(task)

    async def aclose(self) -> None:
        """Waits for the operations that run."""
        while self._operations:
            await asyncio.wait(self._operations)
        await self._engine.dispose()
        if self._file is not None:
            await self._file.aclose()

    def _settle(self, task: "asyncio.Task[Any]") -> None:
        self._operations.discard(task)
        if not task.cancelled():
            task.exception()  # whoever waits for it gets it as well


class OnDatabase(Protocol):
    """What has operations on a database."""

    @property
    def database(self) -> Database: ...


Store = TypeVar("Store", bound=OnDatabase)


def whole(
    method: Callable[Concatenate[Store, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Store, P], Coroutine[Any, Any, T]]:
    """An operation that is done or not done: a client that leaves in the middle of it changes nothing.

    A connection whose statement is interrupted is thrown away, and with it a database that lives in memory.
    """

    @wraps(method)
    async def run(store: Store, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await store.database.to_its_end(method(store, *args, **kwargs))

    return run


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


class _FileThreads:
    """Works on a SQLite file in threads of its own, a whole piece of work at a time: through an asynchronous driver
    each of its steps would be a way to another thread and back. Reads need no transaction: beginning and ending one
    would cost as much as the read."""

    def __init__(self, place: FilePlace) -> None:
        self._engine = create_engine(
            URL.create("sqlite", database=str(place.path)),
            pool_size=_CONNECTIONS,
            max_overflow=0,
            pool_reset_on_return=None,
            isolation_level="AUTOCOMMIT",
            skip_autocommit_rollback=True,
        )
        event.listen(self._engine, "connect", _prepare)
        self._threads = ThreadPoolExecutor(_CONNECTIONS, thread_name_prefix="storage")

    async def run(self, how: Callable[[Engine, Callable[[Connection], T]], T], work: Callable[[Connection], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, how, self._engine, work)

    async def aclose(self) -> None:
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._threads.shutdown()
        self._engine.dispose()


def _read(engine: Engine, work: Callable[[Connection], T]) -> T:
    with engine.connect() as connection:
        return work(connection)


def _write(engine: Engine, work: Callable[[Connection], T]) -> T:
    with engine.connect() as connection:
        try:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            result = work(connection)
            connection.exec_driver_sql("COMMIT")
        except BaseException:
            connection.invalidate()  # closes it, and so nothing of the transaction is left
            raise
        return result


def _engine(place: Place) -> AsyncEngine:
    match place:
        case MemoryPlace():
            engine = create_async_engine(URL.create(_DRIVER), poolclass=StaticPool)
        case FilePlace():
            url = URL.create(_DRIVER, database=str(place.path))
            engine = create_async_engine(url, pool_size=1, max_overflow=0)
        case ServerPlace():
            if find_spec("asyncpg") is None:
                raise ImportError("storage: PostgreSQL needs the extra: pip install 'llm-protocol-gateway[postgres]'")
            return create_async_engine(place.url, pool_size=_CONNECTIONS, max_overflow=0, pool_pre_ping=True)
    event.listen(engine.sync_engine, "connect", _prepare)
    event.listen(engine.sync_engine, "begin", _begin)
    return engine


def _prepare(connection: object, entry: ConnectionPoolEntry) -> None:
    """SQLite: transactions begin where `_begin` says so, not where its driver guesses."""
    dbapi = entry.dbapi_connection
    assert dbapi is not None
    dbapi.isolation_level = None
    cursor = dbapi.cursor()
    for pragma in _PRAGMAS:
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin(connection: Connection) -> None:
    if connection.get_execution_options().get(_WRITES):
        connection.exec_driver_sql("BEGIN IMMEDIATE")


def _revision(connection: Connection) -> str | None:
    """The database's revision; None: it has none of our tables."""
    if inspect(connection).has_table("alembic_version"):
        return str(connection.execute(text("select version_num from alembic_version")).scalar_one())
    return None


def _create(connection: Connection) -> None:
    """All tables at once, marked as the newest revision."""
    METADATA.create_all(connection, checkfirst=False)
    connection.execute(text("create table alembic_version (version_num varchar(32) not null primary key)"))
    connection.execute(text("insert into alembic_version values (:revision)"), {"revision": NEWEST_SCHEMA})
