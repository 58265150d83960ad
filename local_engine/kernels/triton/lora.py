"""What LoRA adapters add to a linear layer, y += B A x, for rows of many adapters and of none in one pass.

The rows are grouped once a step (`row_groups`, by adapter), for all layers. Shrinking to the rank reads the inputs in
ranges where there are few rows, so that they fill the device; expanding adds the ranges.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from local_engine.kernels.triton.row_groups import RowGroups
from local_engine.kernels.triton.shapes import FLOATS, expect
from local_engine.layers.lora import LowRank, low_rank_product

__all__ = ["MAX_RANK", "LoraStack", "add_lora", "add_lora_twin", "new_lora_stack", "put_adapter"]

MAX_RANK = 256
# The smallest matrix that the tensor cores multiply.
_LEAST_RANK = 16
# Up to so many rows the inputs are read in ranges, of about so many numbers, and at most so many of them.
_FEW_ROWS, _RANGE, _MAX_SPLITS = 256, 512, 8


@dataclass(frozen=True, slots=True)
class LoraStack:
    """The matrices of one linear layer in all adapters' slots: down [slots, R, in] and up [slots, out, R], one dtype.

    R is a power of two from 16; adapters of a smaller rank are filled up with zeros, and an empty slot adds nothing.
    """

    down: Tensor
    up: Tensor


def new_lora_stack(
    slots: int, rank: int, inputs: int, outputs: int, *, dtype: torch.dtype, device: torch.device
) -> LoraStack:
    """Empty slots for adapters of up to this rank. Raises ValueError for a rank above `MAX_RANK`."""
    if not 1 <= rank <= MAX_RANK:
        raise ValueError(f"rank: expected 1 to {MAX_RANK}, got {rank}")
    width = max(triton.next_power_of_2(rank), _LEAST_RANK)
    down = torch.zeros(slots, width, inputs, dtype=dtype, device=device)
    return LoraStack(down, torch.zeros(slots, outputs, width, dtype=dtype, device=device))


def put_adapter(stack: LoraStack, slot: int, delta: LowRank | None) -> None:
    """Fills a slot with an adapter's matrices, or empties it. Raises ValueError for other shapes than the stack's."""
    stack.down[slot], stack.up[slot] = 0, 0
    if delta is None:
        return
    rank, inputs = delta.down.shape
    if rank > stack.down.shape[1] or inputs != stack.down.shape[2] or delta.up.shape != (stack.up.shape[1], rank):
        shapes = f"{tuple(delta.down.shape)} and {tuple(delta.up.shape)}"
        raise ValueError(
            f"delta: expected what fits {tuple(stack.down.shape)} and {tuple(stack.up.shape)}, got {shapes}"
        )
    stack.down[slot, :rank], stack.up[slot, :, :rank] = delta.down, delta.up


@triton.jit
def lora_shrink_kernel(
    x,
    down,
    rows,
    owners,
    partial,
    num_rows,
    num_inputs,
    splits: tl.constexpr,
    rank: tl.constexpr,
    block_rows: tl.constexpr,
    block_inputs: tl.constexpr,
):
    """One range of the inputs of `block_rows` rows of one adapter.

    Grid: (blocks, splits). Tile: block_inputs numbers of the rows and of the adapter's `rank` rows. Moves N inputs
    numbers and the matrices of the adapters that have rows. Accumulates in float32; float32 multiplies as IEEE.
    """
    owner = tl.load(owners + tl.program_id(0)).to(tl.int64)
    if owner < 0:
        return
    row = tl.load(rows + tl.program_id(0) * block_rows + tl.arange(0, block_rows)).to(tl.int64)
    there = row < num_rows
    column, inner = tl.arange(0, block_inputs), tl.arange(0, rank)
    per_split = tl.cdiv(tl.cdiv(num_inputs, splits), block_inputs) * block_inputs
    begin = tl.program_id(1) * per_split
    total = tl.zeros([block_rows, rank], tl.float32)
    for base in range(begin, tl.minimum(begin + per_split, num_inputs), block_inputs):
        left = column < num_inputs - base
        a = tl.load(
            x + row[:, None] * num_inputs + (base + column)[None, :], mask=there[:, None] & left[None, :], other=0.0
        )
        b = tl.load(
            down + (owner * rank + inner)[None, :] * num_inputs + (base + column)[:, None],
            mask=left[:, None],
            other=0.0,
        )
        total = tl.dot(a, b, total, input_precision="ieee")
    at = (row * splits + tl.program_id(1))[:, None] * rank + inner[None, :]
    tl.store(partial + at, total, mask=there[:, None])


@triton.jit
def lora_expand_kernel(
    partial,
    up,
    rows,
    owners,
    y,
    num_rows,
    num_outputs,
    splits: tl.constexpr,
    rank: tl.constexpr,
    block_rows: tl.constexpr,
    block_outputs: tl.constexpr,
):
    """`block_outputs` outputs of `block_rows` rows of one adapter, added in place.

    Grid: (blocks, outputs / block_outputs). Tile: the rows and the adapter's rows for these outputs, `rank` numbers
    each. Moves 2 N outputs numbers and the matrices of the adapters that have rows. Accumulates in float32. Differs
    from the twin by two roundings of the type of y, in float32 by 1e-5 of the sum of absolute products.
    """
    owner = tl.load(owners + tl.program_id(0)).to(tl.int64)
    if owner < 0:
        return
    row = tl.load(rows + tl.program_id(0) * block_rows + tl.arange(0, block_rows)).to(tl.int64)
    output = tl.program_id(1) * block_outputs + tl.arange(0, block_outputs)
    inner = tl.arange(0, rank)
    there, inside = row < num_rows, output < num_outputs
    shrunk = tl.zeros([block_rows, rank], tl.float32)
    for split in range(splits):
        at = (row * splits + split)[:, None] * rank + inner[None, :]
        shrunk += tl.load(partial + at, mask=there[:, None], other=0.0)
    b = tl.load(up + (owner * num_outputs + output)[None, :] * rank + inner[:, None], mask=inside[None, :], other=0.0)
    delta = tl.dot(shrunk.to(b.dtype), b, input_precision="ieee")
    y_at = y + row[:, None] * num_outputs + output[None, :]
    kept = there[:, None] & inside[None, :]
    total = tl.load(y_at, mask=kept, other=0.0).to(tl.float32) + delta
    tl.store(y_at, total.to(y.dtype.element_ty), mask=kept)


def add_lora(y: Tensor, x: Tensor, stack: LoraStack, groups: RowGroups, *, splits: int | None = None) -> None:
    """Adds to y [T, out], in place, what the rows' adapters make of x [T, in]; rows without an adapter stay.

    groups: the T rows by slot of the stack. splits: ranges that the inputs are read in; None goes by T, and a fixed
    number makes a row's bits its own where the groups' block size is fixed too. Raises ValueError for wrong shapes and
    types.
    """
    if x.ndim != 2:
        raise ValueError(f"x: expected [T, in], got {tuple(x.shape)}")
    num_rows, inputs = x.shape
    slots, outputs, rank = stack.up.shape
    expect("x", x, (num_rows, inputs), FLOATS)
    expect("y", y, (num_rows, outputs), (x.dtype,))
    expect("stack.down", stack.down, (slots, rank, inputs), (x.dtype,))
    expect("stack.up", stack.up, (slots, outputs, rank), (x.dtype,))
    if groups.num_rows != num_rows:
        raise ValueError(f"groups: expected those of {num_rows} rows, got {groups.num_rows}")
    if not num_rows:
        return
    if splits is None:
        splits = max(min(inputs // _RANGE, _MAX_SPLITS), 1) if num_rows <= _FEW_ROWS else 1
    partial = torch.empty(num_rows, splits, rank, dtype=torch.float32, device=x.device)
    # What leaves room for the sums in registers; float32 multiplies without tensor cores.
    width = 16 if x.dtype == torch.float32 else 32 if rank > 64 else 128
    num_blocks, block_rows = len(groups.owners), groups.block_size
    lora_shrink_kernel[(num_blocks, splits)](
        x,
        stack.down,
        groups.rows,
        groups.owners,
        partial,
        num_rows,
        inputs,
        splits=splits,
        rank=rank,
        block_rows=block_rows,
        block_inputs=width,
        num_warps=8 if rank > 128 else 4,
        num_stages=3,
    )
    lora_expand_kernel[(num_blocks, triton.cdiv(outputs, width))](
        partial,
        stack.up,
        groups.rows,
        groups.owners,
        y,
        num_rows,
        outputs,
        splits=splits,
        rank=rank,
        block_rows=block_rows,
        block_outputs=width,
        num_warps=8 if rank > 64 else 4,
    )


def add_lora_twin(y: Tensor, x: Tensor, stack: LoraStack, groups: RowGroups, *, splits: int | None = None) -> None:
    """See `add_lora`: a product for each block of rows."""
    for owner, block in zip(groups.owners.tolist(), groups.rows.view(-1, groups.block_size), strict=True):
        rows = block[block < groups.num_rows]
        if owner >= 0:
            delta = LowRank(stack.down[owner], stack.up[owner])
            y.index_add_(0, rows, low_rank_product(x.index_select(0, rows), delta))
