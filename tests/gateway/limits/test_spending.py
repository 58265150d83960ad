import asyncio

import pytest

from adapters.canonical.errors import NotReady
from gateway.limits.scope import Budget, Scope
from gateway.limits.spending import Spending

SCOPE = Scope(name="key:a", label="", budget=Budget(100, "day"))
OTHER = Scope(name="key:b", label="", budget=Budget(100, "day"))


class Book:
    """The database: it answers once it is `open`."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.asked: list[tuple[str, int]] = []

    async def spent_before(self, scope: Scope, since: int) -> int:
        self.asked.append((scope.name, since))
        await self.open.wait()
        return since


async def test_all_who_ask_at_the_same_time_share_one_question() -> None:
    book = Book()
    spending = Spending(book.spent_before)
    first, *others = [asyncio.ensure_future(spending(SCOPE, 7)) for _ in range(5)]
    another = asyncio.ensure_future(spending(OTHER, 8))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    first.cancel()  # whoever asked first leaves
    book.open.set()
    assert await asyncio.gather(*others, another) == [7, 7, 7, 7, 8]
    assert book.asked == [("key:a", 7), ("key:b", 8)]
    assert await spending(SCOPE, 7) == 7  # what was told is not kept
    assert len(book.asked) == 3


async def test_a_database_that_is_silent_holds_nobody_for_long() -> None:
    book = Book()
    spending = Spending(book.spent_before, wait_s=0.01)
    asking = [spending(scope, 7) for scope in (SCOPE, OTHER) for _ in range(3)]
    async with asyncio.timeout(5):
        found = await asyncio.gather(*asking, return_exceptions=True)
    assert [type(each) for each in found] == [NotReady] * 6
    assert len(book.asked) == 2
    book.open.set()
    assert await spending(SCOPE, 7) == 7


async def test_a_database_that_fails_fails_for_all_who_asked() -> None:
    async def fail(scope: Scope, since: int) -> int:
        raise NotReady("away")

    spending = Spending(fail)
    for _ in range(2):
        with pytest.raises(NotReady, match="away"):
            await spending(SCOPE, 7)
