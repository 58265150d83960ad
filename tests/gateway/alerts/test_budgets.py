"""A budget's use is told once in each period and share, by what the database says."""

import pytest

from adapters.canonical.errors import NotReady
from gateway.alerts import budgets
from gateway.alerts.alert import Alert
from gateway.alerts.budgets import BudgetAlerts
from gateway.limits.scope import NANO, Budget, Scope
from tests.gateway.server.running import until

DAY = 86_400
KEY = Scope(name="key:a", label="this key", key="a", budget=Budget(50 * NANO, "day"))


class Books:
    """What was spent, and what was told. `now` is Unix seconds."""

    def __init__(self, *shares: float) -> None:
        self.spent: float | None = 0.0
        self.now = 10.0
        self.asked: list[tuple[str, int]] = []
        self.told: list[Alert] = []
        self.alerts = BudgetAlerts(shares or (0.8,), self.told.append, now=lambda: self.now, every_s=0.0)
        self.alerts.ask_for_spent(self.spent_before)

    async def spent_before(self, scope: Scope, since: int) -> int:
        self.asked.append((scope.name, since))
        if self.spent is None:
            raise NotReady("away")
        return round(self.spent * NANO)

    async def look(self, spent: float, scope: Scope = KEY) -> list[str]:
        """What is told of once so much was spent."""
        self.spent = spent
        before = len(self.told)
        self.alerts.used([scope])
        assert self.alerts.looking is not None
        await self.alerts.looking
        return [alert.text for alert in self.told[before:]]


async def test_a_share_is_told_once_in_each_period() -> None:
    books = Books(0.95, 0.5)
    assert await books.look(20) == []
    assert await books.look(25) == ["key:a has used 50% of its budget of $50.00 a day"]
    assert await books.look(26) == []
    assert await books.look(49) == ["key:a has used 98% of its budget of $50.00 a day"]
    assert await books.look(51) == []
    books.now += DAY
    assert await books.look(30) == ["key:a has used 60% of its budget of $50.00 a day"]
    assert books.asked[0] == ("key:a", 0)
    assert books.asked[-1] == ("key:a", DAY)
    assert books.told[0] == Alert(
        "budget_used",
        "budget_used:key:a:0:0.5",
        "key:a has used 50% of its budget of $50.00 a day",
        {"scope": "key:a", "share": 0.5, "spent_usd": 25.0, "budget_usd": 50.0, "per": "day", "since": 0},
    )


async def test_a_budget_that_was_raised_is_told_of_again() -> None:
    books = Books()
    raised = Scope(name="key:a", label="this key", budget=Budget(100 * NANO, "day"))
    assert len(await books.look(45)) == 1
    assert await books.look(45, raised) == []
    assert await books.look(90, raised) == ["key:a has used 90% of its budget of $100.00 a day"]


async def test_who_is_refused_is_told_of_once_in_each_period() -> None:
    books = Books()
    for _ in range(2):
        books.alerts.refused(KEY)
    books.now += DAY
    books.alerts.refused(KEY)
    assert [alert.id for alert in books.told] == ["budget_spent:key:a:0:1", f"budget_spent:key:a:{DAY}:1"]
    assert books.told[0].text == "key:a is refused: its budget of $50.00 a day is spent, or nearly so"


@pytest.mark.parametrize(
    "scope",
    [
        Scope(name="key:a", label="this key", rpm=5),
        Scope(name="key:a:user:u", label="this user", user="u", budget=Budget(NANO, "ever")),
    ],
)
async def test_end_users_and_who_has_no_budget_are_not_told_of(scope: Scope) -> None:
    books = Books()
    books.alerts.refused(scope)
    assert books.told == []


async def test_nothing_is_asked_where_no_budget_was_used() -> None:
    books = Books()
    books.alerts.used([Scope(name="key:a", label="this key", tpm=5)])
    assert books.alerts.looking is None
    await books.alerts.aclose()
    assert books.asked == []


async def test_while_the_database_is_away_nothing_is_forgotten() -> None:
    books = Books()
    books.spent = None
    books.alerts.used([KEY])
    task = books.alerts.looking
    assert task is not None
    await until(lambda: bool(books.asked))
    books.spent = 45
    await task
    assert [alert.event for alert in books.told] == ["budget_used"]


async def test_the_end_looks_once_more() -> None:
    books = Books()
    waiting = BudgetAlerts((0.8,), books.told.append, now=lambda: 10.0, every_s=3600.0)
    waiting.ask_for_spent(books.spent_before)
    books.spent = 45
    waiting.used([KEY])
    await waiting.aclose()
    assert len(books.told) == 1


async def test_only_so_much_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budgets, "_MAX_TOLD", 1)
    books = Books()
    other = Scope(name="key:b", label="this key", budget=Budget(NANO, "day"))
    for scope in (KEY, other, KEY):
        books.alerts.refused(scope)
    assert len(books.told) == 3
