"""A limit that many waits share: it ends the late one and no other."""

import asyncio

import pytest

from providers.shared_limit import SharedLimit


def shared(limit_s: float) -> "SharedLimit[asyncio.Future[None]]":
    return SharedLimit(limit_s, _time_out)


def _time_out(one: "asyncio.Future[None]") -> None:
    if not one.done():
        one.set_exception(TimeoutError())


def wait() -> "asyncio.Future[None]":
    return asyncio.get_running_loop().create_future()


async def test_what_is_in_time_is_left_alone() -> None:
    limit, done = shared(0.02), wait()
    limit.watch(done, done.get_loop())
    limit.forget(done)
    late = wait()
    limit.watch(late, late.get_loop())
    with pytest.raises(TimeoutError):
        await late
    assert not done.done()


async def test_the_late_one_ends_and_the_others_wait_on() -> None:
    limit, first, second = shared(0.4), wait(), wait()
    began = asyncio.get_running_loop().time()
    assert limit.watch(first, first.get_loop()) == pytest.approx(began + 0.4, abs=0.2)
    await asyncio.sleep(0.2)
    limit.watch(second, second.get_loop())
    with pytest.raises(TimeoutError):
        await first
    assert not second.done()
    with pytest.raises(TimeoutError):
        await second


async def test_a_wait_that_was_cancelled_is_no_failure_of_others() -> None:
    limit, first, second = shared(0.02), wait(), wait()
    limit.watch(first, first.get_loop())
    limit.watch(second, second.get_loop())
    first.cancel()
    with pytest.raises(TimeoutError):
        await second
    assert first.cancelled()


async def test_nothing_ends_after_it_was_closed_until_it_is_used_again() -> None:
    limit, first, second = shared(0.02), wait(), wait()
    limit.watch(first, first.get_loop())
    limit.close()
    limit.watch(second, second.get_loop())
    with pytest.raises(TimeoutError):
        await second
    assert not first.done()
