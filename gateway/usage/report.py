"""How sums and rows of usage are told: money in dollars, days as dates; and which span of time is meant."""

from datetime import UTC, datetime
from typing import get_args

from gateway.limits.scope import NANO
from gateway.usage.row import GroupedBy

__all__ = ["DEFAULT_SPAN_S", "GROUPS", "parse_groups", "parse_time", "told"]

DEFAULT_SPAN_S = 30 * 86_400
"""What is told where nobody says since when."""
GROUPS: tuple[GroupedBy, ...] = get_args(GroupedBy)


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
    nano = found.pop("cost_nano_usd")
    found["cost_usd"] = nano / NANO if isinstance(nano, int) else None
    day = found.get("day")
    if isinstance(day, int):
        found["day"] = datetime.fromtimestamp(day, UTC).date().isoformat()
    return found
