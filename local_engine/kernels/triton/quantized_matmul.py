"""Rows times a weight matrix in few bits, which becomes numbers on its way to the tensor cores.

One kernel for all forms of `QuantizedMatrix`. What is multiplied are whole numbers (or E4M3's), exact in the type of
the rows; scales meet the float32 sums of a group, not its weights. So nothing is rounded before the output is, and a
weight costs a shift, a mask and a subtraction: a GPU that reads 4 bits at full bandwidth has time for little more.
Few rows leave most processors without a tile of outputs, so inputs are split, and a second kernel adds the parts. Above
`FUSED_ROWS` rows the matrix is unpacked once and cuBLAS multiplies.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from local_engine.kernels.triton.dequantize import (
    code_values,
    dequantized,
    expect_matrix,
    group_numbers,
    matrix_constants,
    matrix_tensors,
)
from local_engine.kernels.triton.shapes import FLOATS, expect
from local_engine.layers.quantized_matrix import QuantizedMatrix

__all__ = ["FUSED_ROWS", "matmul_splits", "quantized_matmul", "quantized_matmul_twin"]

# Up to so many rows: unpacking every weight again for each tile of rows costs less than writing and reading it in 16
# bits. Estimated for an H200 (4.3 TB/s, 790 TFLOP/s), not measured.
FUSED_ROWS = 256

_MAX_SPLITS = 32
# The smallest matrix that the tensor cores multiply.
_LEAST_ROWS = 16
_MOST_ROWS = 32
_COMBINED_COLUMNS = 512
# Numbers of a matrix that are unpacked at once for cuBLAS.
_UNPACKED_ITEMS = 64 << 20


@triton.jit
def quantized_matmul_kernel(
    x,
    low,
    high,
    scales,
    scale_factors,
    zeros,
    minima,
    minimum_factors,
    bias,
    out,
    num_rows,
    num_inputs,
    num_outputs,
    scale_width,
    slab: tl.constexpr,
    super_group: tl.constexpr,
    zero: tl.constexpr,
    bits: tl.constexpr,
    high_bits: tl.constexpr,
    is_float: tl.constexpr,
    group_size: tl.constexpr,
    has_factors: tl.constexpr,
    has_zeros: tl.constexpr,
    has_minima: tl.constexpr,
    has_bias: tl.constexpr,
    is_whole: tl.constexpr,
    splits: tl.constexpr,
    rows: tl.constexpr,
    columns: tl.constexpr,
):
    """`rows` rows times `columns` outputs, over one range of the inputs.

    Grid: (M / rows, N / columns, splits). Tile: SLAB words of each output. Reads the matrix once for each tile of rows,
    from the L2 cache after the first, and M K numbers for each tile of outputs; writes M N numbers, of float32 and
    `splits` times where the inputs are split. Products accumulate in float32; those of float32 run as IEEE. Differs
    from the twin by the order of the sums and one rounding of the output's type.
    """
    # Tiles of rows follow one another, so that they meet the same weights in the L2 cache.
    row = tl.program_id(0) * rows + tl.arange(0, rows)
    column = tl.program_id(1) * columns + tl.arange(0, columns)
    split = tl.program_id(2)
    word = tl.arange(0, slab)
    row_inside, column_inside = row < num_rows, column < num_outputs
    per_word: tl.constexpr = 32 // bits
    tile: tl.constexpr = slab * per_word
    # Sums in a tile, each of whole slabs.
    sums: tl.constexpr = tile // group_size if group_size < tile else 1
    slabs: tl.constexpr = per_word // sums
    num_scales = tl.cdiv(num_outputs, scale_width)
    scale_column = column // scale_width
    num_tiles = tl.cdiv(num_inputs, tile)
    per_split = tl.cdiv(num_tiles, splits)
    begin = split * per_split
    end = tl.minimum(begin + per_split, num_tiles)
    x_rows = x + row.to(tl.int64)[:, None] * num_inputs
    x_at = x_rows + (word + begin * tile)[None, :]
    at = (word + begin * slab)[:, None] * num_outputs + column[None, :]
    total = tl.zeros([rows, columns], tl.float32)
    for at_tile in range(begin, end):
        words = tl.load(low + at, mask=column_inside[None, :], other=0)
        more = words
        if high_bits > 0:
            more = tl.load(high + at, mask=column_inside[None, :], other=0).to(tl.int32)
        for at_sum in tl.static_range(sums):
            # Groups that only fill up the last tile have no numbers; any will do, as what they scale is zero.
            first = tl.minimum(at_tile * tile + at_sum * group_size, num_inputs - 1)
            group = first // group_size
            subtracted = tl.full([columns], zero, tl.float32)
            if has_zeros:
                subtracted = tl.load(zeros + (column + group * num_outputs), mask=column_inside, other=0).to(tl.float32)
            part = tl.zeros([rows, columns], tl.float32)
            for at_slab in tl.static_range(slabs):
                weights = code_values(
                    words, more, subtracted[None, :], at_sum * slabs + at_slab, bits, high_bits, is_float
                )
                x_inside = row_inside[:, None]
                if not is_whole:
                    x_inside &= (word + at_tile * tile)[None, :] < num_inputs - (at_sum * slabs + at_slab) * slab
                some = tl.load(x_at + (at_sum * slabs + at_slab) * slab, mask=x_inside, other=0.0)
                part = tl.dot(some, weights.to(x.dtype.element_ty), acc=part, input_precision="ieee")
            scale_at, factor_at = scale_column + group * num_scales, column + first // super_group * num_outputs
            scale = group_numbers(scales, scale_factors, scale_at, factor_at, column_inside, has_factors)
            total += part * scale[None, :]
        x_at += tile
        at += slab * num_outputs
    if has_minima:
        # What the minima add is a product too: of the sums of x over each group.
        member = tl.arange(0, slab)
        last_group = tl.cdiv(tl.minimum(end * tile, num_inputs), group_size)
        for first_group in tl.range(begin * tile // group_size, last_group, slab, num_stages=1):
            group = first_group + word
            group_inside = group < last_group
            x_sums = tl.zeros([rows, slab], tl.float32)
            for part_first in tl.static_range(0, group_size, slab):
                at_input = (group * group_size + part_first)[:, None] + member[None, :]
                # A group ends with the inputs: the types that have minima have whole groups.
                x_inside = row_inside[:, None, None] & group_inside[None, :, None]
                some = tl.load(x_rows[:, :, None] + at_input[None, :, :], mask=x_inside, other=0.0)
                x_sums += tl.sum(some.to(tl.float32), 2)
            numbers_inside = group_inside[:, None] & column_inside[None, :]
            minimum_at = group[:, None] * num_outputs + column[None, :]
            factor_at = (group * group_size // super_group)[:, None] * num_outputs + column[None, :]
            numbers = group_numbers(minima, minimum_factors, minimum_at, factor_at, numbers_inside, has_factors)
            total = tl.dot(x_sums, numbers, acc=total, input_precision="tf32x3")
    if has_bias and splits == 1:
        total += tl.load(bias + column, mask=column_inside, other=0.0).to(tl.float32)[None, :]
    out_at = (split * num_rows + row).to(tl.int64)[:, None] * num_outputs + column[None, :]
    tl.store(out + out_at, total.to(out.dtype.element_ty), mask=row_inside[:, None] & column_inside[None, :])


@triton.jit
def sum_parts_kernel(parts, bias, out, num_outputs, splits: tl.constexpr, has_bias: tl.constexpr, block: tl.constexpr):
    """The parts of one row, added in order, which makes the sum the same each time.

    Grid: (M, N / block). Reads M N splits float32 and writes M N numbers.
    """
    row, num_rows = tl.program_id(0).to(tl.int64), tl.num_programs(0)
    column = tl.program_id(1) * block + tl.arange(0, block)
    inside = column < num_outputs
    total = tl.zeros([block], tl.float32)
    for split in tl.static_range(splits):
        total += tl.load(parts + (split * num_rows + row) * num_outputs + column, mask=inside, other=0.0)
    if has_bias:
        total += tl.load(bias + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * num_outputs + column, total.to(out.dtype.element_ty), mask=inside)


def matmul_splits(num_rows: int, num_outputs: int, num_inputs: int, num_processors: int) -> int:
    """Ranges of the inputs: enough for four programs a processor, each of at least 512 inputs, and at most 32."""
    rows, columns = tile_sizes(num_rows, torch.bfloat16)
    programs = max(-(-num_rows // rows) * -(-num_outputs // columns), 1)
    return max(min(4 * num_processors // programs, num_inputs // 512, _MAX_SPLITS), 1)


def tile_sizes(num_rows: int, dtype: torch.dtype) -> tuple[int, int]:
    """Rows and outputs of a tile: what the registers hold, of which float32 takes twice as many."""
    if dtype == torch.float32:
        return _LEAST_ROWS, 64
    return _LEAST_ROWS if num_rows <= _LEAST_ROWS else _MOST_ROWS, 128


def quantized_matmul(x: Tensor, matrix: QuantizedMatrix, *, bias: Tensor | None = None, splits: int = 1) -> Tensor:
    """x [M, K] -> x W^T + bias, [M, N] in its dtype, for W [N, K]. bias: [N].

    splits: see `matmul_splits`; without meaning above FUSED_ROWS rows. Raises ValueError for wrong shapes and types.
    """
    if x.ndim != 2:
        raise ValueError(f"x: expected [M, K], got {tuple(x.shape)}")
    num_rows, num_outputs = x.shape[0], matrix.num_outputs
    expect("x", x, (num_rows, matrix.num_inputs), FLOATS)
    expect_matrix(matrix)
    if bias is not None:
        expect("bias", bias, (num_outputs,), FLOATS)
    if not 1 <= splits <= _MAX_SPLITS:
        raise ValueError(f"splits: expected 1 to {_MAX_SPLITS}, got {splits}")
    if matrix.order is not None:
        x = x.index_select(1, matrix.order)
    out = torch.empty(num_rows, num_outputs, dtype=x.dtype, device=x.device)
    if not out.numel():
        return out
    if num_rows > FUSED_ROWS:
        return _unpacked_matmul(x, matrix, bias, out)
    rows, columns = tile_sizes(num_rows, x.dtype)
    parts = out
    if splits > 1:
        parts = torch.empty(splits, num_rows, num_outputs, dtype=torch.float32, device=x.device)
    quantized_matmul_kernel[(triton.cdiv(num_rows, rows), triton.cdiv(num_outputs, columns), splits)](
        x,
        *matrix_tensors(matrix),
        x if bias is None else bias,
        parts,
        num_rows,
        matrix.num_inputs,
        num_outputs,
        matrix.scale_width,
        **matrix_constants(matrix),
        has_bias=bias is not None,
        is_whole=matrix.num_inputs % matrix.tile == 0,
        splits=splits,
        rows=rows,
        columns=columns,
        num_warps=4,
        num_stages=3,
    )
    if splits > 1:
        sum_parts_kernel[(num_rows, triton.cdiv(num_outputs, _COMBINED_COLUMNS))](
            parts,
            x if bias is None else bias,
            out,
            num_outputs,
            splits=splits,
            has_bias=bias is not None,
            block=_COMBINED_COLUMNS,
            num_warps=4,
        )
    return out


def _unpacked_matmul(x: Tensor, matrix: QuantizedMatrix, bias: Tensor | None, out: Tensor) -> Tensor:
    width = max(_UNPACKED_ITEMS // matrix.num_inputs // 128, 1) * 128
    for first in range(0, matrix.num_outputs, width):
        stop = min(first + width, matrix.num_outputs)
        weights = dequantized(matrix, x.dtype, first, stop)
        if bias is None:
            out[:, first:stop] = x @ weights
        else:
            out[:, first:stop] = torch.addmm(bias[first:stop].to(x.dtype), x, weights)
    return out


def quantized_matmul_twin(x: Tensor, matrix: QuantizedMatrix, *, bias: Tensor | None = None, splits: int = 1) -> Tensor:
    """See `quantized_matmul`: the weights as float32 numbers, and one product."""
    y = x.float() @ matrix.dense().T
    return (y if bias is None else y + bias.float()).to(x.dtype)
