"""GET /admin/usage: what was used and what it cost, by key, model, provider and day; and single attempts of late.

/admin/usage?group=key,day&since=2026-11-01&model=fast
/admin/usage?group=key&format=csv
/admin/usage/attempts?key=team-a&limit=50
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from msgspec.structs import asdict

from adapters.canonical.errors import InvalidRequest
from gateway.http.answer import Reply
from gateway.server.admin.keys import answered, query_limit
from gateway.server.admin.routes import AdminTable
from gateway.server.exchange import Exchange
from gateway.usage.ledger import Ledger
from gateway.usage.report import DEFAULT_SPAN_S, parse_groups, parse_time, told, told_as_csv
from gateway.usage.row import USAGE_SUMS

if TYPE_CHECKING:
    from gateway.storage.opening import Stores

__all__ = ["AdminUsage"]

_MAX_GROUPS = 10_000
_MAX_ATTEMPTS = 1000
_CSV = {"Content-Type": "text/csv; charset=utf-8", "Content-Disposition": 'attachment; filename="usage.csv"'}
_FILTERS = ("key", "team", "end_user", "model", "provider", "upstream_model")


class AdminUsage:
    """`stores` opens the database, `ledger` holds what is not written yet, `now` gives Unix seconds."""

    def __init__(
        self, stores: "Callable[[], Awaitable[Stores]]", ledger: Ledger | None, *, now: Callable[[], float]
    ) -> None:
        self._stores = stores
        self._ledger = ledger
        self._now = now
        self.table: AdminTable = {
            "/admin/usage": {"GET": self._totals},
            "/admin/usage/attempts": {"GET": self._attempts},
        }

    async def _totals(self, exchange: Exchange) -> Reply:
        query = exchange.request.query
        since, until = self._span(exchange)
        try:
            groups = parse_groups(query.get("group", ""))
        except ValueError as error:
            raise InvalidRequest.at("group", str(error)) from None
        where = {name: value for name in _FILTERS if (value := query.get(name)) is not None}
        limit = query_limit(exchange, _MAX_GROUPS)
        as_csv = _wants_csv(query.get("format", "json"))
        await self._write_all()
        usage = (await self._stores()).usage
        rows, has_more = await usage.totals(groups, since=int(since), until=int(until), limit=limit, where=where)
        found = [told(row) for row in rows]
        if not as_csv:
            return answered(exchange, {"object": "list", "data": found, "has_more": has_more})
        if has_more:
            raise InvalidRequest.at(
                "format", f"more than {limit} rows, which a table cannot tell; ask for fewer groups"
            )
        return exchange.answer(told_as_csv(found, (*groups, *USAGE_SUMS)).encode(), _CSV)

    async def _attempts(self, exchange: Exchange) -> Reply:
        since, until = self._span(exchange)
        limit = query_limit(exchange, _MAX_ATTEMPTS)
        await self._write_all()
        usage = (await self._stores()).usage
        rows = await usage.attempts(since=since, until=until, limit=limit, key=exchange.request.query.get("key"))
        return answered(exchange, {"object": "list", "data": [told(asdict(row)) for row in rows]})

    async def _write_all(self) -> None:
        if self._ledger is not None:
            await self._ledger.flush()

    def _span(self, exchange: Exchange) -> tuple[float, float]:
        until = _time_of(exchange, "until")
        until = self._now() + 1 if until is None else until
        since = _time_of(exchange, "since")
        return (until - DEFAULT_SPAN_S if since is None else since), until


def _wants_csv(word: str) -> bool:
    if word not in ("json", "csv"):
        raise InvalidRequest.at("format", "expected json or csv")
    return word == "csv"


def _time_of(exchange: Exchange, name: str) -> float | None:
    word = exchange.request.query.get(name)
    try:
        return None if word is None else parse_time(word)
    except ValueError as error:
        raise InvalidRequest.at(name, str(error)) from None
