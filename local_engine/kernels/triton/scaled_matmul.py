"""Rows in 8 bits times a weight in 8 bits: int8 by int8, or fp8 by fp8, with a scale a row and a scale an output.

For what `add_rms_norm_quantized` gives. Tensor cores multiply 8 bits at twice the rate of 16, so this is for prompts;
few rows are bound by the weight's bytes, which `quantized_matmul` reads as well without rounding the rows.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from local_engine.kernels.triton.shapes import FLOATS, LARGEST, expect

__all__ = ["scaled_matmul", "scaled_matmul_twin"]

_ROWS, _COLUMNS, _DEPTH = 64, 128, 64
# Row tiles that share their weights while these are in the L2 cache.
_ROW_TILES = 8


@triton.jit
def scaled_matmul_kernel(
    x,
    x_scales,
    weight,
    weight_scales,
    bias,
    out,
    num_rows,
    num_outputs,
    num_inputs,
    has_bias: tl.constexpr,
    row_tiles: tl.constexpr,
    rows: tl.constexpr,
    columns: tl.constexpr,
    depth: tl.constexpr,
):
    """`rows` rows times `columns` outputs.

    Grid: (M / rows * N / columns,), `row_tiles` tiles of rows for each tile of outputs. Tile: `depth` inputs. 2 M N K
    operations. int8 accumulates in int32, exactly, and fp8 in float32 (Hopper's tensor cores keep 14 bits of a sum of
    `depth` products); the scales are applied in float32. Differs from the twin by one rounding of the output's type, in
    fp8 by 2e-3 of the sum of absolute products more.
    """
    tiles, num_row_tiles = tl.cdiv(num_outputs, columns), tl.cdiv(num_rows, rows)
    program = tl.program_id(0)
    first_tile = program // (row_tiles * tiles) * row_tiles
    height = tl.minimum(num_row_tiles - first_tile, row_tiles)
    within = program % (row_tiles * tiles)
    row = (first_tile + within % height) * rows + tl.arange(0, rows)
    column = within // height * columns + tl.arange(0, columns)
    member = tl.arange(0, depth)
    row_inside, column_inside = row < num_rows, column < num_outputs
    x_at = x + row.to(tl.int64)[:, None] * num_inputs + member[None, :]
    weight_at = weight + column.to(tl.int64)[None, :] * num_inputs + member[:, None]
    total = tl.zeros([rows, columns], tl.int32 if x.dtype.element_ty == tl.int8 else tl.float32)
    for first in range(0, num_inputs, depth):
        inside = member < num_inputs - first
        some = tl.load(x_at + first, mask=row_inside[:, None] & inside[None, :], other=0.0)
        weights = tl.load(weight_at + first, mask=column_inside[None, :] & inside[:, None], other=0.0)
        total = tl.dot(some, weights, acc=total, out_dtype=total.dtype)
    row_scales = tl.load(x_scales + row, mask=row_inside, other=0.0)
    column_scales = tl.load(weight_scales + column, mask=column_inside, other=0.0)
    numbers = total.to(tl.float32) * row_scales[:, None] * column_scales[None, :]
    if has_bias:
        numbers += tl.load(bias + column, mask=column_inside, other=0.0).to(tl.float32)[None, :]
    out_at = row.to(tl.int64)[:, None] * num_outputs + column[None, :]
    tl.store(out + out_at, numbers.to(out.dtype.element_ty), mask=row_inside[:, None] & column_inside[None, :])


def scaled_matmul(
    x: Tensor,
    x_scales: Tensor,
    weight: Tensor,
    weight_scales: Tensor,
    *,
    dtype: torch.dtype,
    bias: Tensor | None = None,
) -> Tensor:
    """x [M, K] * x_scales [M, 1] times (weight [N, K] * weight_scales [N, 1])^T, plus bias [N]: [M, N] of `dtype`.

    x and weight: both int8 or both float8_e4m3fn, which needs sm_89. Scales: float32. Raises ValueError for wrong
    shapes and types.
    """
    if x.ndim != 2 or weight.ndim != 2:
        raise ValueError(f"x, weight: expected [M, K] and [N, K], got {[tuple(x.shape), tuple(weight.shape)]}")
    (num_rows, num_inputs), num_outputs = x.shape, len(weight)
    expect("x", x, (num_rows, num_inputs), LARGEST)
    expect("weight", weight, (num_outputs, num_inputs), (x.dtype,))
    expect("x_scales", x_scales, (num_rows,), (torch.float32,))
    expect("weight_scales", weight_scales, (num_outputs,), (torch.float32,))
    if bias is not None:
        expect("bias", bias, (num_outputs,), FLOATS)
    out = torch.empty(num_rows, num_outputs, dtype=dtype, device=x.device)
    if out.numel():
        scaled_matmul_kernel[(triton.cdiv(num_rows, _ROWS) * triton.cdiv(num_outputs, _COLUMNS),)](
            x,
            x_scales,
            weight,
            weight_scales,
            x_scales if bias is None else bias,
            out,
            num_rows,
            num_outputs,
            num_inputs,
            has_bias=bias is not None,
            row_tiles=_ROW_TILES,
            rows=_ROWS,
            columns=_COLUMNS,
            depth=_DEPTH,
            num_warps=4,
            num_stages=3,
        )
    return out


def scaled_matmul_twin(
    x: Tensor,
    x_scales: Tensor,
    weight: Tensor,
    weight_scales: Tensor,
    *,
    dtype: torch.dtype,
    bias: Tensor | None = None,
) -> Tensor:
    """See `scaled_matmul`: in float64, which int8 sums are exact in."""
    numbers = (x.double() @ weight.double().T).float() * x_scales[:, None] * weight_scales
    return (numbers if bias is None else numbers + bias.float()).to(dtype)
