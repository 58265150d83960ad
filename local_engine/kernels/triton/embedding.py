"""Rows of the embedding by token id, times the scale that Gemma has."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from local_engine.kernels.triton.dequantize import (
    code_values,
    expect_matrix,
    group_numbers,
    matrix_constants,
    matrix_tensors,
)
from local_engine.kernels.triton.shapes import FLOATS, expect
from local_engine.layers.quantized_matrix import QuantizedMatrix

__all__ = ["embedding", "embedding_twin", "quantized_embedding", "quantized_embedding_twin"]

_BLOCK = 1024


@triton.jit
def embedding_kernel(table, token_ids, out, num_tokens, width, first_id, scale, block: tl.constexpr):
    """`block` columns of one row.

    Grid: (T, W / block). Moves 2 T W numbers. The product with the scale is of float32: differs from the twin by one
    rounding of the output's type, without a scale not at all.
    """
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * block + tl.arange(0, block)
    token = tl.broadcast_to(tl.load(token_ids + row) - first_id, [block])
    inside = column < width
    known = inside & (token >= 0) & (token < num_tokens)
    numbers = tl.load(table + token * width + column, mask=known, other=0.0).to(tl.float32) * scale
    tl.store(out + row * width + column, numbers.to(out.dtype.element_ty), mask=inside)


@triton.jit
def quantized_embedding_kernel(
    token_ids,
    low,
    high,
    scales,
    scale_factors,
    zeros,
    minima,
    minimum_factors,
    out,
    num_tokens,
    width,
    num_words,
    first_id,
    scale,
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
    block: tl.constexpr,
):
    """`block` words of one row.

    Grid: (T, words / block). A row's words lie apart, and each takes a sector of 32 bytes: 8 times the row's bytes, of
    few rows. Computes in float32: differs from the twin by one rounding of the output's type.
    """
    row = tl.program_id(0).to(tl.int64)
    word = tl.program_id(1) * block + tl.arange(0, block)
    token = tl.broadcast_to(tl.load(token_ids + row) - first_id, [block])
    known = (word < num_words) & (token >= 0) & (token < num_tokens)
    per_word: tl.constexpr = 32 // bits
    words = tl.load(low + word * num_tokens + token, mask=known, other=0)
    more = words
    if high_bits > 0:
        more = tl.load(high + word * num_tokens + token, mask=known, other=0).to(tl.int32)
    num_scales = tl.cdiv(num_tokens, scale_width)
    for index in tl.static_range(per_word):
        column = (word // slab * per_word + index) * slab + word % slab
        inside = known & (column < width)
        group = column // group_size
        number_at, factor_at = group * num_tokens + token, column // super_group * num_tokens + token
        subtracted = tl.full([block], zero, tl.float32)
        if has_zeros:
            subtracted = tl.load(zeros + number_at, mask=inside, other=0).to(tl.float32)
        numbers = code_values(words, more, subtracted, index, bits, high_bits, is_float)
        scale_at = group * num_scales + token // scale_width
        numbers *= group_numbers(scales, scale_factors, scale_at, factor_at, inside, has_factors)
        if has_minima:
            numbers += group_numbers(minima, minimum_factors, number_at, factor_at, inside, has_factors)
        # Of a token that is not here there are no scales, which gives zeros.
        tl.store(out + row * width + column, (numbers * scale).to(out.dtype.element_ty), mask=column < width)


def embedding(token_ids: Tensor, table: Tensor, *, scale: float = 1.0, first_id: int = 0) -> Tensor:
    """token_ids [T] int64, table [V, W] -> [T, W] in its dtype: the rows of the tokens, times `scale`.

    first_id: the token that the first row is of. Tokens of no row give zeros: parts of a vocabulary over several GPUs
    add up. Raises ValueError for wrong shapes and types.
    """
    if table.ndim != 2 or token_ids.ndim != 1:
        shapes = [tuple(tensor.shape) for tensor in (token_ids, table)]
        raise ValueError(f"token_ids, table: expected [T] and [V, W], got {shapes}")
    num_rows, (num_tokens, width) = len(token_ids), table.shape
    expect("token_ids", token_ids, (num_rows,), (torch.int64,))
    expect("table", table, (num_tokens, width), FLOATS)
    out = torch.empty(num_rows, width, dtype=table.dtype, device=table.device)
    if out.numel():
        embedding_kernel[(num_rows, triton.cdiv(width, _BLOCK))](
            table, token_ids, out, num_tokens, width, first_id, scale, block=_BLOCK, num_warps=4
        )
    return out


def quantized_embedding(
    token_ids: Tensor, matrix: QuantizedMatrix, dtype: torch.dtype, *, scale: float = 1.0, first_id: int = 0
) -> Tensor:
    """As `embedding`, of a matrix [V, W] in few bits: [T, W] of `dtype`. Raises ValueError, also if it has an order."""
    expect("token_ids", token_ids, (token_ids.numel(),), (torch.int64,))
    expect_matrix(matrix)
    if matrix.order is not None:
        raise ValueError("matrix.order: expected inputs in order")
    out = torch.empty(len(token_ids), matrix.num_inputs, dtype=dtype, device=token_ids.device)
    if out.numel():
        num_words = len(matrix.low)
        block = min(triton.next_power_of_2(num_words), _BLOCK // 4)
        quantized_embedding_kernel[(len(token_ids), triton.cdiv(num_words, block))](
            token_ids,
            *matrix_tensors(matrix),
            out,
            matrix.num_outputs,
            matrix.num_inputs,
            num_words,
            first_id,
            scale,
            matrix.scale_width,
            **matrix_constants(matrix),
            block=block,
            num_warps=4,
        )
    return out


def embedding_twin(token_ids: Tensor, table: Tensor, *, scale: float = 1.0, first_id: int = 0) -> Tensor:
    """See `embedding`."""
    at = token_ids - first_id
    known = (at >= 0) & (at < len(table))
    found = torch.where(known[:, None], table[at.where(known, 0)].float(), 0.0)
    return (found * scale).to(table.dtype)


def quantized_embedding_twin(
    token_ids: Tensor, matrix: QuantizedMatrix, dtype: torch.dtype, *, scale: float = 1.0, first_id: int = 0
) -> Tensor:
    """See `quantized_embedding`."""
    return embedding_twin(token_ids, matrix.dense(), scale=scale, first_id=first_id).to(dtype)
