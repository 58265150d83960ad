"""A device to measure on: how long something takes, and what the device can do at best."""

import time
from collections.abc import Callable

import torch

__all__ = ["Machine"]

_LEAST_S = 0.05
# What a graph holds of a kernel: enough that launching it does not count.
_RECORDED = 8


class Machine:
    """`quick`: once, on whatever device, without claim to mean anything."""

    def __init__(self, device: torch.device, *, quick: bool) -> None:
        self.device = device
        self.quick = quick

    def sync(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def seconds(self, run: Callable[[int], object]) -> float:
        """The mean time of a call; `run` is told which call it is, and may take other data each time.

        On a GPU the calls are recorded in a graph, so that the host's time does not count.
        """
        run(0)
        self.sync()
        if self.quick or self.device.type == "cpu":
            return self._timed(lambda: run(0), 1)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            kept = [run(index) for index in range(_RECORDED)]
        once = self._timed(graph.replay, 1)
        elapsed = self._timed(graph.replay, max(int(_LEAST_S / once), 3)) / _RECORDED
        del kept
        return elapsed

    def plain_seconds(self, run: Callable[[], object], *, times: int) -> float:
        """The mean time of a call with all that the host does for it."""
        run()
        self.sync()
        return self._timed(run, 1 if self.quick else times)

    def copy_bytes_per_s(self) -> float:
        """Read and written: copying what is far larger than any cache."""
        source = torch.empty(1 << (12 if self.quick else 30), dtype=torch.uint8, device=self.device)
        target = torch.empty_like(source)
        return 2 * source.nbytes / self.seconds(lambda _: target.copy_(source))

    def matrix_operations_per_s(self, dtype: torch.dtype) -> float:
        """Of torch's product of two square matrices of random numbers."""
        size = 64 if self.quick else 8192
        left, right = torch.randn(2, size, size, device=self.device, dtype=torch.float32).to(dtype)
        return 2 * size**3 / self.seconds(lambda _: left @ right)

    def _timed(self, run: Callable[[], object], times: int) -> float:
        self.sync()
        begin = time.perf_counter()
        for _ in range(times):
            run()
        self.sync()
        return (time.perf_counter() - begin) / times
