"""What limits hold for, and what one request needs of them. Plain values; knows no clock, no store, no request."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from msgspec import Struct

from gateway.config.sections.auth import Period

__all__ = ["NANO", "Budget", "Demand", "Period", "Scope", "period_at"]

NANO = 1_000_000_000
"""Money is counted in whole billionths of a dollar, so that sums are exact."""

_YEAR_10000 = 253_402_300_800


@dataclass(frozen=True, slots=True)
class Budget:
    """What may be spent in one period of the calendar (UTC; weeks begin on Monday), or in all."""

    nano_usd: int
    per: Period


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """One thing with limits of its own: a key, a team, an end user, a model, a key's use of a model. None: no
    limit.

    `name` is what its counters are kept under, `label` what clients read. `key`, `team`, `user` and `model` (`*` in it
    stands for any text) are whose usage counts; None: everybody's, of every model.
    """

    name: str
    label: str
    key: str | None = None
    team: str | None = None
    user: str | None = None
    model: str | None = None
    rpm: int | None = None
    tpm: int | None = None
    parallel: int | None = None
    budget: Budget | None = None


class Demand(Struct, frozen=True):
    """What a request needs of each of its scopes. `output_tokens` is the most that it is expected to write."""

    scopes: Sequence[Scope]
    prompt_tokens: int = 0
    output_tokens: int = 0
    nano_usd: int = 0


def period_at(per: Period, unix_s: float) -> tuple[int, int]:
    """The period that a time lies in: its start and its end, in Unix seconds."""
    if per == "ever":
        return 0, _YEAR_10000
    moment = datetime.fromtimestamp(unix_s, UTC).replace(minute=0, second=0, microsecond=0)
    if per == "hour":
        return _span(moment, moment + timedelta(hours=1))
    day = moment.replace(hour=0)
    if per == "day":
        return _span(day, day + timedelta(days=1))
    if per == "week":
        monday = day - timedelta(days=day.weekday())
        return _span(monday, monday + timedelta(days=7))
    first = day.replace(day=1)
    return _span(first, (first + timedelta(days=32)).replace(day=1))


def _span(start: datetime, end: datetime) -> tuple[int, int]:
    return int(start.timestamp()), int(end.timestamp())
