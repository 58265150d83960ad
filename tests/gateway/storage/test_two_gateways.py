"""Two gateways on one SQLite file: both write, neither keeps the other one out, and nothing is lost."""

import asyncio
import itertools
import sqlite3
from contextlib import closing
from pathlib import Path

from sqlalchemy import Connection, func, insert, select

from gateway.storage import database as module
from gateway.storage.database import Database
from gateway.storage.place import FilePlace
from gateway.storage.schema import USAGE_GROUPS

ROW = {"first": 1.0, "last": 2.0, "count": 1, "rows": b"[]"}


async def write(database: Database) -> None:
    await database.write(lambda connection: connection.execute(insert(USAGE_GROUPS), [ROW]))


async def test_several_may_open_a_new_file_at_once(tmp_path: Path) -> None:
    for number in range(5):
        place = FilePlace(tmp_path / f"{number}.db")
        opened = await asyncio.gather(*[Database.open(place) for _ in range(6)])
        await asyncio.gather(*[write(database) for database in opened])
        await asyncio.gather(*[database.aclose() for database in opened])


async def test_one_writes_all_it_has_while_the_other_one_writes_without_a_break(tmp_path: Path) -> None:
    place = FilePlace(tmp_path / "gateway.db")
    busy, calm = await asyncio.gather(Database.open(place), Database.open(place))
    written = itertools.count()
    done = asyncio.Event()

    async def write_on() -> None:
        while not done.is_set():
            await write(busy)
            next(written)

    async with asyncio.timeout(30):
        writers = [asyncio.ensure_future(write_on()) for _ in range(5)]
        for _ in range(20):
            await write(calm)
        done.set()
        await asyncio.gather(*writers)
    count = select(func.count()).select_from(USAGE_GROUPS)
    rows = await calm.read(lambda connection: connection.execute(count).scalar_one())
    assert rows == 20 + next(written)
    await asyncio.gather(busy.aclose(), calm.aclose())


def write_much(connection: Connection) -> None:
    for _ in range(400):
        connection.execute(insert(USAGE_GROUPS), [ROW])


async def test_who_writes_without_a_break_makes_one_in_which_another_process_gets_its_turn(tmp_path: Path) -> None:
    database = await Database.open(FilePlace(tmp_path / "gateway.db"))
    loop = asyncio.get_running_loop()
    times: list[float] = [loop.time()]

    async def write_on() -> None:
        while times[-1] - times[0] < 1.3:
            await database.write(write_much)
            times.append(loop.time())

    await asyncio.gather(*[write_on() for _ in range(3)])
    assert max(later - earlier for earlier, later in itertools.pairwise(times)) > 0.1
    await database.aclose()


async def test_what_the_log_grew_by_while_another_process_read_is_given_back(tmp_path: Path) -> None:
    database = await Database.open(FilePlace(tmp_path / "gateway.db"))
    log = tmp_path / "gateway.db-wal"
    large = {**ROW, "rows": bytes(module._MAX_LOG // 4)}
    with closing(sqlite3.connect(tmp_path / "gateway.db")) as reader:
        reader.execute("begin")
        reader.execute("select count(*) from usage_groups").fetchall()
        for _ in range(6):
            await database.write(lambda connection: connection.execute(insert(USAGE_GROUPS), [large]))
        assert log.stat().st_size > 1.4 * module._MAX_LOG
    for _ in range(3):
        await write(database)
    assert log.stat().st_size <= module._MAX_LOG
    await database.aclose()
