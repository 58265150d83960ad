"""What every store keeps to, on each kind of database. A third one is tested by a subclass that opens it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from adapters.canonical.errors import InvalidRequest, NotReady
from gateway.storage.bounds import Bounds
from gateway.storage.opening import Stores, open_stores
from gateway.storage.place import FilePlace, MemoryPlace, Place
from gateway.storage.records import (
    Advance,
    Final,
    KeptChat,
    KeptConversation,
    KeptEvent,
    KeptItem,
    KeptResponse,
    Page,
)
from gateway.storage.schema import RESPONSES
from tests.gateway.storage.postgresql import empty_postgresql

FOREVER = Bounds(ttl_s=1e9, max_bytes=1 << 40)
NEWEST, OLDEST = Page(), Page(descending=False)


class Clock:
    def __init__(self) -> None:
        self.time = 1_000_000.0

    def __call__(self) -> float:
        self.time += 0.001
        return self.time


def response(name: str = "r1", owner: str = "ann", **changes: Any) -> KeptResponse:
    fields: dict[str, Any] = {
        "id": name,
        "owner": owner,
        "created": 5,
        "status": "completed",
        "body": b'{"id":1}',
        **changes,
    }
    return KeptResponse(**fields)


def item(name: str) -> KeptItem:
    return KeptItem(name, b'{"id":"%b"}' % name.encode())


def items(*names: str) -> list[KeptItem]:
    return [item(name) for name in names]


def running(name: str = "r1", **changes: Any) -> KeptResponse:
    fields: dict[str, Any] = {"status": "queued", "worker": "w", "background": True, **changes}
    return response(name, **fields)


def final(status: str = "completed", *names: str) -> Final:
    return Final(status=status, body=b'{"status":1}', items=items(*names))


def event(number: int) -> KeptEvent:
    return KeptEvent(number, "response.x", b'{"sequence_number":%d}' % number)


class StoreContract:
    """A subclass has a fixture `place`, an empty database."""

    @pytest.fixture
    def clock(self) -> Clock:
        return Clock()

    @pytest.fixture
    async def stores(self, place: Place, clock: Clock) -> AsyncIterator[Stores]:
        async with aclosing(await open_stores(place, FOREVER, clock)) as stores:
            yield stores

    async def test_a_response_is_found_as_it_was_kept_by_its_owner_alone(self, stores: Stores) -> None:
        kept = response(parent="p", conversation="c")
        await stores.responses.add(kept, items("a"))
        assert await stores.responses.find("ann", "r1") == kept
        assert await stores.responses.find("bob", "r1") is None
        assert await stores.responses.find("ann", "r2") is None

    async def test_it_is_deleted_once_and_by_its_owner_alone(self, stores: Stores) -> None:
        await stores.responses.add(response(), items("a"), items("b"), events=[event(0)])
        assert not await stores.responses.delete("bob", "r1")
        assert await stores.responses.delete("ann", "r1")
        assert not await stores.responses.delete("ann", "r1")
        assert await stores.responses.find("ann", "r1") is None
        assert await stores.responses.find_items("ann", ["a", "b"]) == {}
        assert await stores.responses.events("r1", -1, 10) == []
        assert stores.retention.bytes == 0

    async def test_given_items_come_in_pages_in_both_orders(self, stores: Stores) -> None:
        await stores.responses.add(response(), items(*"abcde"), items("made"))
        for page, expected, more in (
            (Page(limit=2), "ed", True),
            (Page(after="d", limit=3), "cba", False),
            (Page(after="a", limit=3, descending=False), "bcd", True),
        ):
            found = await stores.responses.given_items("ann", "r1", page)
            assert found is not None
            assert ("".join(one.id for one in found.items), found.has_more) == (expected, more)
        assert await stores.responses.given_items("bob", "r1", Page()) is None
        with pytest.raises(InvalidRequest) as caught:
            await stores.responses.given_items("ann", "r1", Page(after="made"))
        assert caught.value.param == "after"

    async def test_a_chain_is_everything_before_in_order_without_its_other_children(self, stores: Stores) -> None:
        await stores.responses.add(response("r1"), items("a", "b"), items("c"))
        await stores.responses.add(response("r2", parent="r1"), items("d"), items("e"))
        await stores.responses.add(response("other", parent="r1"), items("x"), items("y"))
        chain = await stores.responses.chain("ann", "r2")
        assert chain is not None
        assert ([one.id for one in chain.items], chain.missing) == (list("abcde"), None)
        assert await stores.responses.chain("bob", "r2") is None
        await stores.responses.delete("ann", "r1")
        chain = await stores.responses.chain("ann", "r2")
        assert chain is not None
        assert ([one.id for one in chain.items], chain.missing) == (["d", "e"], "r1")

    async def test_items_are_found_by_id_among_the_owners_own(self, stores: Stores) -> None:
        await stores.responses.add(response("r1"), items("a"), items("b"))
        await stores.responses.add(response("r2", "bob"), items("c"))
        talk = KeptConversation(id="c1", owner="ann", created=1, metadata=b"{}")
        await stores.conversations.add(talk, items("d"))
        found = await stores.responses.find_items("ann", ["a", "b", "c", "d", "e"])
        assert found == {name: item(name).raw for name in "abd"}

    async def test_an_answer_in_the_making_grows_and_ends_once(self, stores: Stores) -> None:
        await stores.responses.add(running(), items("a"), events=[event(0)], lease_until=50.0)
        lost = await stores.responses.advance([Advance(id="r1", events=[event(1)], status="in_progress")], 60.0)
        assert lost == frozenset()
        found = await stores.responses.find("ann", "r1")
        assert found is not None
        assert (found.status, found.worker) == ("in_progress", "w")
        assert [(one.id, lease) for one, lease in await stores.responses.running()] == [("r1", 60.0)]
        ended = Advance(id="r1", events=[event(2), event(3)], final=final("completed", "b"))
        assert await stores.responses.advance([ended], 60.0) == frozenset()
        late = Advance(id="r1", events=[event(4)], final=final("cancelled"))
        assert await stores.responses.advance([late], 60.0) == {"r1"}
        found = await stores.responses.find("ann", "r1")
        assert found is not None
        assert (found.status, found.worker, found.body) == ("completed", None, b'{"status":1}')
        assert [one.number for one in await stores.responses.events("r1", 0, 2)] == [1, 2]
        assert [one.number for one in await stores.responses.events("r1", -1, 99)] == [0, 1, 2, 3]
        assert await stores.responses.made_items("r1") == items("b")
        assert await stores.responses.running() == []

    async def test_who_is_not_its_maker_ends_only_what_it_has_seen_to_the_end(self, stores: Stores) -> None:
        await stores.responses.add(running(), [], events=[event(0), event(1)], lease_until=50.0)
        late = Advance(id="r1", after=0, events=[event(1)], final=final("failed"))
        assert await stores.responses.advance([late], 60.0) == {"r1"}
        assert len(await stores.responses.running()) == 1
        seen = Advance(id="r1", after=1, events=[event(2)], final=final("failed"))
        assert await stores.responses.advance([seen], 60.0) == frozenset()
        assert [one.number for one in await stores.responses.events("r1", -1, 9)] == [0, 1, 2]

    async def test_what_a_deleted_answer_still_says_is_lost_and_others_are_written(self, stores: Stores) -> None:
        for name in ("r1", "r2"):
            await stores.responses.add(running(name), [], lease_until=50.0)
        await stores.responses.delete("ann", "r1")
        both = [Advance(id=name, events=[event(0)]) for name in ("r1", "r2")]
        assert await stores.responses.advance(both, 60.0) == {"r1"}
        assert len(await stores.responses.events("r2", -1, 9)) == 1

    async def test_a_lease_is_renewed_for_what_runs_alone(self, stores: Stores) -> None:
        await stores.responses.add(running("r1"), [], lease_until=50.0)
        await stores.responses.add(running("r2"), [], lease_until=50.0)
        await stores.responses.add(response("r3"), [])
        await stores.responses.renew(["r1", "r3", "nowhere"], 99.0)
        assert {one.id: lease for one, lease in await stores.responses.running()} == {"r1": 99.0, "r2": 50.0}

    async def test_of_many_ends_at_once_one_counts(self, stores: Stores) -> None:
        await stores.responses.add(running(), [], lease_until=50.0)
        ends = [Advance(id="r1", events=[event(0)], final=final(f"s{number}")) for number in range(8)]
        lost = await asyncio.gather(*[stores.responses.advance([end], 60.0) for end in ends])
        assert sorted(map(len, lost)) == [0, *[1] * 7]
        assert len(await stores.responses.events("r1", -1, 9)) == 1

    async def test_a_conversation_gets_what_was_asked_and_answered_in_it(self, stores: Stores) -> None:
        talk = KeptConversation(id="c1", owner="ann", created=1, metadata=b'{"a":"b"}')
        await stores.conversations.add(talk, items("a"))
        await stores.responses.add(response("r1", conversation="c1"), items("b"), items("c"))
        await stores.responses.add(running("r2", conversation="c1"), items("d"), lease_until=1.0)
        await stores.responses.advance([Advance(id="r2", final=final("completed", "e"))], 1.0)
        await stores.responses.add(response("r3", conversation="c1", status="failed"), items("x"))
        assert [one.id for one in await stores.conversations.all_items("c1")] == list("abcde")
        page = await stores.conversations.items("c1", Page(after="d", limit=2))
        assert ([one.id for one in page.items], page.has_more) == (["c", "b"], True)

    async def test_a_conversation_is_changed_and_deleted_by_its_owner_alone(self, stores: Stores) -> None:
        talk = KeptConversation(id="c1", owner="ann", created=1, metadata=b"{}")
        await stores.conversations.add(talk, items("a", "b"))
        await stores.conversations.append("c1", items("c"))
        assert await stores.conversations.find("ann", "c1") == talk
        assert await stores.conversations.find("bob", "c1") is None
        await stores.conversations.set_metadata("ann", "c1", b'{"x":"y"}')
        found = await stores.conversations.find("ann", "c1")
        assert found is not None
        assert found.metadata == b'{"x":"y"}'
        assert await stores.conversations.find_item("c1", "b") == item("b").raw
        assert await stores.conversations.delete_item("c1", "b")
        assert not await stores.conversations.delete_item("c1", "b")
        assert await stores.conversations.find_item("c1", "b") is None
        assert not await stores.conversations.delete("bob", "c1")
        assert await stores.conversations.delete("ann", "c1")
        assert not await stores.conversations.delete("ann", "c1")
        assert stores.retention.bytes == 0

    async def test_chats_are_listed_by_model_and_metadata_in_pages(self, stores: Stores) -> None:
        for number, (owner, model) in enumerate([("ann", "m"), ("ann", "n"), ("bob", "m"), ("ann", "m")]):
            metadata = {"n": str(number), "of": owner}
            chat = KeptChat(id=f"h{number}", owner=owner, created=7, model=model, metadata=metadata, body=b"{}")
            await stores.chats.add(chat, items("a", "b"))

        async def listed(page: Page, model: str | None = None, **metadata: str) -> tuple[list[str], bool]:
            found, more = await stores.chats.list("ann", page, model=model, metadata=metadata)
            return [chat.id for chat in found], more

        assert await listed(OLDEST) == (["h0", "h1", "h3"], False)
        assert await listed(Page(limit=2)) == (["h3", "h1"], True)
        assert await listed(Page(after="h1")) == (["h0"], False)
        assert await listed(NEWEST, "m") == (["h3", "h0"], False)
        assert await listed(NEWEST, n="1", of="ann") == (["h1"], False)
        assert await listed(NEWEST, n="2") == ([], False)
        with pytest.raises(InvalidRequest):
            await listed(Page(after="h2"))

    async def test_a_chat_is_kept_with_its_messages_until_it_is_deleted(self, stores: Stores) -> None:
        chat = KeptChat(id="h", owner="ann", created=7, model="m", metadata={"a": "b"}, body=b'{"x":1}')
        await stores.chats.add(chat, items("a", "b"))
        assert await stores.chats.find("ann", "h") == chat
        assert await stores.chats.find("bob", "h") is None
        await stores.chats.set_metadata("h", {"c": "d"})
        found = await stores.chats.find("ann", "h")
        assert found is not None
        assert found.metadata == {"c": "d"}
        assert (await stores.chats.messages("h", OLDEST)).items == items("a", "b")
        assert not await stores.chats.delete("bob", "h")
        assert await stores.chats.delete("ann", "h")
        assert not await stores.chats.delete("ann", "h")
        assert stores.retention.bytes == 0

    async def test_69_bytes_are_bounded_and_what_was_used_longest_ago_goes_first(
        self, place: Place, clock: Clock
    ) -> None:
        async with aclosing(await open_stores(place, Bounds(1e9, 10_000), clock)) as stores:
            await stores.responses.add(running("busy", body=b"x" * 1000), [], lease_until=1e12)
            for number in range(40):
                await stores.responses.add(response(f"r{number}", body=b"x" * 1000), items("a"))
                assert stores.retention.bytes <= 10_000
            counted = stores.retention.bytes
            await stores.retention.load()
            assert stores.retention.bytes == counted
            assert await stores.responses.find("ann", "r39") is not None
            assert await stores.responses.find("ann", "r31") is None
            assert await stores.responses.find("ann", "busy") is not None
            with pytest.raises(NotReady) as caught:
                await stores.responses.add(response("huge", body=b"x" * 9500), [])
            assert caught.value.code == "storage_full"
            assert await stores.responses.find("ann", "huge") is None

    async def test_69_age_is_bounded_and_use_keeps(self, place: Place, clock: Clock) -> None:
        async with aclosing(await open_stores(place, Bounds(86_400, 1 << 30), clock)) as stores:
            await stores.responses.add(response("old"), items("a"))
            await stores.responses.add(response("r1"), items("a"))
            await stores.responses.add(running("busy"), [], lease_until=1e12)
            clock.time += 80_000
            await stores.responses.add(response("r2", parent="r1"), items("b"))
            assert await stores.responses.chain("ann", "r2") is not None
            clock.time += 10_000
            assert await stores.retention.expire() is False
            left = [name for name in ("old", "r1", "r2", "busy") if await stores.responses.find("ann", name)]
            assert left == ["r1", "r2", "busy"]
            clock.time += 90_000
            await stores.retention.expire()
            assert await stores.responses.find("ann", "r2") is None

    async def test_an_operation_whose_client_leaves_is_counted_if_it_is_done_and_the_rest_goes_on(
        self, stores: Stores
    ) -> None:
        for number in range(20):
            task = asyncio.ensure_future(stores.responses.add(response(f"r{number}"), items("a")))
            for _ in range(number):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await stores.responses.add(response("last"), items("a"))
        assert await stores.responses.find("ann", "last") is not None
        kept = select(func.sum(RESPONSES.c.bytes))
        async with asyncio.timeout(10):  # on a server, one that has begun may still be on its way
            while stores.retention.bytes != await stores.database.read(lambda one: one.execute(kept).scalar_one()):
                pass


class TestMemory(StoreContract):
    @pytest.fixture
    async def place(self, tmp_path: Path) -> Place:
        return MemoryPlace()


class TestSqlite(StoreContract):
    @pytest.fixture
    async def place(self, tmp_path: Path) -> Place:
        return FilePlace(tmp_path / "folder" / "gateway.db")


class TestPostgresql(StoreContract):
    @pytest.fixture
    async def place(self, tmp_path: Path) -> Place:
        return await empty_postgresql()
