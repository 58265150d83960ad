"""What is written in one turn of the event loop leaves together at its end, and is never held for longer."""

import asyncio
from collections.abc import Callable

import pytest

from gateway.http.connection import Connection
from gateway.http.server import Connections
from tests.gateway.http.hosted import Service


class Transport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.told: list[bytes | str] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.told.append(bytes(data))

    def is_closing(self) -> bool:
        return "closed" in self.told

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.told.append("end")

    def close(self) -> None:
        self.told.append("closed")

    def abort(self) -> None:
        self.told.append("closed")


def connected(connections: Connections) -> tuple[Connection, Transport]:
    connection, transport = connections(), Transport()
    connection.connection_made(transport)
    return connection, transport


async def test_what_one_turn_writes_leaves_together_for_each_client() -> None:
    connections = Connections(Service())
    first, its = connected(connections)
    second, others = connected(connections)
    first.write(b"one ")
    second.write(b"other")
    first.write(b"two")
    assert its.told == others.told == []
    await asyncio.sleep(0)
    assert (its.told, others.told) == ([b"one two"], [b"other"])
    first.write(b"three")
    await asyncio.sleep(0)
    assert its.told == [b"one two", b"three"]
    for connection in (first, second):
        connection.connection_lost(None)


async def test_many_bytes_of_one_turn_do_not_wait_for_its_end() -> None:
    connection, transport = connected(Connections(Service()))
    for _ in range(100):
        connection.write(b"x" * 1000)
    assert 30_000 < sum(map(len, transport.told)) <= 100_000
    await asyncio.sleep(0)
    assert sum(map(len, transport.told)) == 100_000
    connection.connection_lost(None)


ENDS: dict[str, Callable[[Connection], None]] = {
    "abort": Connection.abort,
    "close": lambda connection: connection.close(has_more=False),
    "close of one that is still sending": lambda connection: connection.close(has_more=True),
    "stop": Connection.stop,
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
async def test_what_was_written_leaves_before_the_end(end: Callable[[Connection], None]) -> None:
    connection, transport = connected(Connections(Service()))
    connection.write(b"one")
    end(connection)
    assert transport.told[0] == b"one"
    assert len(transport.told) == 2
    connection.connection_lost(None)


async def test_a_client_that_sends_no_more_gets_what_was_written() -> None:
    connection, transport = connected(Connections(Service()))
    connection.write(b"one")
    connection.eof_received()
    assert transport.told == [b"one"]
    connection.connection_lost(None)


async def test_nothing_is_written_to_a_client_that_is_gone() -> None:
    connection, transport = connected(Connections(Service()))
    connection.write(b"one")
    connection.connection_lost(None)
    await asyncio.sleep(0)
    assert transport.told == []
    with pytest.raises(ConnectionError):
        connection.write(b"two")
