"""Deadlines end armed waits and nothing else, each in its own time, and leave nothing behind."""

import asyncio

import pytest

from gateway.routing.deadline import Deadline
from providers.shared_limit import SharedLimit
from tests.gateway.server.running import until


def deadlines_after(after_s: float) -> SharedLimit[Deadline]:
    return SharedLimit(after_s, Deadline.expire)


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
    deadline = Deadline(deadlines_after(0.01))
    with pytest.raises(Late):
        await armed_wait(deadline)
    assert deadline.passed
    await asyncio.sleep(0)  # the task itself is not cancelled


async def test_what_is_not_armed_is_not_interrupted() -> None:
    deadline = Deadline(deadlines_after(0.01))
    await until(lambda: deadline.passed)


async def test_a_closed_deadline_interrupts_nothing() -> None:
    deadlines = deadlines_after(0.01)
    deadline = Deadline(deadlines)
    deadline.armed = True
    deadline.close()
    later = Deadline(deadlines)
    await until(lambda: later.passed)
    assert not deadline.passed


async def test_a_cancel_from_outside_stays_one() -> None:
    async def work() -> None:
        await armed_wait(Deadline(deadlines_after(10)))

    task = asyncio.ensure_future(work())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_each_deadline_passes_in_its_own_time_though_there_is_one_timer() -> None:
    deadlines = deadlines_after(0.05)
    loop = asyncio.get_running_loop()

    async def work() -> float:
        deadline = Deadline(deadlines)
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
    deadlines = deadlines_after(10)
    for _ in range(100):
        Deadline(deadlines).close()
    assert deadlines.count == 0
