"""Rows times the matrix of their owner: the products of a layer of experts.

Blocks of one owner follow one another, so its matrix is read once from memory and then from the L2 cache; with few rows
that is the time it takes. Large blocks multiply on the tensor cores.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from local_engine.kernels.triton.row_groups import RowGroups
from local_engine.kernels.triton.shapes import FLOATS, expect

__all__ = ["grouped_matmul", "grouped_matmul_twin"]


@triton.jit
def grouped_matmul_kernel(
    x,
    weights,
    biases,
    rows,
    owners,
    out,
    num_rows,
    num_outputs,
    num_inputs,
    share: tl.constexpr,
    has_bias: tl.constexpr,
    block_rows: tl.constexpr,
    block_outputs: tl.constexpr,
    block_inputs: tl.constexpr,
):
    """`block_rows` rows of one owner, `block_outputs` of their outputs.

    Grid: (blocks, outputs / block_outputs). Tile: block_inputs numbers of those rows and of the matrix' rows. 2 N
    inputs outputs operations; with few rows it moves the matrices of the owners that have some, once. Accumulates in
    float32; float32 itself multiplies as IEEE, not as TF32. Differs from the twin by one rounding of the output's
    type, in float32 by 1e-5 of the sum of absolute products.
    """
    owner = tl.load(owners + tl.program_id(0)).to(tl.int64)
    if owner < 0:
        return
    row = tl.load(rows + tl.program_id(0) * block_rows + tl.arange(0, block_rows)).to(tl.int64)
    output = tl.program_id(1) * block_outputs + tl.arange(0, block_outputs)
    column = tl.arange(0, block_inputs)
    there, inside = row < num_rows, output < num_outputs
    x_at = x + (row // share)[:, None] * num_inputs + column[None, :]
    weight_at = weights + (owner * num_outputs + output)[None, :] * num_inputs + column[:, None]
    total = tl.zeros([block_rows, block_outputs], tl.float32)
    for base in range(0, num_inputs, block_inputs):
        left = column < num_inputs - base
        a = tl.load(x_at + base, mask=there[:, None] & left[None, :], other=0.0)
        b = tl.load(weight_at + base, mask=inside[None, :] & left[:, None], other=0.0)
        total = tl.dot(a, b, total, input_precision="ieee")
    if has_bias:
        total += tl.load(biases + owner * num_outputs + output, mask=inside, other=0.0).to(tl.float32)[None, :]
    tl.store(
        out + row[:, None] * num_outputs + output[None, :],
        total.to(out.dtype.element_ty),
        mask=there[:, None] & inside[None, :],
    )


def grouped_matmul(x: Tensor, weights: Tensor, groups: RowGroups, *, biases: Tensor | None = None) -> Tensor:
    """x [N / s, in], of which each row stands for s rows that follow one another -> [N, out] in its dtype.

    weights: [owners, out, in] in the dtype of x. groups: of N rows; s is what N is of x's rows. biases: [owners, out].
    Rows without an owner are not written. Raises ValueError for wrong shapes and types.
    """
    if x.ndim != 2 or weights.ndim != 3 or weights.shape[2] != x.shape[1] or not weights.numel():
        raise ValueError(
            f"x, weights: expected [N, in], [owners, out, in], got {tuple(x.shape)}, {tuple(weights.shape)}"
        )
    num_owners, outputs, inputs = weights.shape
    expect("x", x, tuple(x.shape), FLOATS)
    expect("weights", weights, (num_owners, outputs, inputs), (x.dtype,))
    if groups.num_rows % max(len(x), 1) or (groups.num_rows and not len(x)):
        raise ValueError(f"groups: expected a multiple of the {len(x)} rows of x, got {groups.num_rows}")
    if biases is not None:
        expect("biases", biases, (num_owners, outputs), FLOATS)
    out = torch.empty(groups.num_rows, outputs, dtype=x.dtype, device=x.device)
    if groups.num_rows:
        # Few rows: long stretches of the matrix. Many: a tile that is used often.
        is_wide = groups.block_size > 16 and x.dtype != torch.float32
        block_outputs = 128 if is_wide else 64 if x.dtype != torch.float32 else 32
        grouped_matmul_kernel[(len(groups.owners), triton.cdiv(outputs, block_outputs))](
            x,
            weights,
            x if biases is None else biases,
            groups.rows,
            groups.owners,
            out,
            groups.num_rows,
            outputs,
            inputs,
            share=groups.num_rows // len(x),
            has_bias=biases is not None,
            block_rows=groups.block_size,
            block_outputs=block_outputs,
            block_inputs=64 if is_wide else 128 if x.dtype != torch.float32 else 32,
            num_warps=8 if is_wide else 4,
            num_stages=3,
        )
    return out


def grouped_matmul_twin(x: Tensor, weights: Tensor, groups: RowGroups, *, biases: Tensor | None = None) -> Tensor:
    """See `grouped_matmul`; rows without an owner are zeros."""
    out = torch.zeros(groups.num_rows, weights.shape[1], dtype=x.dtype, device=x.device)
    share = groups.num_rows // max(len(x), 1)
    for block, owner in zip(groups.rows.view(-1, groups.block_size), groups.owners.tolist(), strict=True):
        rows = block[block < groups.num_rows].long()
        if owner >= 0:
            product = x[rows // share].float() @ weights[owner].float().T
            out[rows] = (product if biases is None else product + biases[owner].float()).to(x.dtype)
    return out
