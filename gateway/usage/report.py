"""How sums and rows of usage are told: money in dollars, days as dates; and which span of time is meant."""

import csv
import io
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import get_args

from gateway.limits.scope import NANO
from gateway.usage.row import GroupedBy

__all__ = ["DEFAULT_SPAN_S", "GROUPS", "parse_groups", "parse_time", "told", "told_as_csv"]

DEFAULT_SPAN_S = 30 * 86_400
"""What is told where nobody says since when."""
GROUPS: tuple[GroupedBy, ...] = get_args(GroupedBy)
_NANO, _USD = "cost_nano_usd", "cost_usd"
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""What a spreadsheet would compute; clients choose names of models."""


def parse_groups(words: str) -> list[GroupedBy]:
    """Names with commas between, in the order of `GROUPS`. Raises ValueError, saying what was expected."""
    wanted = [word.strip() for word in words.split(",") if word.strip()]
    groups = [group for group in GROUPS if group in wanted]
    if len(groups) != len(wanted):
        raise ValueError(f"expected some of {', '.join(GROUPS)}, with commas between")
    return groups


def parse_time(word: str) -> float:
    """Unix seconds of a date or time as ISO 8601 writes it (UTC where it does not say), or of such seconds. Raises
    ValueError, saying what was expected."""
    try:
        if word.isascii() and word.isdigit():
            return float(int(word[:12]))
        moment = datetime.fromisoformat(word)
        return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise ValueError("expected a date (2026-11-01) or Unix seconds") from None


def told(row: dict[str, object]) -> dict[str, object]:
    """A row of the database as people and programs are told it."""
    found = dict(row)
    nano = found.pop(_NANO)
    found[_USD] = nano / NANO if isinstance(nano, int) else None
    day = found.get("day")
    if isinstance(day, int):
        found["day"] = datetime.fromtimestamp(day, UTC).date().isoformat()
    return found


def told_as_csv(rows: Iterable[dict[str, object]], columns: Sequence[str]) -> str:
    """A table of such rows, with a head; `columns` as the database calls them."""
    text = io.StringIO()
    names = [*(name for name in columns if name != _NANO), _USD]
    table = csv.DictWriter(text, names, lineterminator="\n")
    table.writeheader()
    table.writerows({name: _cell(value) for name, value in row.items()} for row in rows)
    return text.getvalue()


def _cell(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value
