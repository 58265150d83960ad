"""Cores are counted as the system describes them, within what a container may take."""

import os
from pathlib import Path

import pytest

from local_engine.kernels.cpu.topology import physical_cores

CPUS = sorted(os.sched_getaffinity(0))


def describe(root: Path, siblings: dict[int, str]) -> None:
    for cpu, listed in siblings.items():
        folder = root / f"sys/devices/system/cpu/cpu{cpu}/topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{listed}\n")


def test_two_threads_of_a_core_count_once(tmp_path: Path) -> None:
    describe(tmp_path, dict.fromkeys(CPUS, "0-63"))
    assert physical_cores(tmp_path) == 1


def test_every_cpu_counts_where_nothing_says_otherwise(tmp_path: Path) -> None:
    assert physical_cores(tmp_path) == len(CPUS)


@pytest.mark.parametrize(("quota", "cores"), [("50000 100000", 1), ("max 100000", len(CPUS)), ("junk", len(CPUS))])
def test_a_containers_share_of_the_machine_is_respected(tmp_path: Path, quota: str, cores: int) -> None:
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/cpu.max").write_text(f"{quota}\n")
    assert physical_cores(tmp_path) == cores
