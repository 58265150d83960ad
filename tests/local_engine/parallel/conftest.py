"""Two processes on the CPU that share one tiny model after another: starting them takes longer than all they do."""

from collections.abc import Callable, Iterator

import pytest

from local_engine.parallel.group import RankGroup

PairOf = Callable[[], RankGroup]


@pytest.fixture(scope="session")
def living_pair() -> Iterator[PairOf]:
    """The two that live, or another two where a test has ended one."""
    groups: list[RankGroup] = []

    def living() -> RankGroup:
        if not groups or groups[-1].processes.lost is not None:
            groups.append(RankGroup(2, device="cpu", threads=1))
        return groups[-1]

    yield living
    for group in groups:
        group.close()


@pytest.fixture(scope="module")
def pair(living_pair: PairOf) -> RankGroup:
    return living_pair()
