"""Responses: the object, what it was given and made, and the log of its events."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any, NamedTuple

from sqlalchemy import Executable, bindparam, func, insert, literal, select, update
from sqlalchemy.engine import Connection

from gateway.storage.conversations import append_entries
from gateway.storage.database import Database
from gateway.storage.records import Advance, KeptEvent, KeptItem, KeptResponse, Page, PageOf
from gateway.storage.retention import Retention
from gateway.storage.rows import add_items, owned, page_of_items, size_of
from gateway.storage.schema import CONVERSATIONS, ENTRIES, EVENTS, ITEMS, RESPONSES

__all__ = ["Chain", "ResponseStore"]

_COLUMNS = tuple([RESPONSES.c[field.name] for field in fields(KeptResponse)])
_LONGEST_CHAIN = 10_000
_TOUCH_US = 3_600_000_000
"""Use is noted once an hour."""
_IN_CONVERSATION = ("completed", "incomplete")
"""States whose items go into the response's conversation."""


def _walk_back() -> Executable:
    """The steps from a response to the first one before it."""
    columns = (RESPONSES.c.id, RESPONSES.c.parent, RESPONSES.c.status)
    owned = RESPONSES.c.owner == bindparam("of_owner")
    first = select(*columns, literal(0).label("step")).where(RESPONSES.c.id == bindparam("from_id"), owned)
    back = first.cte("back", recursive=True)
    before = (
        select(*columns, back.c.step + 1)
        .join(back, RESPONSES.c.id == back.c.parent)
        .where(owned, back.c.step < _LONGEST_CHAIN)
    )
    back = back.union_all(before)
    return select(back).order_by(back.c.step)


_WALK_BACK = _walk_back()


class Chain(NamedTuple):
    """What stands before an answer to a response: the items of it and of all before it, oldest first.

    `missing` is the id of a response before it that is not kept any more.
    """

    status: str
    items: list[KeptItem]
    missing: str | None


class ResponseStore:
    """Nothing here waits for an answer that is being made."""

    def __init__(self, database: Database, retention: Retention) -> None:
        self.database = database
        self._retention = retention

    async def add(
        self,
        response: KeptResponse,
        given: Sequence[KeptItem],
        made: Sequence[KeptItem] = (),
        *,
        events: Sequence[KeptEvent] = (),
        lease_until: float | None = None,
    ) -> None:
        """Keeps one. `lease_until` (Unix s) is set while its worker makes it."""
        size = len(response.body) + size_of(given) + size_of(made) + _size_of_events(events)
        stamp = self._retention.stamp()
        row = {**asdict(response), "used": stamp, "bytes": size, "lease_until": lease_until}

        def work(connection: Connection) -> tuple[None, int]:
            change = self._retention.make_room(connection, size, for_id=response.id)
            connection.execute(insert(RESPONSES), [row])
            add_items(connection, ITEMS, given, first=0, response=response.id, made=False)
            add_items(connection, ITEMS, made, first=len(given), response=response.id, made=True)
            _add_events(connection, response.id, events)
            if response.status in _IN_CONVERSATION and response.conversation is not None:
                change += append_entries(connection, response.conversation, [*given, *made], stamp)
            return None, change

        await self._retention.write(work)

    async def find(self, owner: str, response_id: str) -> KeptResponse | None:
        wanted = select(*_COLUMNS).where(owned(RESPONSES, owner, response_id))
        row = await self.database.read(lambda connection: connection.execute(wanted).one_or_none())
        return None if row is None else KeptResponse(**row._mapping)

    async def delete(self, owner: str, response_id: str) -> bool:
        """Whether there was one."""
        return await self._retention.drop(RESPONSES, owned(RESPONSES, owner, response_id))

    async def given_items(self, owner: str, response_id: str, page: Page) -> PageOf | None:
        """A page of what the response was given itself; None: there is no such response.

        Raises InvalidRequest for a cursor that is not there.
        """
        own = select(RESPONSES.c.id).where(owned(RESPONSES, owner, response_id))
        wanted = (ITEMS.c.response == response_id) & ITEMS.c.made.is_(False)

        def read(connection: Connection) -> PageOf | None:
            if connection.execute(own).first() is None:
                return None
            return page_of_items(connection, ITEMS, wanted, page)

        return await self.database.read(read)

    async def made_items(self, response_id: str) -> list[KeptItem]:
        """What the response made, as a later turn needs it."""
        wanted = select(ITEMS.c.item, ITEMS.c.raw).where(ITEMS.c.response == response_id, ITEMS.c.made)
        query = wanted.order_by(ITEMS.c.position)
        return await self.database.read(lambda connection: [KeptItem(*row) for row in connection.execute(query)])

    async def chain(self, owner: str, response_id: str) -> Chain | None:
        """None: there is no such response."""
        found = await self.database.read(lambda connection: _read_chain(connection, owner, response_id))
        if found is None:
            return None
        chain, ids = found
        await self._touch(ids)
        return chain

    async def find_items(self, owner: str, item_ids: Iterable[str]) -> Mapping[str, bytes]:
        """Items of any response or conversation of the owner, by id."""
        ids = list(item_ids)
        return await self.database.read(lambda connection: _read_items(connection, owner, ids)) if ids else {}

    async def events(self, response_id: str, after: int, limit: int) -> list[KeptEvent]:
        """Events with a number above `after`, in order."""
        wanted = (
            select(EVENTS.c.number, EVENTS.c.name, EVENTS.c.data)
            .where(EVENTS.c.response == response_id, EVENTS.c.number > after)
            .order_by(EVENTS.c.number)
            .limit(limit)
        )
        return await self.database.read(lambda connection: [KeptEvent(*row) for row in connection.execute(wanted)])

    async def advance(self, advances: Sequence[Advance], lease_until: float) -> frozenset[str]:
        """Writes all of it in one transaction. Gives the ids of responses that are final already, or gone, or went on
        (`Advance.after`): of those nothing is written."""

        def work(connection: Connection) -> tuple[frozenset[str], int]:
            grown = [(one.id, self._advance(connection, one, lease_until)) for one in advances]
            change = sum(size for _, size in grown if size is not None)
            if change > 0:
                change = self._retention.make_room(connection, change, for_id="")
            return frozenset(id_ for id_, size in grown if size is None), change

        return await self._retention.write(work)

    async def renew(self, response_ids: Sequence[str], lease_until: float) -> None:
        """Their maker lives."""
        running = RESPONSES.c.id.in_(response_ids) & RESPONSES.c.lease_until.is_not(None)
        renewed = update(RESPONSES).where(running).values(lease_until=lease_until)
        await self.database.write(lambda connection: connection.execute(renewed))

    async def running(self) -> list[tuple[KeptResponse, float]]:
        """The responses that are being made, with the end of their lease."""
        wanted = select(*_COLUMNS, RESPONSES.c.lease_until).where(RESPONSES.c.lease_until.is_not(None))
        found = await self.database.read(lambda connection: connection.execute(wanted).all())
        rows = [dict(row._mapping) for row in found]
        return [(KeptResponse(**row), lease_until) for row in rows for lease_until in (row.pop("lease_until"),)]

    def _advance(self, connection: Connection, advance: Advance, lease_until: float) -> int | None:
        """By how much it grew; None where it is not running any more."""
        if advance.after is not None and not self._is_last(connection, advance.id, advance.after):
            return None
        final = advance.final
        grown = _size_of_events(advance.events) + (0 if final is None else size_of(final.items))
        body = advance.body if final is None else final.body
        values: dict[str, Any] = {"bytes": RESPONSES.c.bytes + grown, "lease_until": lease_until}
        if body is not None:
            values["bytes"] = RESPONSES.c.bytes + grown + len(body) - func.length(RESPONSES.c.body)
            values["body"] = body
        if advance.status is not None:
            values["status"] = advance.status
        if final is not None:
            ended = {"lease_until": None, "worker": None, "used": self._retention.stamp()}
            values |= {"status": final.status, **ended}
        running = (RESPONSES.c.id == advance.id) & RESPONSES.c.lease_until.is_not(None)
        changed = update(RESPONSES).where(running).values(**values).returning(RESPONSES.c.conversation)
        row = connection.execute(changed).one_or_none()
        if row is None:
            return None
        _add_events(connection, advance.id, advance.events)
        if final is not None:
            grown += self._end(connection, advance.id, row.conversation, final.status, final.items)
        return grown

    @staticmethod
    def _is_last(connection: Connection, response_id: str, number: int) -> bool:
        """Whether this is the last event. Its maker waits until the transaction is over."""
        connection.execute(select(RESPONSES.c.id).where(RESPONSES.c.id == response_id).with_for_update())
        last = select(func.coalesce(func.max(EVENTS.c.number), -1)).where(EVENTS.c.response == response_id)
        return bool(connection.execute(last).scalar_one() == number)

    def _end(
        self,
        connection: Connection,
        response_id: str,
        conversation: str | None,
        status: str,
        made: Sequence[KeptItem],
    ) -> int:
        """Adds what was made; what the conversation grew by."""
        own = ITEMS.c.response == response_id
        rows = connection.execute(select(ITEMS.c.item, ITEMS.c.raw).where(own).order_by(ITEMS.c.position))
        given = [KeptItem(*row) for row in rows]
        add_items(connection, ITEMS, made, first=len(given), response=response_id, made=True)
        if conversation is None or status not in _IN_CONVERSATION:
            return 0
        return append_entries(connection, conversation, [*given, *made], self._retention.stamp())

    async def _touch(self, response_ids: Sequence[str]) -> None:
        """They are used, so they stay."""
        stamp = self._retention.stamp()
        old = select(RESPONSES.c.id).where(RESPONSES.c.id.in_(response_ids), RESPONSES.c.used < stamp - _TOUCH_US)
        ids = await self.database.read(lambda connection: connection.execute(old).scalars().all())
        if ids:
            touched = update(RESPONSES).where(RESPONSES.c.id.in_(ids)).values(used=stamp)
            await self.database.write(lambda connection: connection.execute(touched))


def _read_chain(connection: Connection, owner: str, response_id: str) -> tuple[Chain, list[str]] | None:
    """The chain, and the ids of its responses."""
    steps = connection.execute(_WALK_BACK, {"from_id": response_id, "of_owner": owner}).all()
    if not steps:
        return None
    ids = [step.id for step in reversed(steps)]
    # By id, in a statement of its own: joined to the walk back, SQLite would read the whole table.
    wanted = select(ITEMS.c.response, ITEMS.c.item, ITEMS.c.raw).where(ITEMS.c.response.in_(ids))
    of_each: dict[str, list[KeptItem]] = {one: [] for one in ids}
    for response, item, raw in connection.execute(wanted.order_by(ITEMS.c.response, ITEMS.c.position)):
        of_each[response].append(KeptItem(item, raw))
    items = [item for one in ids for item in of_each[one]]
    return Chain(steps[0].status, items, steps[-1].parent), ids


def _read_items(connection: Connection, owner: str, ids: Sequence[str]) -> Mapping[str, bytes]:
    found: dict[str, bytes] = {}
    for items, parent, key in ((ENTRIES, CONVERSATIONS, "conversation"), (ITEMS, RESPONSES, "response")):
        wanted = (
            select(items.c.item, items.c.raw)
            .join(parent, parent.c.id == items.c[key])
            .where(items.c.item.in_(ids), parent.c.owner == owner)
            .order_by(parent.c.created)
        )
        found.update([(item, raw) for item, raw in connection.execute(wanted)])
    return found


def _size_of_events(events: Sequence[KeptEvent]) -> int:
    return sum(len(event.data) + len(event.name) for event in events)


def _add_events(connection: Connection, response_id: str, events: Sequence[KeptEvent]) -> None:
    if events:
        rows = [{"response": response_id, **event._asdict()} for event in events]
        connection.execute(insert(EVENTS), rows)
