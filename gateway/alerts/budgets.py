"""Watches budgets: who has used so much of one, once in each of its periods, and who is refused because of it.

What was spent is asked of the database, whose sums are exact over all gateways, and only of those who spent something
since the last look.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from adapters.canonical.errors import NotReady
from gateway.alerts.alert import Alert, Tell
from gateway.limits.scope import NANO, Budget, Scope, period_at
from gateway.limits.spending import SpentBefore
from gateway.waiting import set_within

__all__ = ["BudgetAlerts"]

_EVERY_S: Final = 30.0
_MAX_TOLD: Final = 50_000


class BudgetAlerts:
    """`shares` of a budget, each from 0 to 1; `now` gives Unix seconds. End users have no alerts: clients name them."""

    def __init__(
        self, shares: Sequence[float], tell: Tell, *, now: Callable[[], float], every_s: float = _EVERY_S
    ) -> None:
        self._shares = sorted(shares)
        self._tell = tell
        self._now = now
        self._every_s = every_s
        self._spent_before: SpentBefore | None = None
        self._used: dict[str, Scope] = {}
        self._told: dict[tuple[str, str], tuple[int, float]] = {}
        """By scope and event: the period, and the share that was told of it."""
        self.looking: asyncio.Task[None] | None = None
        """What will look; None: nobody spent anything since."""
        self._closing = asyncio.Event()

    def ask_for_spent(self, spent_before: SpentBefore) -> None:
        """From now on, this is asked what was spent."""
        self._spent_before = spent_before

    def used(self, scopes: Iterable[Scope]) -> None:
        """They spent something. Takes no time."""
        for scope in scopes:
            if scope.budget is not None:
                self._used[scope.name] = scope
        if self._used and self.looking is None:
            self.looking = asyncio.get_running_loop().create_task(self._look_at_all())

    def refused(self, scope: Scope) -> None:
        """There was too little left for a request."""
        if scope.budget is not None and scope.user is None:
            text = f"{scope.name} is refused: its budget of {_told(scope.budget)} is spent, or nearly so"
            self._tell_once("budget_spent", scope, scope.budget, 1.0, text, {})

    async def aclose(self) -> None:
        """Looks once more where somebody spent something."""
        self._closing.set()
        if self.looking is not None:
            await self.looking

    async def _look_at_all(self) -> None:
        while self._used:
            await set_within(self._closing, self._every_s)
            used, self._used = self._used, {}
            for scope in used.values():
                try:
                    await self._look(scope)
                except NotReady:  # of which the log says enough
                    self._used = {**used, **self._used}
                    break
            if self._closing.is_set():
                break
        self.looking = None

    async def _look(self, scope: Scope) -> None:
        budget = scope.budget
        if budget is None or self._spent_before is None:
            return
        start, _ = period_at(budget.per, self._now())
        spent = await self._spent_before(scope, start)
        share = max((share for share in self._shares if spent >= share * budget.nano_usd), default=0.0)
        text = f"{scope.name} has used {spent / max(budget.nano_usd, 1):.0%} of its budget of {_told(budget)}"
        self._tell_once("budget_used", scope, budget, share, text, {"share": share, "spent_usd": spent / NANO})

    def _tell_once(
        self, event: str, scope: Scope, budget: Budget, share: float, text: str, more: dict[str, object]
    ) -> None:
        """In this period, unless a larger share was told of before. A budget that was raised begins anew."""
        start, _ = period_at(budget.per, self._now())
        place = (scope.name, event)
        period, told = self._told.get(place, (start, 0.0))
        if len(self._told) >= _MAX_TOLD:
            self._told.clear()
        self._told[place] = (start, share)
        if share > (told if period == start else 0.0):
            budget_usd = budget.nano_usd / NANO
            fields = {"scope": scope.name, **more, "budget_usd": budget_usd, "per": budget.per, "since": start}
            self._tell(Alert(event, f"{event}:{scope.name}:{start}:{share:g}", text, fields))


def _told(budget: Budget) -> str:
    per = "" if budget.per == "ever" else f" a{'n' if budget.per == 'hour' else ''} {budget.per}"
    return f"${budget.nano_usd / NANO:,.2f}{per}"
