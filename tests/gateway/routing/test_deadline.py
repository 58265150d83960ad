"""Deadlines end armed waits and nothing else, each in its own time, and leave nothing behind."""

import asyncio

import pytest

from gateway.routing.deadline import Deadline, Deadlines
from tests.gateway.server.running import until


class Late(Exception):
    pass


async def forever() -> None:
    await asyncio.Event().wait()


async def armed_wait(deadline: Deadline) -> None:
    """As a generator waits: armed, and a cancellation of the deadline's own becomes Late."""
    deadline.armed = True
    try:
        await forever()
    except asyncio.CancelledError:
        if deadline.took():
            raise Late from None
        raise


async def test_an_armed_wait_ends_when_the_deadline_passes() -> None:
    deadline = Deadlines(0.01).start()
    with pytest.raises(Late):
        await armed_wait(deadline)
    assert deadline.passed
    await asyncio.sleep(0)  # the task itself is not cancelled


async def test_what_is_not_armed_is_not_interrupted() -> None:
    deadline = Deadlines(0.01).start()
    await until(lambda: deadline.passed)


async def test_a_closed_deadline_interrupts_nothing() -> None:
    deadlines = Deadlines(0.01)
    deadline = deadlines.start()
    deadline.armed = True
    deadline.close()
    later = deadlines.start()
    await until(lambda: later.passed)
    assert not deadline.passed


async def test_a_cancel_from_outside_stays_one() -> None:
    async def work() -> None:
        await armed_wait(Deadlines(10).start())

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
        with pytest.raises(Late):
            await armed_wait(deadline)
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
