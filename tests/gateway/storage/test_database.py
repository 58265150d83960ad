"""A database that is silent is one that fails, after a while."""

import socket
import threading
import time
from pathlib import Path

import pytest
from sqlalchemy import Connection

from adapters.canonical.errors import NotReady
from gateway.storage import database as module
from gateway.storage.database import Database
from gateway.storage.place import FilePlace, parse_place


@pytest.mark.parametrize("way", ["read", "write"])
async def test_a_database_that_is_silent_is_waited_for_only_so_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    told: list[str] = []
    database = await Database.open(FilePlace(tmp_path / "gateway.db"), told.append)
    monkeypatch.setattr(module, "_ANSWER_S", 0.02)
    answers = threading.Event()

    def is_silent(connection: Connection) -> bool:
        return answers.wait(10)

    with pytest.raises(NotReady):
        await (database.read if way == "read" else database.write)(is_silent)
    assert told == [f"{tmp_path}/gateway.db: TimeoutError"]
    answers.set()
    await database.aclose()


async def test_a_server_that_never_answers_is_a_failure_within_the_time_that_its_address_says() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:  # which takes nobody in
        began = time.monotonic()
        with pytest.raises(NotReady):
            await Database.open(parse_place(f"postgresql://u@127.0.0.1:{server.getsockname()[1]}/d?connect_timeout=1"))
        assert time.monotonic() - began < 4.5  # libpq waits for at least 2 s; what is not said is 5 s
