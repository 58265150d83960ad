"""`gateway usage`: what was used and what it cost, from the database that run.yaml names."""

import argparse
import sys
import time
from typing import TYPE_CHECKING

from gateway.cli.configuration import load
from gateway.cli.failure import CommandFailed
from gateway.cli.kept import place_of, with_stores
from gateway.cli.table import print_table

if TYPE_CHECKING:
    from gateway.storage.opening import Stores

__all__ = ["EXAMPLE", "SUMMARY", "add_arguments", "run"]

SUMMARY = "show what was used and what it cost"
EXAMPLE = "gateway usage --by key,day --since 2026-11-01"

_FILTERS = ("key", "team", "end_user", "model", "provider", "upstream_model")
_SUMS = ("attempts", "failed", "prompt_tokens", "completion_tokens")
_MAX_ROWS = 10_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--by",
        metavar="NAMES",
        default="key,model",
        help="some of key,team,end_user,model,provider,upstream_model,day (default: key,model)",
    )
    parser.add_argument("--since", metavar="TIME", help="a date or Unix seconds (default: 30 days ago)")
    parser.add_argument("--until", metavar="TIME", help="a date or Unix seconds (default: now)")
    for name in _FILTERS:
        parser.add_argument(f"--{name.replace('_', '-')}", metavar="NAME", help="only of this one")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print a JSON object a line")
    form.add_argument("--csv", action="store_true", help="print a table for spreadsheets")


def run(arguments: argparse.Namespace) -> int:
    import orjson

    from gateway.storage.place import FilePlace
    from gateway.usage.report import DEFAULT_SPAN_S, parse_groups, told, told_as_csv
    from gateway.usage.row import USAGE_SUMS

    try:
        groups = parse_groups(arguments.by)
    except ValueError as error:
        raise CommandFailed(f"--by: {error}") from None
    until = _time("--until", arguments.until, time.time() + 1)
    since = _time("--since", arguments.since, until - DEFAULT_SPAN_S)
    where = {name: value for name in _FILTERS if (value := getattr(arguments, name)) is not None}
    config = load(arguments.config)
    place = place_of(config, "usage is told by the running gateway alone (GET /admin/usage)")

    async def totals(stores: "Stores") -> tuple[list[dict[str, object]], bool]:
        return await stores.usage.totals(groups, since=int(since), until=int(until), limit=_MAX_ROWS, where=where)

    is_there = not isinstance(place, FilePlace) or place.path.exists()
    found, has_more = with_stores(place, totals) if is_there else ([], False)
    rows = [told(row) for row in found]
    if arguments.csv:
        print(told_as_csv(rows, (*groups, *USAGE_SUMS)), end="")
    elif arguments.json:
        for row in rows:
            print(orjson.dumps(row).decode())
    else:
        _print(rows, list(groups))
    if has_more:
        print(f"gateway: only the first {_MAX_ROWS} rows are shown", file=sys.stderr)
    if not rows:
        why = "" if config.keeps_usage else ": it is kept where the gateway has keys, prices or budgets"
        print(f"gateway: nothing was used in this time{why}", file=sys.stderr)
    return 0


def _time(option: str, word: str | None, default: float) -> float:
    from gateway.usage.report import parse_time

    try:
        return default if word is None else parse_time(word)
    except ValueError as error:
        raise CommandFailed(f"{option}: {error}") from None


def _print(rows: list[dict[str, object]], groups: list[str]) -> None:
    total = {name: sum(_number(row[name]) for row in rows) for name in (*_SUMS, "cost_usd")}
    shown = [[str(row[name]) or "-" for name in groups] + _numbers(row) for row in rows]
    if groups and len(rows) > 1:
        shown.append(["total", *[""] * (len(groups) - 1), *_numbers(total)])
    print_table("Usage", (*groups, *_SUMS, "cost_usd"), shown)


def _numbers(row: "dict[str, object] | dict[str, float]") -> list[str]:
    return [*(str(row[name]) for name in _SUMS), f"{_number(row['cost_usd']):.6f}"]


def _number(value: object) -> float:
    return value if isinstance(value, int | float) else 0
