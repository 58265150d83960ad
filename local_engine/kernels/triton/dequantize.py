"""A `QuantizedMatrix` as numbers, and how kernels read one: the decoder that all of them share.

There is one decoder for integers of 2 to 8 bits and for E4M3; formats of files differ in zeros, scales and minima only.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from local_engine.kernels.triton.shapes import FLOATS, expect
from local_engine.layers.quantized_matrix import SLAB, SUPER_GROUP, QuantizedMatrix

__all__ = [
    "code_values",
    "dequantized",
    "dequantized_twin",
    "expect_matrix",
    "group_numbers",
    "matrix_constants",
    "matrix_tensors",
]

_COLUMNS = 128

# The float 2^23, whose lower bits count in ones: a code set into them is a float of 2^23 more. Taking that away costs
# half of converting an integer, or less, and so the code need not be shifted down either.
_INTEGERS = tl.constexpr(0x4B000000)
_INTEGERS_BASE = tl.constexpr(8388608.0)


@triton.jit
def code_values(
    low, high, zeros, index: tl.constexpr, bits: tl.constexpr, high_bits: tl.constexpr, is_float: tl.constexpr
):
    """Field `index` of each word: the codes of one input after the other, less their zeros; float32, exact."""
    if is_float:
        # Bit by bit, so that GPUs without floats of 8 bits do it too. The exponent's bias is 7, that of float32 127.
        code = low >> (index * bits)
        number = ((code & 0x80) << 24) | ((code & 0x7F) << 20)
        return number.to(tl.float32, bitcast=True) * 1.329227995784916e36
    half: tl.constexpr = 16 // bits
    if index >= half:
        low = low >> 16
    place: tl.constexpr = index % half * bits
    # The float's upper bits are set in the word, once for all fields, and kept by the mask: one instruction a field.
    codes = ((low & 0xFFFF) | _INTEGERS) & (_INTEGERS | (((1 << bits) - 1) << place))
    if high_bits > 0:
        above: tl.constexpr = place + bits
        below: tl.constexpr = index * high_bits
        if above >= below:
            codes |= (high << (above - below)) & (((1 << high_bits) - 1) << above)
        else:
            codes |= (high >> (below - above)) & (((1 << high_bits) - 1) << above)
    one: tl.constexpr = 1.0 / (1 << place)
    return codes.to(tl.float32, bitcast=True) * one - (zeros + _INTEGERS_BASE * one)


@triton.jit
def group_numbers(values, factors, at, factors_at, inside, has_factors: tl.constexpr):
    """Scales or minima of some outputs and groups, float32."""
    numbers = tl.load(values + at, mask=inside, other=0.0).to(tl.float32)
    if has_factors:
        numbers *= tl.load(factors + factors_at, mask=inside, other=0.0).to(tl.float32)
    return numbers


@triton.jit
def dequantize_kernel(
    low,
    high,
    scales,
    scale_factors,
    zeros,
    minima,
    minimum_factors,
    out,
    num_inputs,
    num_outputs,
    first_output,
    out_width,
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
    columns: tl.constexpr,
):
    """SLAB words of `columns` outputs as numbers, [K, out_width] of them, from output `first_output` on.

    Grid: (tiles of inputs, out_width / columns). Reads the matrix once and writes K out_width numbers. Computes in
    float32: differs from the twin by one rounding of the output's type.
    """
    at_tile = tl.program_id(0)
    out_column = tl.program_id(1) * columns + tl.arange(0, columns)
    column = first_output + out_column
    word = tl.arange(0, slab)
    inside = (out_column < out_width) & (column < num_outputs)
    per_word: tl.constexpr = 32 // bits
    num_scales = tl.cdiv(num_outputs, scale_width)
    at = (word + at_tile * slab)[:, None] * num_outputs + column[None, :]
    words = tl.load(low + at, mask=inside[None, :], other=0)
    more = words
    if high_bits > 0:
        more = tl.load(high + at, mask=inside[None, :], other=0).to(tl.int32)
    for index in tl.static_range(per_word):
        first = (at_tile * per_word + index) * slab
        group = tl.minimum(first, num_inputs - 1) // group_size
        factor_at = column + tl.minimum(first, num_inputs - 1) // super_group * num_outputs
        subtracted = tl.full([columns], zero, tl.float32)
        if has_zeros:
            subtracted = tl.load(zeros + (column + group * num_outputs), mask=inside, other=0).to(tl.float32)
        values = code_values(words, more, subtracted[None, :], index, bits, high_bits, is_float)
        scale_at = column // scale_width + group * num_scales
        values *= group_numbers(scales, scale_factors, scale_at, factor_at, inside, has_factors)[None, :]
        if has_minima:
            minimum_at = column + group * num_outputs
            values += group_numbers(minima, minimum_factors, minimum_at, factor_at, inside, has_factors)[None, :]
        at_input = word + first
        out_at = at_input.to(tl.int64)[:, None] * out_width + out_column[None, :]
        stored = (at_input < num_inputs)[:, None] & inside[None, :]
        tl.store(out + out_at, values.to(out.dtype.element_ty), mask=stored)


def dequantized(matrix: QuantizedMatrix, dtype: torch.dtype, first: int = 0, stop: int | None = None) -> Tensor:
    """Outputs first to stop of the matrix as numbers, [K, stop - first], its inputs in its own order."""
    stop = matrix.num_outputs if stop is None else stop
    out = torch.empty(matrix.num_inputs, stop - first, dtype=dtype, device=matrix.low.device)
    if out.numel():
        dequantize_kernel[(len(matrix.low) // SLAB, triton.cdiv(stop - first, _COLUMNS))](
            *matrix_tensors(matrix),
            out,
            matrix.num_inputs,
            matrix.num_outputs,
            first,
            stop - first,
            matrix.scale_width,
            **matrix_constants(matrix),
            columns=_COLUMNS,
            num_warps=4,
        )
    return out


def expect_matrix(matrix: QuantizedMatrix) -> None:
    """Raises ValueError, which names the part, unless the matrix is of a form that the kernels read."""
    num_words, num_outputs, inputs = *matrix.low.shape, matrix.num_inputs
    num_groups = -(-inputs // matrix.group_size)
    expect("matrix.low", matrix.low, (-(-inputs // matrix.tile) * SLAB, num_outputs), (torch.int32,))
    if matrix.bits not in (2, 4, 8) or matrix.high_bits not in (0, 1, 2) or (matrix.is_float and matrix.bits != 8):
        raise ValueError(f"matrix: expected 2, 4 or 8 bits and up to 2 above, got {matrix.bits}, {matrix.high_bits}")
    if matrix.high is not None:
        expect("matrix.high", matrix.high, (num_words, num_outputs), (torch.int8, torch.int16))
    if matrix.zeros is not None:
        expect("matrix.zeros", matrix.zeros, (num_groups, num_outputs), (torch.uint8,))
    for name, numbers, width in (("scales", matrix.scales, matrix.scale_width), ("minima", matrix.minima, 1)):
        if numbers is None:
            continue
        types = (*FLOATS, torch.int8, torch.uint8)
        expect(f"matrix.{name}", numbers.values, (num_groups, -(-num_outputs // width)), types)
        if (numbers.factors is None) != (matrix.scales.factors is None):
            raise ValueError(f"matrix.{name}: expected factors for scales and minima, or for none")
        if numbers.factors is not None:
            shape = (-(-inputs // SUPER_GROUP), num_outputs)
            expect(f"matrix.{name}.factors", numbers.factors, shape, FLOATS)
    if matrix.order is not None:
        expect("matrix.order", matrix.order, (inputs,), (torch.int64,))


def matrix_tensors(matrix: QuantizedMatrix) -> tuple[Tensor, ...]:
    """What the kernels take of it, in order; what it lacks they don't read."""
    scales = matrix.scales
    minima = scales if matrix.minima is None else matrix.minima
    return (
        matrix.low,
        matrix.low if matrix.high is None else matrix.high,
        scales.values,
        scales.values if scales.factors is None else scales.factors,
        matrix.low if matrix.zeros is None else matrix.zeros,
        minima.values,
        minima.values if minima.factors is None else minima.factors,
    )


def matrix_constants(matrix: QuantizedMatrix) -> dict[str, int | bool]:
    """What the kernels are specialised for."""
    return {
        "slab": SLAB,
        "super_group": SUPER_GROUP,
        "zero": matrix.zero,
        "bits": matrix.bits,
        "high_bits": matrix.high_bits,
        "is_float": matrix.is_float,
        "group_size": matrix.group_size,
        "has_factors": matrix.scales.factors is not None,
        "has_zeros": matrix.zeros is not None,
        "has_minima": matrix.minima is not None,
    }


def dequantized_twin(matrix: QuantizedMatrix, dtype: torch.dtype, first: int = 0, stop: int | None = None) -> Tensor:
    """See `dequantized`."""
    values = matrix.dense() if matrix.order is None else matrix.dense()[:, matrix.order]
    return values[first:stop].T.to(dtype)
