"""Waits between tries: as the upstream says, else a back-off that never outgrows what run.yaml allows."""

import pytest

from adapters.canonical.errors import UpstreamError, UpstreamRateLimited
from gateway.routing.retries import Tries


def tries(attempts: int = 9, max_wait_s: float = 20.0, random: float = 0.0) -> Tries:
    return Tries(attempts, max_wait_s, lambda: random)


def test_the_back_off_doubles_up_to_its_bound() -> None:
    series = tries()
    waits = [series.wait_s(UpstreamError("down"), 600) for _ in range(7)]
    assert waits == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 8.0]


def test_half_of_a_wait_is_random() -> None:
    assert tries(random=1.0).wait_s(UpstreamError("down"), 600) == 0.125


@pytest.mark.parametrize("max_wait_s", [0.01, 0.4])
def test_a_small_bound_makes_waits_shorter_and_does_not_end_the_tries(max_wait_s: float) -> None:
    series = tries(max_wait_s=max_wait_s)
    waits = [series.wait_s(UpstreamError("down"), 600) for _ in range(4)]
    assert waits[0] == min(0.25, max_wait_s)
    assert waits[-1] == max_wait_s


def test_the_last_attempt_has_no_wait_after_it() -> None:
    series = tries(attempts=2)
    assert series.wait_s(UpstreamError("down"), 600) is not None
    assert series.wait_s(UpstreamError("down"), 600) is None


def test_an_upstreams_wait_is_obeyed_or_the_tries_end() -> None:
    assert tries().wait_s(UpstreamRateLimited("slow", retry_after_s=3), 600) == 3
    assert tries(max_wait_s=2).wait_s(UpstreamRateLimited("slow", retry_after_s=3), 600) is None


def test_no_wait_outlives_the_deadline() -> None:
    assert tries().wait_s(UpstreamRateLimited("slow", retry_after_s=3), 2) is None
