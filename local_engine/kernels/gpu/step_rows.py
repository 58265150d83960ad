"""One step's chunks as arrays of the host, and those on the device. Owns the order of rows; knows no weights.

A token that only the device knows stands in `token_ids` as -1 - its row among the tokens that were drawn last.
"""

from collections.abc import Mapping
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from local_engine.chunk import PENDING, Chunk
from local_engine.kernels.gpu.decoder import StepTensors
from local_engine.sequence import Sequence
from local_engine.transfers import to_device

__all__ = ["HostStep", "host_step", "step_tensors", "table_width", "with_drawn"]

_Wide = npt.NDArray[np.int64]
_Narrow = npt.NDArray[np.int32]

# Block tables are a multiple of this wide: Triton compiles one kernel for numbers that 16 divides, another for others.
_TABLE_WIDTH = 16


@dataclass(frozen=True, slots=True)
class HostStep:
    """See `StepTensors`, of which these are the arrays, before padding.

    chunks: in the order of their rows. first_row: the first of each. any_pending: some token is not known here.
    """

    chunks: tuple[Chunk, ...]
    first_row: tuple[int, ...]
    token_ids: _Wide
    positions: _Wide
    slots: _Wide
    block_tables: _Narrow
    lengths: _Narrow
    num_decodes: int
    query_starts: _Narrow
    max_queries: int
    any_pending: bool
    adapter_slots: _Narrow | None

    @property
    def only_decodes(self) -> bool:
        return self.num_decodes == len(self.token_ids)

    def padded(self, num_rows: int) -> "HostStep":
        """A step that only decodes, with rows that belong to nobody: they attend to nothing and write nowhere."""
        missing, width = num_rows - len(self.token_ids), self.block_tables.shape[1]

        def longer(array: _Wide, value: int) -> _Wide:
            return np.concatenate((array, np.full(missing, value, dtype=array.dtype)))

        return HostStep(
            chunks=self.chunks,
            first_row=self.first_row,
            token_ids=longer(self.token_ids, 0),
            positions=longer(self.positions, 0),
            slots=longer(self.slots, -1),
            block_tables=np.concatenate((self.block_tables, np.zeros((missing, width), dtype=np.int32))),
            lengths=np.concatenate((self.lengths, np.zeros(missing, dtype=np.int32))),
            num_decodes=num_rows,
            query_starts=self.query_starts,
            max_queries=0,
            any_pending=self.any_pending,
            adapter_slots=None
            if self.adapter_slots is None
            else np.concatenate((self.adapter_slots, np.full(missing, -1, dtype=np.int32))),
        )


def host_step(
    chunks: SequenceOf[Chunk],
    *,
    block_size: int,
    drawn: Mapping[Sequence, int],
    adapters: Mapping[Sequence, int] | None = None,
    decodes_apart: bool = True,
) -> HostStep:
    """drawn: the row of each sequence among the tokens that were drawn last. adapters: slots of those that have one.

    decodes_apart: chunks of one token are rows that decode; else each is a prompt of one, computed as longer ones are.
    """
    decodes = [chunk for chunk in chunks if chunk.stop - chunk.start == 1] if decodes_apart else []
    others = [chunk for chunk in chunks if not decodes_apart or chunk.stop - chunk.start > 1]
    ordered = (*decodes, *others)
    counts = [chunk.stop - chunk.start for chunk in ordered]
    first_row = np.cumsum([0, *counts])
    token_ids: list[int] = []
    any_pending = False
    width = table_width(max(chunk.stop for chunk in ordered), block_size)
    tables = np.zeros((len(ordered), width), dtype=np.int32)
    for row, chunk in enumerate(ordered):
        tokens = chunk.tokens
        if tokens[-1] == PENDING:
            any_pending = True
            tokens[-1] = -1 - drawn[chunk.sequence]
        token_ids += tokens
        held = -(-chunk.stop // block_size)
        tables[row, :held] = chunk.sequence.blocks[:held]
    starts = np.array([chunk.start for chunk in ordered], dtype=np.int64)
    sequence_of_row = np.repeat(np.arange(len(ordered)), counts)
    positions = np.arange(len(token_ids)) - np.repeat(first_row[:-1] - starts, counts)
    blocks = tables[sequence_of_row, positions // block_size].astype(np.int64)
    return HostStep(
        chunks=ordered,
        first_row=tuple(first_row[:-1].tolist()),
        token_ids=np.array(token_ids, dtype=np.int64),
        positions=positions.astype(np.int64),
        slots=blocks * block_size + positions % block_size,
        block_tables=tables,
        lengths=np.array([chunk.stop for chunk in ordered], dtype=np.int32),
        num_decodes=len(decodes),
        query_starts=(first_row[len(decodes) :] - len(decodes)).astype(np.int32),
        max_queries=max(counts[len(decodes) :], default=0),
        any_pending=any_pending,
        adapter_slots=_adapter_slots(ordered, counts, adapters) if adapters else None,
    )


def _adapter_slots(chunks: SequenceOf[Chunk], counts: list[int], adapters: Mapping[Sequence, int]) -> _Narrow:
    own = np.array([adapters.get(chunk.sequence, -1) for chunk in chunks], dtype=np.int32)
    return np.repeat(own, counts)


def table_width(longest: int, block_size: int) -> int:
    """Columns of the block tables of sequences up to so many tokens."""
    blocks = -(-longest // block_size)
    return blocks + -blocks % _TABLE_WIDTH


def with_drawn(token_ids: Tensor, drawn: Tensor) -> Tensor:
    """The tokens [T] with those filled in that were drawn last. What follows a draw that failed is read by nobody."""
    return torch.where(token_ids < 0, drawn.clamp(min=0)[(-1 - token_ids).clamp(min=0)], token_ids)


def step_tensors(step: HostStep, device: torch.device, *, drawn: Tensor, splits: int) -> StepTensors:
    """The step on the device, in tensors of its own."""
    token_ids = to_device(step.token_ids, device)
    return StepTensors(
        token_ids=with_drawn(token_ids, drawn) if step.any_pending else token_ids,
        positions=to_device(step.positions, device),
        slots=to_device(step.slots, device),
        block_tables=to_device(step.block_tables, device),
        lengths=to_device(step.lengths[: step.num_decodes], device),
        prompt_lengths=to_device(step.lengths[step.num_decodes :], device),
        num_decodes=step.num_decodes,
        query_starts=to_device(step.query_starts, device),
        max_queries=step.max_queries,
        splits=splits,
        adapter_slots=None if step.adapter_slots is None else to_device(step.adapter_slots, device),
    )
