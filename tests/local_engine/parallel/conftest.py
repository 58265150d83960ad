"""Two processes on the CPU that share one tiny model after another: starting them takes longer than all they do."""

from collections.abc import Iterator

import pytest

from local_engine.parallel.group import RankGroup


@pytest.fixture(scope="package")
def pair() -> Iterator[RankGroup]:
    group = RankGroup(2, device="cpu", threads=1)
    yield group
    group.close()
