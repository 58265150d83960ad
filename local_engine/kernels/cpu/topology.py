"""How many cores this process may use, counting those once that run two threads."""

import os
import sys
from pathlib import Path

__all__ = ["physical_cores"]

_CPUS = Path("/sys/devices/system/cpu")


def physical_cores(root: Path = _CPUS) -> int:
    """At least 1. Where the system does not say which logical CPUs share a core, each counts."""
    allowed = os.sched_getaffinity(0) if sys.platform == "linux" else set(range(os.cpu_count() or 1))
    cores = set()
    for cpu in allowed:
        try:
            cores.add((root / f"cpu{cpu}/topology/thread_siblings_list").read_text())
        except OSError:
            return len(allowed)
    return max(len(cores), 1)
