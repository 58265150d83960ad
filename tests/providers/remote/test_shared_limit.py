"""A limit that many waits share: it ends the late one and no other, and leaves cancellations alone."""

import asyncio

import pytest

from providers.remote.shared_limit import SharedLimit


async def forever() -> None:
    await asyncio.Event().wait()


async def test_what_is_in_time_is_given_as_it_comes() -> None:
    async def work() -> int:
        return 7

    assert await SharedLimit(5).hold(work()) == 7


async def test_the_late_one_ends_and_the_others_wait_on() -> None:
    limit = SharedLimit(0.1)
    first = asyncio.ensure_future(limit.hold(forever()))
    await asyncio.sleep(0.05)
    gate = asyncio.Event()

    async def until_set() -> str:
        await gate.wait()
        return "in time"

    second = asyncio.ensure_future(limit.hold(until_set()))
    with pytest.raises(TimeoutError):
        await first
    assert not second.done()
    gate.set()
    assert await second == "in time"


async def test_a_cancellation_from_outside_stays_one() -> None:
    limit = SharedLimit(5)
    task = asyncio.ensure_future(limit.hold(forever()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    limit.close()


async def test_a_task_may_wait_again_after_it_was_late() -> None:
    limit = SharedLimit(0.02)
    for _ in range(2):
        with pytest.raises(TimeoutError):
            await limit.hold(forever())
    current = asyncio.current_task()
    assert current is not None
    assert current.cancelling() == 0
