"""Rows of usage, their sums, and keys made at run time, on each kind of database."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from adapters.canonical.errors import Conflict, NotReady
from gateway.storage import usage as module
from gateway.storage.bounds import Bounds
from gateway.storage.opening import Stores, open_stores
from gateway.storage.place import FilePlace, MemoryPlace, Place
from gateway.storage.records import KeptKey
from gateway.usage.row import UsageRow
from tests.gateway.storage.postgresql import empty_postgresql

DAY_S = 86_400
NOON = 20_000 * DAY_S + 43_200.0


class Clock:
    def __init__(self) -> None:
        self.time = NOON

    def __call__(self) -> float:
        return self.time


@pytest.fixture
def clock() -> Clock:
    return Clock()


async def place_of(kind: str, folder: Path) -> Place:
    if kind == "memory":
        return MemoryPlace()
    if kind == "sqlite":
        return FilePlace(folder / "gateway.db")
    return await empty_postgresql()


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
async def stores(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> AsyncIterator[Stores]:
    opened = await open_stores(await place_of(request.param, tmp_path), Bounds(1e9, 1 << 40), clock)
    yield opened
    await opened.aclose()


def row(at: float = NOON, key: str = "a", model: str = "m", *, cost: int | None = 10, kind: str = "first") -> UsageRow:
    return UsageRow(at, "r", key, model, "p", "u", kind, "ok", 3_000_000_000, 2, None, None, None, False, cost, 5, None)


async def test_sums_are_those_of_all_rows_however_they_were_grouped(stores: Stores) -> None:
    await stores.usage.add([row(), row(), row(key="b", cost=None)])
    await stores.usage.add([row(), row(NOON + DAY_S)])
    (total,), has_more = await stores.usage.totals([], since=0, until=int(NOON) + 2 * DAY_S, limit=9, where={})
    assert (total["attempts"], total["prompt_tokens"], total["cost_nano_usd"]) == (5, 15_000_000_000, 40)
    assert has_more is False
    found, _ = await stores.usage.totals(["key", "day"], since=0, until=int(NOON) + 2 * DAY_S, limit=9, where={})
    assert [(each["key"], each["day"], each["attempts"]) for each in found] == [
        ("a", 20_000 * DAY_S, 3),
        ("a", 20_001 * DAY_S, 1),
        ("b", 20_000 * DAY_S, 1),
    ]
    found, has_more = await stores.usage.totals(["key"], since=0, until=int(NOON) + 1, limit=1, where={"model": "m"})
    assert [each["key"] for each in found] == ["a"]
    assert has_more is True


async def test_rows_are_kept_with_their_sums_or_not_at_all(stores: Stores) -> None:
    async def rename(old: str, new: str) -> None:
        statement = f"alter table {old} rename to {new}"
        await stores.usage.database.write(lambda connection: connection.exec_driver_sql(statement))

    await rename("usage_hours", "elsewhere")
    with pytest.raises(NotReady):
        await stores.usage.add([row()])
    assert await stores.usage.attempts(since=0, until=NOON + 1, limit=9, key=None) == []
    await rename("elsewhere", "usage_hours")
    await stores.usage.add([row()])
    assert await stores.usage.attempts(since=0, until=NOON + 1, limit=9, key=None) == [row()]


async def test_numbers_that_no_upstream_can_mean_break_no_sums(stores: Stores) -> None:
    wild = [msgspec.structs.replace(row(), prompt_tokens=2**53, completion_tokens=-(2**53))] * 2000
    for _ in range(3):
        await stores.usage.add(wild)
    await stores.usage.add([row()])
    (total,), _ = await stores.usage.totals([], since=0, until=int(NOON) + 1, limit=1, where={})
    assert (total["attempts"], total["completion_tokens"]) == (6001, 2)


async def test_names_that_a_client_makes_up_have_few_sums_and_what_costs_something_its_own(stores: Stores) -> None:
    made_up = [row(model=f"m{number}", cost=None) for number in range(2 * module.MAX_FREE_NAMES)]
    await stores.usage.add(made_up)
    await stores.usage.add(made_up)
    await stores.usage.add([row(model="priced"), row(key="b", model="m", cost=None), row(NOON + 3600, model="new")])
    found, _ = await stores.usage.totals(["key", "model"], since=0, until=int(NOON) + 7200, limit=9999, where={})
    counts = {(each["key"], each["model"]): each["attempts"] for each in found}
    assert len(counts) == module.MAX_FREE_NAMES + 4
    assert counts["a", module.OTHER] == 2 * module.MAX_FREE_NAMES
    assert counts["a", "m0"] == 2
    assert counts["a", "priced"] == counts["b", "m"] == counts["a", "new"] == 1


async def test_what_was_spent_is_told_by_key_and_model_without_shadows(stores: Stores) -> None:
    rows = [row(cost=1), row(model="n", cost=2), row(key="b", cost=4), row(NOON - DAY_S, cost=8), row(kind="shadow")]
    await stores.usage.add(rows)
    since = int(NOON) - 43_200
    assert sorted(await stores.usage.spent(since)) == [("m", 5), ("n", 2)]
    assert sorted(await stores.usage.spent(since, key="a")) == [("m", 1), ("n", 2)]
    assert await stores.usage.spent(since, key="a", model="n") == [("n", 2)]
    assert await stores.usage.spent(since + DAY_S) == []


async def test_what_was_spent_is_told_by_team_wherever_its_keys_are_now(stores: Stores) -> None:
    of_team = partial(replace, team="search")
    await stores.usage.add(
        [of_team(row(cost=1)), row(cost=2), of_team(row(key="b", cost=4)), of_team(row(kind="shadow"))]
    )
    assert await stores.usage.spent(0, team="search") == [("m", 5)]
    assert await stores.usage.spent(0, key="a") == [("m", 3)]
    found, _ = await stores.usage.totals(["team"], since=0, until=int(NOON) + 1, limit=9, where={})
    assert [(each["team"], each["cost_nano_usd"]) for each in found] == [("", 12), ("search", 5)]


async def test_what_was_spent_is_told_by_end_user_and_made_up_users_have_few_sums(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_FREE_NAMES", 3)
    await stores.usage.add([replace(row(cost=n), end_user=f"u{n}") for n in range(1, 9)])
    await stores.usage.add([replace(row(cost=0), end_user=f"free{n}") for n in range(9)])
    assert await stores.usage.spent(0, key="a", end_user="u7") == [("m", 7)]
    assert await stores.usage.spent(0, key="b", end_user="u7") == []
    found, _ = await stores.usage.totals(["end_user"], since=0, until=int(NOON) + 1, limit=99, where={})
    assert {each["end_user"] for each in found} == {
        *(f"u{n}" for n in range(1, 9)),
        "free0",
        "free1",
        "free2",
        "(other)",
    }


async def test_copies_for_shadows_are_in_the_sums_and_no_clients(stores: Stores) -> None:
    await stores.usage.add([row(cost=1), row(kind="shadow", cost=2), row(key="b", cost=4)])
    until = int(NOON) + 1
    found, _ = await stores.usage.totals(["key", "provider"], since=0, until=until, limit=9, where={})
    assert [(each["key"], each["cost_nano_usd"]) for each in found] == [("", 2), ("a", 1), ("b", 4)]
    (mine,), _ = await stores.usage.totals([], since=0, until=until, limit=9, where={"key": "a"})
    assert mine["cost_nano_usd"] == 1
    (total,), _ = await stores.usage.totals([], since=0, until=until, limit=9, where={"model": "m"})
    assert total["cost_nano_usd"] == 7


async def test_attempts_come_back_as_they_were_newest_first(stores: Stores) -> None:
    rows = [row(NOON + n, key="ab"[n % 2]) for n in range(6)]
    await stores.usage.add(rows[:4])
    await stores.usage.add(rows[4:])
    newest = await stores.usage.attempts(since=0, until=NOON + 9, limit=5, key=None)
    assert newest == rows[:0:-1]
    assert await stores.usage.attempts(since=NOON + 1, until=NOON + 4, limit=9, key="a") == [rows[2]]


async def test_rows_go_when_they_are_old_or_too_many_and_their_sums_stay(
    stores: Stores, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_ROWS", 5)
    for n in range(4):
        clock.time += module.ROWS_KEPT_S / 100
        await stores.usage.add([row(clock.time, model=str(n))] * 2)
    left = await stores.usage.attempts(since=0, until=clock.time + 1, limit=99, key=None)
    assert sorted({each.model for each in left}) == ["2", "3"]
    clock.time += module.ROWS_KEPT_S + 60
    await stores.usage.add([row(clock.time)])
    assert len(await stores.usage.attempts(since=0, until=clock.time + 1, limit=99, key=None)) == 1
    (total,), _ = await stores.usage.totals([], since=0, until=int(clock.time) + 1, limit=1, where={})
    assert total["attempts"] == 9
    clock.time += module.HOURS_KEPT_S + 3600
    await stores.usage.add([row(clock.time)])
    (total,), _ = await stores.usage.totals([], since=0, until=int(clock.time) + 1, limit=1, where={})
    assert total["attempts"] == 1


async def test_a_key_is_found_by_its_hash_listed_and_revoked_once(stores: Stores) -> None:
    keys = [KeptKey(name, name.encode(), 5, None, None, b"{}") for name in ("b", "a", "c")]
    for key in keys:
        await stores.client_keys.add(key)
    assert await stores.client_keys.find_by_hash(b"a") == keys[1]
    assert await stores.client_keys.find(keys[1].id) == keys[1]
    assert await stores.client_keys.find_by_hash(b"x") is None
    listed, has_more = await stores.client_keys.list(None, 2)
    assert ([key.id for key in listed], has_more) == (["a", "b"], True)
    assert await stores.client_keys.revoke("a", 7) == keys[1]._replace(revoked=7)
    assert await stores.client_keys.revoke("a", 9) == keys[1]._replace(revoked=7)
    assert await stores.client_keys.revoke("x", 9) is None
    with pytest.raises(Conflict):
        await stores.client_keys.add(keys[1]._replace(hash=b"another"))
    assert await stores.client_keys.find_by_hash(b"b") == keys[0]  # the database goes on after a refused insertion


async def test_a_key_is_changed_in_one_step_and_found_by_its_secret_before_as_well(stores: Stores) -> None:
    key = KeptKey("a", b"0", 5, None, None, b"{}")
    await stores.client_keys.add(key)

    def next_secret(key: KeptKey) -> KeptKey:
        return key._replace(hash=b"%d" % (int(key.hash) + 1), previous_hash=key.hash, previous_until=9)

    await asyncio.gather(*[stores.client_keys.change("a", next_secret) for _ in range(5)])
    changed = key._replace(hash=b"5", previous_hash=b"4", previous_until=9)
    assert [await stores.client_keys.find_by_hash(b"%d" % number) for number in (3, 4, 5)] == [None, changed, changed]
    assert await stores.client_keys.change("a", lambda key: key._replace(rules=b"[]")) == (
        changed,
        changed._replace(rules=b"[]"),
    )
    assert await stores.client_keys.change("x", next_secret) is None
