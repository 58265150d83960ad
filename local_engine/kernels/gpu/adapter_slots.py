"""LoRA adapters on a GPU: which slot each has, and what rows of several of them add to a layer in one pass.

Owns the adapters' matrices on the device. They stay where they are until one needs more room: recorded steps read them.
"""

from collections.abc import Callable, Iterator, Mapping
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from itertools import count
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from local_engine.adapters import Adapter
from local_engine.chunk import Chunk
from local_engine.kernels.operations import Kernels
from local_engine.kernels.triton.lora import MAX_RANK, LoraStack, new_lora_stack, put_adapter
from local_engine.kernels.triton.row_groups import RowGroups, block_rows
from local_engine.layers.lora import LowRank
from local_engine.sequence import Sequence

__all__ = ["AdapterSlots"]

# Where a row's bits must be its own: rows of a block of one adapter, and ranges that inputs are read in.
_FIXED_BLOCK, _FIXED_SPLITS = 16, 4


@dataclass(frozen=True, slots=True)
class _GroupedRows:
    """Implements `Changes`. stacks: by the layer's name; several where a rank is above what a kernel takes."""

    stacks: Mapping[str, list[LoraStack]]
    groups: RowGroups
    kernels: Kernels
    splits: int | None

    def add(self, name: str, y: Tensor, x: Tensor) -> None:
        for stack in self.stacks.get(name, ()):
            self.kernels.add_lora(y, x, stack, self.groups, splits=self.splits)


class AdapterSlots:
    """Those of one executor. An adapter has its slot while anybody holds it. Not thread-safe.

    fixed: a row's bits do not depend on the rows beside it. moving: called before the matrices go elsewhere.
    """

    def __init__(
        self,
        kernels: Kernels,
        *,
        device: torch.device,
        dtype: torch.dtype,
        fixed: bool,
        moving: Callable[[], None],
    ) -> None:
        self._kernels = kernels
        self._device = device
        self._dtype = dtype
        self._fixed = fixed
        self._moving = moving
        self._slots: WeakKeyDictionary[Adapter, int] = WeakKeyDictionary()
        self._num_slots = 0
        self._stacks: dict[str, list[LoraStack]] = {}

    def slots_of(self, chunks: SequenceOf[Chunk]) -> dict[Sequence, int]:
        """The slot of each sequence that has an adapter. New ones are put there. Raises what the device raises."""
        slots = {}
        for chunk in chunks:
            adapter = chunk.sequence.adapter
            if adapter is not None:
                if adapter not in self._slots:
                    self._place(adapter)
                slots[chunk.sequence] = self._slots[adapter]
        return slots

    def changes(self, slots: Tensor | None) -> tuple[_GroupedRows, ...]:
        """What a step's rows get. slots: see `StepTensors.adapter_slots`. Launches only, for a graph to record."""
        if slots is None:
            return ()
        block_size = _FIXED_BLOCK if self._fixed else block_rows(len(slots), self._num_slots)
        groups = self._kernels.group_rows(slots, self._num_slots, block_size=block_size)
        return (_GroupedRows(self._stacks, groups, self._kernels, _FIXED_SPLITS if self._fixed else None),)

    def _place(self, adapter: Adapter) -> None:
        taken = set(self._slots.values())
        slot = next(slot for slot in count() if slot not in taken)
        if slot >= self._num_slots or not all(self._fits(name, delta) for name, delta in adapter.deltas.items()):
            self._move({**self._slots, adapter: slot})
        else:
            self._fill(slot, adapter)
        self._slots[adapter] = slot

    def _fits(self, name: str, delta: LowRank) -> bool:
        return sum(stack.down.shape[1] for stack in self._stacks.get(name, ())) >= len(delta.down)

    def _move(self, slots: dict[Adapter, int]) -> None:
        """New matrices, with room for these adapters. Nothing is held, and all may be tried again, where it fails."""
        self._moving()
        self._slots.clear()
        self._stacks = {}
        self._num_slots = 0
        num_slots = 1 << max(slots.values()).bit_length()
        largest: dict[str, LowRank] = {}
        for adapter in slots:
            for name, delta in adapter.deltas.items():
                if name not in largest or len(delta.down) > len(largest[name].down):
                    largest[name] = delta
        stacks = {name: [self._new_stack(num_slots, part) for part in _parts(delta)] for name, delta in largest.items()}
        self._stacks, self._num_slots = stacks, num_slots
        for adapter, slot in slots.items():
            self._fill(slot, adapter)
        self._slots.update(slots)

    def _new_stack(self, num_slots: int, largest: LowRank) -> LoraStack:
        rank, inputs = largest.down.shape
        return new_lora_stack(num_slots, rank, inputs, len(largest.up), dtype=self._dtype, device=self._device)

    def _fill(self, slot: int, adapter: Adapter) -> None:
        for name, stacks in self._stacks.items():
            delta = adapter.deltas.get(name)
            parts = iter(()) if delta is None else _parts(delta)
            for stack in stacks:
                put_adapter(stack, slot, next(parts, None))


def _parts(delta: LowRank) -> Iterator[LowRank]:
    """The same as a sum of ranks that a kernel takes."""
    for first in range(0, len(delta.down), MAX_RANK):
        yield LowRank(delta.down[first : first + MAX_RANK], delta.up[:, first : first + MAX_RANK])
