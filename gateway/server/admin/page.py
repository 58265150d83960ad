"""GET /admin: usage as a page for people, by day and by key, team, model or provider.

It is made whole, with a drawing in it and no script. A browser shows an admin's key as the password of HTTP Basic
authentication, which this page alone takes: browsers send one by themselves, also where another site's page asks.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from html import escape
from typing import TYPE_CHECKING, Final

from adapters.canonical.errors import InvalidRequest
from gateway.http.answer import Reply
from gateway.limits.scope import NANO
from gateway.server.admin.routes import AdminTable
from gateway.server.exchange import Exchange
from gateway.usage.ledger import Ledger
from gateway.usage.report import GROUPS
from gateway.usage.row import GroupedBy

if TYPE_CHECKING:
    from gateway.storage.opening import Stores

__all__ = ["AdminPage"]

Rows = Sequence[Mapping[str, object]]

_SPANS: Final = (7, 30, 90, 365)
_BY: Final[Mapping[str, GroupedBy]] = {name: name for name in GROUPS if name != "day"}
_MAX_READ, _MAX_SHOWN = 10_000, 1000
_DAY_S: Final = 86_400
_WIDTH, _HEIGHT = 720, 160
_HEADERS: Final = {
    "Content-Type": "text/html; charset=utf-8",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'",
}
_STYLE: Final = (
    ":root{color-scheme:light dark}body{font:15px system-ui,sans-serif;max-width:52rem;margin:2rem auto;padding:0 1rem}"
    "table{border-collapse:collapse;width:100%}th,td{text-align:right;padding:.3rem;border-bottom:1px solid #8884}"
    "th:first-child,td:first-child{text-align:left;overflow-wrap:anywhere}"
    "figure{margin:0 0 1rem}svg{width:100%;height:auto}rect{fill:#3987e5}"
    "p.sum{font-size:1.4rem}"
)


class AdminPage:
    """`stores` opens the database, `ledger` holds what is not written yet (None: nothing is kept), `now` gives Unix
    seconds."""

    def __init__(
        self, stores: "Callable[[], Awaitable[Stores]]", ledger: Ledger | None, *, now: Callable[[], float]
    ) -> None:
        self._stores = stores
        self._ledger = ledger
        self._now = now
        self.table: AdminTable = {path: {"GET": self._show} for path in ("/admin", "/admin/")}

    async def _show(self, exchange: Exchange) -> Reply:
        query = exchange.request.query
        days = next((span for span in _SPANS if str(span) == query.get("days", "30")), None)
        if days is None:
            raise InvalidRequest.at("days", f"expected one of {', '.join(map(str, _SPANS))}")
        by = _BY.get(query.get("by", "key"))
        if by is None:
            raise InvalidRequest.at("by", f"expected one of {', '.join(_BY)}")
        until = int(self._now()) + 1
        first = until - until % _DAY_S - (days - 1) * _DAY_S
        by_day = await self._totals("day", first, until)
        rows = await self._totals(by, first, until)
        page = _page(by, days, by_day, rows, first=first, is_kept=self._ledger is not None)
        return exchange.answer(page.encode(), _HEADERS)

    async def _totals(self, group: GroupedBy, since: int, until: int) -> Rows:
        if self._ledger is None:
            return []
        await self._ledger.flush()
        usage = (await self._stores()).usage
        rows, _ = await usage.totals([group], since=since, until=until, limit=_MAX_READ, where={})
        return rows


def _page(by: str, days: int, by_day: Rows, rows: Rows, *, first: int, is_kept: bool) -> str:
    costs = sum(_number(row, "cost_nano_usd") for row in by_day)
    told = (
        f'<p class="sum">{_usd(costs)}, {sum(_tokens(row) for row in by_day):,} tokens, '
        f"{sum(_number(row, 'attempts') for row in by_day):,} calls</p>{_plot(by_day, days, first)}{_table(by, rows)}"
    )
    none = "<p>Usage is kept once run.yaml has <code>auth</code>, <code>prices</code> or a budget.</p>"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Usage</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
        f"<style>{_STYLE}</style></head><body><h1>Usage</h1>"
        f"<form>{_choice('days', [str(span) for span in _SPANS], str(days))} days by "
        f"{_choice('by', list(_BY), by)} <button>Show</button></form>{told if is_kept else none}</body></html>"
    )


def _choice(name: str, values: Sequence[str], chosen: str) -> str:
    options = [f"<option{' selected' if value == chosen else ''}>{value}</option>" for value in values]
    return f'<select name="{name}" aria-label="{name}">{"".join(options)}</select>'


def _plot(by_day: Rows, days: int, first: int) -> str:
    """A bar a day (UTC): of what it cost, or of tokens where nothing has a price."""
    found = {_number(row, "day"): row for row in by_day}
    is_priced = any(_number(row, "cost_nano_usd") for row in by_day)
    amounts = {at: _number(row, "cost_nano_usd") if is_priced else _tokens(row) for at, row in found.items()}
    told = _usd if is_priced else _count
    most = max(amounts.values(), default=0)
    width = _WIDTH / days
    dates = [(datetime.fromtimestamp(first, UTC) + timedelta(days=index)).date().isoformat() for index in range(days)]
    bars: list[str] = []
    for index, day in enumerate(dates):
        amount = amounts.get(first + index * _DAY_S, 0)
        height = amount / (most or 1) * _HEIGHT
        bars.append(
            f'<rect x="{index * width:.2f}" y="{_HEIGHT - height:.2f}" width="{width * 0.8:.2f}" height="{height:.2f}">'
            f"<title>{day}: {told(amount)}</title></rect>"
        )
    what = "Dollars" if is_priced else "Tokens"
    span = f"{what} a day (UTC), from {dates[0]} to {dates[-1]}; at most {told(most)}"
    drawing = f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{what} a day">{"".join(bars)}</svg>'
    return f"<figure>{drawing}<figcaption>{span}</figcaption></figure>"


def _count(tokens: int) -> str:
    return f"{tokens:,} tokens"


def _table(by: str, rows: Rows) -> str:
    """What cost most stands first."""
    lines = sorted(rows, key=lambda row: (_number(row, "cost_nano_usd"), _tokens(row)), reverse=True)
    names = (by, "calls", "failed", "prompt tokens", "answer tokens", "cost")
    head = "".join([f"<th>{escape(name.replace('_', ' '))}</th>" for name in names])
    shown = [_cells(by, row) for row in lines[:_MAX_SHOWN]]
    body = "".join([f"<tr>{''.join([f'<td>{cell}</td>' for cell in cells])}</tr>" for cells in shown])
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cells(by: str, row: Mapping[str, object]) -> tuple[str, ...]:
    counts = [f"{_number(row, name):,}" for name in ("attempts", "failed", "prompt_tokens", "completion_tokens")]
    return escape(str(row[by])) or "-", *counts, _usd(_number(row, "cost_nano_usd"))


def _tokens(row: Mapping[str, object]) -> int:
    return _number(row, "prompt_tokens") + _number(row, "completion_tokens")


def _number(row: Mapping[str, object], name: str) -> int:
    value = row[name]
    return value if isinstance(value, int) else 0


def _usd(nano: int) -> str:
    return f"${nano / NANO:,.2f}" if nano >= NANO or not nano else f"${nano / NANO:.6f}"
