"""GET /admin/usage: what was used and what it cost, by key, model, provider and day; and single attempts of late.

/admin/usage?group=key,day&since=2026-11-01&model=fast
/admin/usage/attempts?key=team-a&limit=50
"""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, get_args

from msgspec.structs import asdict

from adapters.canonical.errors import InvalidRequest
from gateway.http.answer import Reply
from gateway.limits.scope import NANO
from gateway.server.admin import AdminTable
from gateway.server.admin_keys import answered, query_limit
from gateway.server.exchange import Exchange
from gateway.usage.ledger import Ledger
from gateway.usage.row import GroupedBy

if TYPE_CHECKING:
    from gateway.storage.opening import Stores

__all__ = ["AdminUsage"]

_DEFAULT_S = 30 * 86_400
_MAX_GROUPS = 10_000
_MAX_ATTEMPTS = 1000
_GROUPS: tuple[GroupedBy, ...] = get_args(GroupedBy)
_FILTERS = ("key", "model", "provider", "upstream_model")


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
        words = [word for word in query.get("group", "").split(",") if word]
        groups = [group for group in _GROUPS if group in words]
        if len(groups) != len(words):
            raise InvalidRequest(f"group: expected some of {', '.join(_GROUPS)}, with commas between", param="group")
        where = {name: value for name in _FILTERS if (value := query.get(name)) is not None}
        limit = query_limit(exchange, _MAX_GROUPS)
        await self._write_all()
        usage = (await self._stores()).usage
        rows, has_more = await usage.totals(groups, since=int(since), until=int(until), limit=limit, where=where)
        return answered(exchange, {"object": "list", "data": [_told(row) for row in rows], "has_more": has_more})

    async def _attempts(self, exchange: Exchange) -> Reply:
        since, until = self._span(exchange)
        limit = query_limit(exchange, _MAX_ATTEMPTS)
        await self._write_all()
        usage = (await self._stores()).usage
        rows = await usage.attempts(since=since, until=until, limit=limit, key=exchange.request.query.get("key"))
        return answered(exchange, {"object": "list", "data": [_told(asdict(row)) for row in rows]})

    async def _write_all(self) -> None:
        if self._ledger is not None:
            await self._ledger.flush()

    def _span(self, exchange: Exchange) -> tuple[float, float]:
        until = _time_of(exchange, "until")
        until = self._now() + 1 if until is None else until
        since = _time_of(exchange, "since")
        return (until - _DEFAULT_S if since is None else since), until


def _time_of(exchange: Exchange, name: str) -> float | None:
    """A field of the query that is Unix seconds, or a date or time as ISO 8601 writes it; UTC where it does not say."""
    word = exchange.request.query.get(name)
    if word is None:
        return None
    try:
        if word.isascii() and word.isdigit():
            return float(int(word[:12]))
        moment = datetime.fromisoformat(word)
        return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise InvalidRequest(f"{name}: expected a date (2026-11-01) or Unix seconds", param=name) from None


def _told(row: dict[str, object]) -> dict[str, object]:
    """With money in dollars, and days as dates."""
    told = dict(row)
    nano = told.pop("cost_nano_usd")
    told["cost_usd"] = nano / NANO if isinstance(nano, int) else None
    day = told.get("day")
    if isinstance(day, int):
        told["day"] = datetime.fromtimestamp(day, UTC).date().isoformat()
    return told
