import asyncio
from collections.abc import Sequence

import pytest

from adapters.canonical.errors import NotReady
from gateway.usage import ledger as module
from gateway.usage.ledger import Ledger
from gateway.usage.row import UsageRow


def row(number: int) -> UsageRow:
    return UsageRow(
        number, f"r{number}", "k", "m", "p", "u", "first", "ok", 1, 1, None, None, None, False, None, 5, None
    )


class Sink:
    def __init__(self) -> None:
        self.groups: list[list[float]] = []
        self.is_down = False

    async def __call__(self, rows: Sequence[UsageRow]) -> None:
        await asyncio.sleep(0)
        if self.is_down:
            raise NotReady("away")
        self.groups.append([each.at for each in rows])


def made(sink: Sink) -> tuple[Ledger, list[tuple[str, dict[str, object]]]]:
    lines: list[tuple[str, dict[str, object]]] = []
    return Ledger(sink, lambda event, fields: lines.append((event, fields))), lines


async def test_rows_are_written_together_and_none_is_left_at_the_end() -> None:
    sink = Sink()
    ledger, _ = made(sink)
    for number in range(5):
        ledger.add(row(number))
    await ledger.aclose()
    assert sink.groups == [[0, 1, 2, 3, 4]]


async def test_each_row_is_written_once_however_many_ask_for_it() -> None:
    sink = Sink()
    ledger, _ = made(sink)
    for number in range(5):
        ledger.add(row(number))
    await asyncio.gather(*[ledger.flush() for _ in range(3)])
    ledger.add(row(5))
    await ledger.aclose()
    assert sink.groups == [[0, 1, 2, 3, 4], [5]]


async def test_rows_are_written_once_though_who_asks_for_it_leaves_meanwhile() -> None:
    for steps in range(6):
        written: list[float] = []

        async def sink(rows: Sequence[UsageRow], written: list[float] = written) -> None:
            written += [each.at for each in rows]
            await asyncio.sleep(0)

        ledger = Ledger(sink, lambda event, fields: None)
        ledger.add(row(1))
        leaving = asyncio.ensure_future(ledger.flush())
        for _ in range(steps):
            await asyncio.sleep(0)
        leaving.cancel()
        ledger.add(row(2))
        await ledger.aclose()
        assert written == [1, 2]


async def test_rows_that_come_while_others_are_written_wait_for_the_next_turn() -> None:
    ledger: Ledger
    groups: list[list[float]] = []

    async def sink(rows: Sequence[UsageRow]) -> None:
        groups.append([each.at for each in rows])
        if len(groups) < 4:
            ledger.add(row(len(groups)))

    ledger = Ledger(sink, lambda event, fields: None)
    ledger.add(row(0))
    await ledger.flush()
    assert groups == [[0]]
    ledger.add(row(9))
    await ledger.aclose()  # and at the end nothing waits, whatever came meanwhile
    assert groups == [[0], [1, 9], [2], [3]]


async def test_rows_wait_while_the_database_is_away() -> None:
    sink = Sink()
    ledger, _ = made(sink)
    sink.is_down = True
    ledger.add(row(1))
    with pytest.raises(NotReady):
        await ledger.flush()
    sink.is_down = False
    ledger.add(row(2))
    await ledger.aclose()
    assert sink.groups == [[1, 2]]


async def test_a_gateway_that_stops_without_its_database_says_how_many_rows_wait() -> None:
    sink = Sink()
    ledger, lines = made(sink)
    sink.is_down = True
    ledger.add(row(1))
    await ledger.aclose()
    assert lines == [("usage_not_written", {"error": "not_ready", "waiting": 1})]


async def test_rows_beyond_the_bound_are_counted_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_PENDING", 3)
    sink = Sink()
    ledger, lines = made(sink)
    for number in range(5):
        ledger.add(row(number))
    await ledger.aclose()
    assert sink.groups == [[0, 1, 2]]
    assert lines == [("usage_rows_lost", {"count": 2})]
