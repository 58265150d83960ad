"""Deadlines end waits and nothing else, each in its own time, and leave nothing behind."""

import asyncio

import pytest

from gateway.routing.deadline import DeadlinePassed, Deadlines


async def forever() -> None:
    await asyncio.Event().wait()


async def test_a_wait_ends_when_the_deadline_passes() -> None:
    deadline = Deadlines(0.01).start()
    with pytest.raises(DeadlinePassed):
        await deadline.wait(forever())
    await asyncio.sleep(0)  # the task itself is not cancelled


async def test_what_passes_between_waits_shows_at_the_next_one() -> None:
    deadline = Deadlines(0.01).start()
    never = asyncio.ensure_future(forever())
    await asyncio.wait([never], timeout=0.03)
    never.cancel()
    with pytest.raises(DeadlinePassed):
        await deadline.wait(never)


async def test_a_wait_within_the_deadline_gives_its_result() -> None:
    deadline = Deadlines(10).start()
    assert await deadline.wait(asyncio.sleep(0, "result")) == "result"
    deadline.close()


async def test_a_cancel_from_outside_stays_one() -> None:
    async def work() -> None:
        await Deadlines(10).start().wait(forever())

    task = asyncio.ensure_future(work())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_each_deadline_passes_in_its_own_time_though_there_is_one_timer() -> None:
    deadlines = Deadlines(0.05)
    loop = asyncio.get_running_loop()

    async def work() -> float:
        deadline = deadlines.start()
        began = loop.time()
        with pytest.raises(DeadlinePassed):
            await deadline.wait(forever())
        return loop.time() - began

    first = asyncio.ensure_future(work())
    await asyncio.wait([first], timeout=0.02)
    second = asyncio.ensure_future(work())
    for lasted in await asyncio.gather(first, second):
        assert 0.045 <= lasted < 1


async def test_a_closed_deadline_is_forgotten() -> None:
    deadlines = Deadlines(10)
    for _ in range(100):
        deadlines.start().close()
    assert deadlines.count == 0
