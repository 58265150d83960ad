"""Rows of usage, and their sums by the hour, which outlive them.

Both are written in one transaction, so the sums are those of all rows that ever were. Rows are for a look at single
requests and kept short; questions about longer times, and what was spent of a budget, are answered from the sums.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter

import msgspec
from sqlalchemy import ColumnElement, Integer, case, cast, delete, func, insert, literal_column, select, text
from sqlalchemy.engine import Connection

from gateway.storage.database import Database
from gateway.storage.schema import USAGE_GROUPS, USAGE_HOURS
from gateway.usage.row import USAGE_SUMS, GroupedBy, UsageRow

__all__ = ["HOURS_KEPT_S", "MAX_FREE_NAMES", "MAX_ROWS", "OTHER", "ROWS_KEPT_S", "UsageStore"]

ROWS_KEPT_S = 7 * 86_400.0
MAX_ROWS = 1_000_000
HOURS_KEPT_S = 400 * 86_400.0
MAX_FREE_NAMES = 256
"""A client may make names of models and of users up. Of those that cost it nothing, so many have sums of
their own in an hour; what comes after them is summed up under OTHER."""
OTHER = "(other)"
_HOUR_S = 3600
_DAY_S = 86_400
_DROP_EVERY_S = 60.0
_GROUPS_AT_ONCE = 16
_MOST = 10**15

_Names = tuple[str, str, str, str]
"""The model, its provider, the upstream model, the end user."""
_encode = msgspec.json.Encoder().encode
_ROWS = msgspec.json.Decoder(list[UsageRow])
_PLACES = ("hour", "key", "model", "provider", "upstream_model", "is_shadow", "team", "end_user")
_ADD = text(
    f"INSERT INTO usage_hours ({', '.join((*_PLACES, *USAGE_SUMS))}) "
    f"VALUES ({', '.join(f':{name}' for name in (*_PLACES, *USAGE_SUMS))}) "
    f"ON CONFLICT ({', '.join(_PLACES)}) DO UPDATE SET "
    + ", ".join(f"{name} = usage_hours.{name} + excluded.{name}" for name in USAGE_SUMS)
)
_COLUMNS: Mapping[str, ColumnElement[str]] = {
    # A copy for a shadow is the operator's own, as in budgets: no client is told to have used it.
    **{
        name: case((USAGE_HOURS.c.is_shadow, literal_column("''")), else_=USAGE_HOURS.c[name]).label(f"of_{name}")
        for name in ("key", "team", "end_user")
    },
    **{name: USAGE_HOURS.c[name] for name in ("model", "provider", "upstream_model")},
}


class UsageStore:
    """`now` gives Unix seconds."""

    def __init__(self, database: Database, now: Callable[[], float]) -> None:
        self.database = database
        self._now = now
        self._dropped_at = 0.0
        self._hour = 0
        self._free_names: dict[str, set[_Names]] = {}
        """Of each key in that hour."""

    async def add(self, rows: Sequence[UsageRow]) -> None:
        """All of them or none."""
        now = self._now()
        drops = now - self._dropped_at >= _DROP_EVERY_S
        if drops:
            self._dropped_at = now

        def write(connection: Connection) -> None:
            group = {"first": rows[0].at, "last": rows[-1].at, "count": len(rows), "rows": _encode(rows)}
            connection.execute(insert(USAGE_GROUPS), [group])
            connection.execute(_ADD, _sums(rows, self._names))
            if drops:
                _drop_old(connection, now)

        # Nobody waits for it, and rows that were written after all would be written again.
        await self.database.write(write, gives_up=False)

    async def attempts(self, *, since: float, until: float, limit: int, key: str | None) -> list[UsageRow]:
        """The newest ones of that time, newest first. `key` None: of all keys."""
        wanted = (USAGE_GROUPS.c.last >= since) & (USAGE_GROUPS.c.first < until)
        query = select(USAGE_GROUPS.c.rows).where(wanted).order_by(USAGE_GROUPS.c.number.desc())

        def newest(connection: Connection) -> list[UsageRow]:
            found: list[UsageRow] = []
            with connection.execution_options(yield_per=_GROUPS_AT_ONCE).execute(query) as groups:
                for (raw,) in groups:
                    rows = (row for row in reversed(_ROWS.decode(raw)) if since <= row.at < until)
                    found += [row for row in rows if key is None or row.key == key]
                    if len(found) >= limit:
                        break
            return found[:limit]

        return await self.database.read(newest)

    async def spent(
        self,
        since: int,
        *,
        key: str | None = None,
        team: str | None = None,
        end_user: str | None = None,
        model: str | None = None,
    ) -> Sequence[tuple[str, int]]:
        """Billionths of a dollar since the beginning of an hour, by model. None: of all keys, teams, users, models."""
        wanted = (USAGE_HOURS.c.hour >= since) & USAGE_HOURS.c.is_shadow.is_(False)
        if key is not None:
            wanted &= USAGE_HOURS.c.key == key
        if team is not None:
            wanted &= USAGE_HOURS.c.team == team
        if end_user is not None:
            wanted &= (USAGE_HOURS.c.end_user == end_user) & (USAGE_HOURS.c.end_user != literal_column("''"))
        if model is not None:
            wanted &= USAGE_HOURS.c.model == model
        total = cast(func.sum(USAGE_HOURS.c.cost_nano_usd), Integer)
        query = select(USAGE_HOURS.c.model, total).where(wanted).group_by("model")
        rows = await self.database.read(lambda connection: connection.execute(query).all())
        return [(str(name), int(nano)) for name, nano in rows]

    async def totals(
        self, groups: Sequence[GroupedBy], *, since: int, until: int, limit: int, where: Mapping[str, str]
    ) -> tuple[list[dict[str, object]], bool]:
        """Sums for each group, ordered by it, and whether there are more. Times are cut to whole hours.

        `where` holds wanted values of the columns that groups can name, but for `day`. Copies for shadows have no key.
        """
        hour = USAGE_HOURS.c.hour
        wanted: ColumnElement[bool] = (hour >= since - since % _HOUR_S) & (hour < until)
        for name, value in where.items():
            wanted &= _COLUMNS[name] == value
        day = (hour - hour % literal_column(str(_DAY_S))).label("day")
        columns = [day if name == "day" else _COLUMNS[name] for name in groups]
        sums = [func.coalesce(func.sum(USAGE_HOURS.c[name]), 0).label(name) for name in USAGE_SUMS]
        query = select(*columns, *sums).where(wanted).group_by(*columns).order_by(*columns).limit(limit + 1)
        rows = await self.database.read(lambda connection: connection.execute(query).all())
        found: list[dict[str, object]] = [
            {**dict(zip(groups, row, strict=False)), **dict(zip(USAGE_SUMS, map(int, row[len(groups) :]), strict=True))}
            for row in rows
        ]
        if not groups and found and not found[0]["attempts"]:
            found = []
        return found[:limit], len(found) > limit

    def _names(self, row: UsageRow, hour: int) -> _Names:
        """Those under which a row is summed up."""
        names = (row.model, row.provider, row.upstream_model, row.end_user)
        if row.cost_nano_usd:
            return names
        if hour > self._hour:
            self._hour, self._free_names = hour, {}
        known = self._free_names.setdefault(row.key, set())
        if names not in known:
            if len(known) >= MAX_FREE_NAMES:
                return (OTHER, row.provider, OTHER, OTHER if row.end_user else "")
            known.add(names)
        return names


def _sums(rows: Sequence[UsageRow], names: Callable[[UsageRow, int], _Names]) -> list[dict[str, object]]:
    """Of each place; `names` are those of a row in its hour. In one order everywhere, so that two writers never wait
    for each other in a ring."""
    places: dict[tuple[int, str, str, str, str, bool, str, str], list[UsageRow]] = {}
    for row in rows:
        hour = int(row.at) - int(row.at) % _HOUR_S
        model, provider, upstream_model, end_user = names(row, hour)
        place = (hour, row.key, model, provider, upstream_model, row.kind == "shadow", row.team, end_user)
        places.setdefault(place, []).append(row)
    return [
        {
            **dict(zip(_PLACES, place, strict=True)),
            "attempts": len(found),
            "failed": sum([row.status != "ok" for row in found]),
            **{name: _sum(map(attrgetter(name), found)) for name in USAGE_SUMS[2:]},
        }
        for place, found in sorted(places.items())
    ]


def _sum(numbers: Iterable[int | None]) -> int:
    """As a column can hold it for long, whatever an upstream said that it had used."""
    return min(max(sum(filter(None, numbers)), 0), _MOST)


def _drop_old(connection: Connection, now: float) -> None:
    connection.execute(delete(USAGE_GROUPS).where(USAGE_GROUPS.c.last < now - ROWS_KEPT_S))
    newer = func.sum(USAGE_GROUPS.c.count).over(order_by=USAGE_GROUPS.c.number.desc()).label("newer")
    counted = select(USAGE_GROUPS.c.number, newer).subquery()
    last = select(func.max(counted.c.number)).where(counted.c.newer > MAX_ROWS)
    excess = connection.execute(last).scalar_one_or_none()
    if excess is not None:
        connection.execute(delete(USAGE_GROUPS).where(USAGE_GROUPS.c.number <= excess))
    connection.execute(delete(USAGE_HOURS).where(USAGE_HOURS.c.hour < int(now - HOURS_KEPT_S)))
