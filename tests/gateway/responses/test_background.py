"""Background answers whose database fails, or whose maker is gone."""

import asyncio

import orjson
import pytest
from sqlalchemy import text

from adapters.canonical.errors import NotReady
from adapters.canonical.events import ChoiceFinished, TextDelta
from adapters.canonical.stop_reason import StopReason
from gateway.responses import background
from gateway.storage.records import Advance, Final, KeptResponse
from providers.base import Batch
from providers.testing.scripted import ScriptedProvider
from tests.adapters.openai.responses.event_order import check_events
from tests.gateway.responses.bench import Bench
from tests.gateway.server.running import until

GOOD: list[Batch] = [[TextDelta(0, 0, "a")], [ChoiceFinished(0, StopReason.STOP)]]
DEAD = "elsewhere/1/x"


async def kept_elsewhere(bench: Bench, lease_until: float) -> str:
    """A response that another machine makes, as the database has it."""
    response_id = await bench.submit()
    await bench.background.drain(5)
    found = await bench.find(response_id)
    assert found is not None
    stores = await bench.storage.stores()
    copy = KeptResponse(id="resp_x", owner="", created=1, status="in_progress", body=found.body, worker=DEAD)
    rows = await stores.responses.events(response_id, -1, 100)
    await stores.responses.add(copy, [], events=rows[:4], lease_until=lease_until)
    return copy.id


async def test_62_a_reader_gets_no_event_that_is_not_in_the_database_yet() -> None:
    words: list[Batch] = [[TextDelta(0, 0, f"{number} ")] for number in range(300)]
    gate = asyncio.Event()
    gate.set()  # waiting for it gives the reader a turn
    script = [step for batch in (*words, GOOD[1]) for step in (gate, batch)]
    bench = await Bench.open(ScriptedProvider("fake", script), parallel=1, queue=1)
    try:
        response_id = await bench.submit()
        stores = await bench.storage.stores()
        seen, groups = 0, 0
        async for group in bench.background.logs.follow("", response_id, -1):
            written = await stores.responses.events(response_id, seen - 1, len(group))
            assert [tuple(one) for one in written] == [(one.sequence_number, one.name, one.data) for one in group]
            seen += len(group)
            groups += 1
        assert seen > 300
        assert groups < seen / 4, "events are written in groups"
    finally:
        await bench.aclose()


async def test_69_another_machines_response_fails_when_its_lease_has_ended_and_not_before() -> None:
    bench = await Bench.open(ScriptedProvider("fake", GOOD), parallel=1, queue=1)
    try:
        alive = await kept_elsewhere(bench, lease_until=1e12)
        await bench.background.end_orphans(await bench.storage.stores())
        found = await bench.find(alive)
        assert found is not None
        assert found.status == "in_progress"
        await (await bench.storage.stores()).responses.renew([alive], 1.0)
        await bench.background.end_orphans(await bench.storage.stores())
        found = await bench.find(alive)
        assert found is not None
        assert (found.status, found.worker) == ("failed", None)
        assert orjson.loads(found.body)["error"]["type"] == "gateway_stopped"
    finally:
        await bench.aclose()


async def test_69_a_response_that_cannot_be_ended_keeps_no_other_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "_RENEW_S", 0.001)
    bench = await Bench.open(ScriptedProvider("fake", GOOD), parallel=1, queue=1)
    try:
        stores = await bench.storage.stores()
        torn = KeptResponse(id="resp_a", owner="", created=1, status="in_progress", body=b"{", worker=DEAD)
        await stores.responses.add(torn, [], lease_until=1.0)
        await until(lambda: len(bench.faults) >= 2)  # it is tried again
        orphan = await kept_elsewhere(bench, lease_until=1.0)
        async with asyncio.timeout(10):
            while (found := await bench.find(orphan)) is None or found.status != "failed":
                pass
        assert bench.background.count == 0
    finally:
        await bench.aclose()


async def test_65_another_machines_response_can_be_cancelled() -> None:
    bench = await Bench.open(ScriptedProvider("fake", GOOD), parallel=1, queue=1)
    try:
        response_id = await kept_elsewhere(bench, lease_until=1e12)
        await bench.background.end_elsewhere("", response_id)
        found = await bench.find(response_id)
        assert found is not None
        assert found.status == "cancelled"
        late = Advance(id=response_id, final=Final(status="completed", body=b"{}", items=()))
        assert await (await bench.storage.stores()).responses.advance([late], 1e12) == {response_id}
    finally:
        await bench.aclose()


async def rename(bench: Bench, table: str, name: str) -> None:
    change = text(f"alter table {table} rename to {name}")
    await (await bench.storage.stores()).database.write(lambda connection: connection.execute(change))


async def test_69_when_the_database_fails_the_answer_stops_and_is_ended_once_it_is_back() -> None:
    hang = asyncio.Event()
    bench = await Bench.open(ScriptedProvider("fake", [hang, *GOOD]), parallel=1, queue=1)
    try:
        response_id = await bench.submit()
        await bench.provider.waiting.wait()
        await rename(bench, "events", "away")
        hang.set()
        await bench.background.drain(5)
        assert (bench.background.count, bench.provider.open_streams) == (0, 0)
        assert [type(fault) for fault in bench.faults] == [NotReady]
        await rename(bench, "away", "events")
        stores = await bench.storage.stores()
        await stores.responses.renew([response_id], 1.0)  # a minute later
        await bench.background.end_orphans(stores)
        found = await bench.find(response_id)
        assert found is not None
        assert found.status == "failed"
        assert check_events(await bench.events(response_id)) == orjson.loads(found.body)
    finally:
        await bench.aclose()
