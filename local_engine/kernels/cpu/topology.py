"""How many cores this process may use, counting those once that run two threads."""

import os
import sys
from pathlib import Path

__all__ = ["physical_cores"]

_ROOT = Path("/")
_QUOTA = "sys/fs/cgroup/cpu.max"
"""Microseconds of CPU in a period, and the period: how containers are given a share of a machine (cgroup v2)."""


def physical_cores(root: Path = _ROOT) -> int:
    """At least 1. Where the system does not say which logical CPUs share a core, each counts.

    root: where the system's own files are.
    """
    allowed = os.sched_getaffinity(0) if sys.platform == "linux" else set(range(os.cpu_count() or 1))
    cores = set()
    for cpu in allowed:
        try:
            cores.add((root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").read_text())
        except OSError:
            cores.add(f"{cpu}\n")
    return max(min(len(cores), _quota(root)), 1)


def _quota(root: Path) -> int:
    """Whole cores' worth of time that the process may take; many where nothing limits it."""
    try:
        allowed, period = (root / _QUOTA).read_text().split()
        return -(-int(allowed) // int(period))
    except (OSError, ValueError):  # not a cgroup of version 2, or "max"
        return sys.maxsize
