"""Ranks that are threads of the test: what processes compute together, without starting any."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

import torch
from torch import Tensor

from local_engine.layers.ranks import Ranks

__all__ = ["ThreadRanks", "on_ranks"]

_T = TypeVar("_T")
_WAIT_S = 60.0


@dataclass
class _Meeting:
    size: int
    barrier: threading.Barrier = field(init=False)
    tensors: dict[int, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.barrier = threading.Barrier(self.size, timeout=_WAIT_S)


class ThreadRanks:
    """Implements `Ranks`."""

    def __init__(self, rank: int, meeting: _Meeting) -> None:
        self.rank = rank
        self.size = meeting.size
        self._meeting = meeting

    def sum(self, x: Tensor) -> Tensor:
        parts = self._all(x)
        total = parts[0].clone()
        for part in parts[1:]:
            total += part
        return total

    def join_columns(self, x: Tensor) -> Tensor:
        parts = self._all(x)
        return torch.cat(parts, 1) if self.rank == 0 else x

    def broadcast(self, x: Tensor) -> None:
        x.copy_(self._all(x)[0])

    def _all(self, x: Tensor) -> list[Tensor]:
        meeting = self._meeting
        meeting.tensors[self.rank] = x.clone()
        meeting.barrier.wait()
        parts = [meeting.tensors[rank] for rank in range(self.size)]
        meeting.barrier.wait()
        return parts


def on_ranks(size: int, call: Callable[[Ranks], _T]) -> list[_T]:
    """What the call gives on each of so many ranks, at the same time. A failure of one ends all."""
    meeting = _Meeting(size)

    def run(rank: int) -> _T:
        try:
            return call(ThreadRanks(rank, meeting))
        except BaseException:
            meeting.barrier.abort()
            raise

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(run, range(size)))
