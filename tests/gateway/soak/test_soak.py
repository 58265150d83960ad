"""Mixed traffic with faults and clients that leave: nothing is left behind, and both sides count the same.

An hour of it: python -m tests.gateway.soak.load --seconds 3600
"""

from pathlib import Path

import pytest

from tests.gateway.soak.load import Seen, soak


def check(seen: Seen) -> None:
    """The traffic was what it should be."""
    assert len(seen.paths) >= 7
    assert seen.left > 0
    assert seen.statuses[200] > 0.5 * seen.requests
    assert seen.statuses[400] == 0


@pytest.mark.timeout(90)
async def test_seconds_of_mixed_traffic_leave_nothing_behind(tmp_path: Path) -> None:
    check(await soak(10, tmp_path, growth=0.2, noise=6000))  # so soon, some of it is only warming up


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_two_minutes_of_mixed_traffic_leave_nothing_behind(tmp_path: Path) -> None:
    check(await soak(120, tmp_path, seed=1))
