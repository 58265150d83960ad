"""What several tables have: owners of objects, and lists of items inside an object."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Table, exists, insert, select
from sqlalchemy.engine import Connection

from adapters.canonical.errors import InvalidRequest
from gateway.storage.records import KeptItem, Page, PageOf

__all__ = ["add_items", "owned", "page_of_items", "size_of"]


def owned(table: Table, owner: str, object_id: str) -> ColumnElement[bool]:
    """The one object of this owner with this id."""
    return (table.c.id == object_id) & (table.c.owner == owner)


def size_of(items: Sequence[KeptItem]) -> int:
    return sum(len(item.raw) + len(item.id) for item in items)


def add_items(connection: Connection, table: Table, items: Sequence[KeptItem], *, first: int, **columns: Any) -> None:
    """`first` is the position of the first one; `columns` have the same value in each row."""
    if items:
        rows = [
            {"position": position, "item": item.id, "raw": item.raw, **columns}
            for position, item in enumerate(items, first)
        ]
        connection.execute(insert(table), rows)


def page_of_items(connection: Connection, table: Table, wanted: ColumnElement[bool], page: Page) -> PageOf:
    """Items of the rows that `wanted` names, of one object. Raises InvalidRequest for a cursor that is not among them.

    Of several with one id (a client sent a turn again) the first alone: a cursor names one place.
    """
    position, (parent, *_) = table.c.position, table.primary_key
    other = table.alias()
    is_again = exists().where(other.c[parent.name] == parent, other.c.item == table.c.item, other.c.position < position)
    query = select(table.c.item, table.c.raw).where(wanted, ~is_again)
    if page.after is not None:
        cursor = select(position).where(wanted, table.c.item == page.after).order_by(position).limit(1)
        found = connection.execute(cursor).scalar_one_or_none()
        if found is None:
            raise InvalidRequest.at("after", f"there is no item '{page.after[:100]}' here")
        query = query.where(position < found if page.descending else position > found)
    query = query.order_by(position.desc() if page.descending else position).limit(page.limit + 1)
    items = [KeptItem(*row) for row in connection.execute(query)]
    return PageOf(items[: page.limit], len(items) > page.limit)
