"""LoRA (Hu et al. 2021): y = W x + B A x, for those rows of a step whose requests named an adapter.

A model's linear layers are adapted once, when it is built, and know their names. What each row of a step wants is set
by the executor around the forward pass. Any number of adapters share one pass over W.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from local_engine.layers.linear import Linear
from local_engine.layers.share import WHOLE, Share

__all__ = ["AdapterRows", "Changes", "LoraSite", "LoraSites", "LowRank", "low_rank_product"]

# Rows that are multiplied at a time. Every tile is a product of the same shape, so a row's sum runs in the same order
# wherever it stands and whoever stands beside it: a lone row and one of 256 give the same bits.
_TILE = 8


@dataclass(frozen=True, slots=True)
class LowRank:
    """What an adapter adds to one linear layer: down [R, in], and up [out, R] times the adapter's scale."""

    down: Tensor
    up: Tensor

    def to(self, device: torch.device, dtype: torch.dtype) -> "LowRank":
        return LowRank(self.down.to(device, dtype), self.up.to(device, dtype))


class Changes(Protocol):
    """What adapters add in one step."""

    def add(self, name: str, y: Tensor, x: Tensor) -> None:
        """Adds to y [T, out] of the linear layer `name`, in place, what they make of its inputs x [T, in]."""


@dataclass(frozen=True, slots=True)
class AdapterRows:
    """The rows of one adapter in a step: [N] int64 without repeats, None for all. deltas: by the site's name.

    Implements `Changes`: the reference.
    """

    deltas: Mapping[str, LowRank]
    rows: Tensor | None

    def add(self, name: str, y: Tensor, x: Tensor) -> None:
        delta = self.deltas.get(name)
        if delta is None:
            return
        if self.rows is None:
            y += low_rank_product(x, delta)
        else:
            y.index_add_(0, self.rows, low_rank_product(x.index_select(0, self.rows), delta))


@dataclass(frozen=True, slots=True)
class LoraSite:
    """A linear layer that adapters may change. parts: name to output rows of its matrices, one under the other."""

    name: str
    parts: Mapping[str, int]
    inputs: int

    @property
    def outputs(self) -> int:
        return sum(self.parts.values())


class _Step(threading.local):
    """The adapters of the step that this thread computes: engines of several threads may share one model."""

    changes: tuple[Changes, ...] = ()


@dataclass(slots=True)
class LoraSites:
    """The linear layers of one model. by_part: the site of each named matrix. share_of: what is here of a tensor."""

    by_part: dict[str, LoraSite] = field(default_factory=dict)
    share_of: Callable[[str], Share] = lambda _: WHOLE
    _step: _Step = field(default_factory=_Step)

    def adapt(self, linear: Linear, parts: Mapping[str, int], inputs: int) -> Linear:
        """The same layer, which adds what the step's adapters say. It must be called with all rows of the step."""
        return _Adapted(linear, self.register(parts, inputs).name, self._step)

    def register(self, parts: Mapping[str, int], inputs: int) -> LoraSite:
        """Makes a linear layer known to adapters; whoever computes it adds what they say."""
        site = LoraSite(next(iter(parts)), dict(parts), inputs)
        self.by_part.update(dict.fromkeys(parts, site))
        return site

    @contextmanager
    def applied(self, changes: tuple[Changes, ...]) -> Iterator[None]:
        """What this thread computes inside the block is changed so."""
        self._step.changes = changes
        try:
            yield
        finally:
            self._step.changes = ()


class _Adapted:
    """Implements `Linear` over another. While the step has no adapter, 0.3 us a call (a busy AMD EPYC, 2026-11)."""

    __slots__ = ("_linear", "_name", "_step")

    def __init__(self, linear: Linear, name: str, step: _Step) -> None:
        self._linear = linear
        self._name = name
        self._step = step

    def __call__(self, x: Tensor) -> Tensor:
        y = self._linear(x)
        for change in self._step.changes:
            change.add(self._name, y, x)
        return y


def low_rank_product(x: Tensor, delta: LowRank) -> Tensor:
    """B A x of rows: [N, in] -> [N, out]. On a CPU in float32 each row's bits are those that it has alone."""
    num_rows = x.shape[0]
    missing = -num_rows % _TILE
    if missing:
        x = F.pad(x, (0, 0, 0, missing))
    product = _by_tiles(_by_tiles(x, delta.down), delta.up)
    return product[:num_rows] if missing else product


def _by_tiles(x: Tensor, matrix: Tensor) -> Tensor:
    tiles = x.view(-1, _TILE, x.shape[1])
    return torch.bmm(tiles, matrix.t().expand(len(tiles), -1, -1)).view(len(x), -1)
