"""What recurrent layers keep of sequences, and which rows of a step go on from which of it.

A state is a slot. A step reads a sequence's from one slot and writes its next to another, so that a step can be
computed again, and a slot that is kept is a snapshot. Slot 0 stays zero: sequences begin with it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["LayerState", "Recurrence", "StateRows", "StateRun", "StepStates", "recur"]

# From inputs [B, T, ...] and states [B, ...] to outputs [B, T, ...] and the states behind them.
Recurrence = Callable[[tuple[Tensor, ...], tuple[Tensor, ...]], tuple[Tensor, tuple[Tensor, ...]]]


@dataclass(frozen=True, slots=True)
class LayerState:
    """The states of one layer. parts: [slots, ...] float32 each."""

    parts: tuple[Tensor, ...]


@dataclass(frozen=True, slots=True)
class StateRun:
    """Rows start to stop of a step: positions of one sequence, from the state in one slot to that in another."""

    start: int
    stop: int
    source: int
    target: int


@dataclass(frozen=True, slots=True)
class StateRows:
    """sources, targets: [B] int64, the slots of the first B rows, each of a sequence of its own. runs: the others."""

    sources: Tensor
    targets: Tensor
    runs: tuple[StateRun, ...]


@dataclass(frozen=True, slots=True)
class StepStates:
    """What a step has of the recurrent layers, in their order. rows: the same for all of them."""

    layers: Sequence[LayerState]
    rows: StateRows


def recur(inputs: tuple[Tensor, ...], state: LayerState, rows: StateRows, recurrence: Recurrence) -> Tensor:
    """inputs: [T, ...] each -> outputs [T, ...]: rows that decode all at once, longer runs one by one."""
    outputs = []
    count = len(rows.sources)
    if count:
        found = tuple(part.index_select(0, rows.sources) for part in state.parts)
        output, new = recurrence(tuple(x[:count].unsqueeze(1) for x in inputs), found)
        for part, value in zip(state.parts, new, strict=True):
            part.index_copy_(0, rows.targets, value.to(part.dtype))
        outputs.append(output.squeeze(1))
    for run in rows.runs:
        found = tuple(part[run.source].unsqueeze(0) for part in state.parts)
        output, new = recurrence(tuple(x[run.start : run.stop].unsqueeze(0) for x in inputs), found)
        for part, value in zip(state.parts, new, strict=True):
            part[run.target] = value[0]
        outputs.append(output.squeeze(0))
    return outputs[0] if len(outputs) == 1 else torch.cat(outputs)
