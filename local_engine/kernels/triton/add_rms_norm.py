"""Residual add and RMS norm (Zhang and Sennrich 2019) in one pass over the hidden states.

Llama's form is residual += x; y = norm(residual) * weight. Gemma's normalises x by a weight of its own before it is
added, and adds 1 to all weights, in float32: x has both with `inner_weight` and `weight_offset`. For a matrix product
in 8 bits the norm comes out in 8 bits, with a scale a row.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from local_engine.kernels.triton.shapes import FLOATS, LARGEST, expect
from local_engine.layers.rms_norm import rms_norm

__all__ = [
    "MAX_HIDDEN_SIZE",
    "add_rms_norm",
    "add_rms_norm_quantized",
    "add_rms_norm_quantized_twin",
    "add_rms_norm_twin",
]

# A row is held in registers: beyond this it would spill.
MAX_HIDDEN_SIZE = 16_384


@triton.jit
def add_rms_norm_kernel(
    x,
    residual,
    inner_weight,
    weight,
    out,
    scales,
    hidden_size,
    eps,
    weight_offset,
    has_inner: tl.constexpr,
    largest: tl.constexpr,
    rounded: tl.constexpr,
    block: tl.constexpr,
):
    """One row.

    Grid: (T,). Tile: the row, padded to `block`. Moves 4 T hidden_size numbers (2 read, 2 written) and the weights,
    which stay in the L2 cache; what is written in 8 bits takes half. Accumulates in float32. Differs from the twin by
    one rounding of the output's type; in int8 and fp8 a number may fall to the neighbouring step.
    """
    column = tl.arange(0, block)
    inside = column < hidden_size
    at = tl.program_id(0).to(tl.int64) * hidden_size + column
    added = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    if has_inner:
        inner_scale = 1.0 / tl.sqrt(tl.sum(added * added, 0) / hidden_size + eps)
        inner = tl.load(inner_weight + column, mask=inside, other=0.0).to(tl.float32) + weight_offset
        added = (added * inner_scale * inner).to(x.dtype.element_ty).to(tl.float32)
    total = added + tl.load(residual + at, mask=inside, other=0.0).to(tl.float32)
    # The norm is of the sum as it is kept, so that the next layer's residual and this norm speak of the same numbers.
    kept = total.to(residual.dtype.element_ty)
    tl.store(residual + at, kept, mask=inside)
    total = kept.to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(tl.where(inside, total * total, 0.0), 0) / hidden_size + eps)
    weights = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32) + weight_offset
    normed = total * scale * weights
    if largest > 0.0:
        step = tl.maximum(tl.max(tl.where(inside, tl.abs(normed), 0.0), 0) / largest, 1e-12)
        tl.store(scales + tl.program_id(0), step)
        normed = tl.div_rn(normed, tl.broadcast_to(step, [block]))
        if rounded:
            # Adding and taking 1.5 * 2^23 rounds to the nearest integer, halves to even.
            normed = (normed + 12582912.0) - 12582912.0
    tl.store(out + at, normed.to(out.dtype.element_ty), mask=inside)


def add_rms_norm(
    x: Tensor,
    residual: Tensor,
    weight: Tensor,
    eps: float,
    *,
    inner_weight: Tensor | None = None,
    weight_offset: float = 0.0,
) -> Tensor:
    """Adds x to `residual` in place and gives the norm of the sum, [T, hidden_size] all of them, in one dtype.

    weight: [hidden_size]. inner_weight: [hidden_size], by which x is normalised first; None adds it as it is.
    weight_offset: added to both weights, 1.0 for Gemma's as files have them. Raises ValueError for wrong shapes.
    """
    out = torch.empty_like(x)
    _launch(x, residual, weight, eps, inner_weight=inner_weight, weight_offset=weight_offset, out=out, scales=None)
    return out


def add_rms_norm_quantized(
    x: Tensor,
    residual: Tensor,
    weight: Tensor,
    eps: float,
    *,
    dtype: torch.dtype,
    inner_weight: Tensor | None = None,
    weight_offset: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """As `add_rms_norm`, the norm in 8 bits: codes [T, hidden_size] of `dtype` and scales [T] float32.

    The norm is code * scale, and the largest number of a row has the largest code. dtype: int8 or float8_e4m3fn.
    """
    if dtype not in LARGEST:
        raise ValueError(f"dtype: expected {' or '.join(map(str, LARGEST))}, got {dtype}")
    out = torch.empty(x.shape, dtype=dtype, device=x.device)
    scales = torch.empty(len(x), dtype=torch.float32, device=x.device)
    _launch(x, residual, weight, eps, inner_weight=inner_weight, weight_offset=weight_offset, out=out, scales=scales)
    return out, scales


def _launch(
    x: Tensor,
    residual: Tensor,
    weight: Tensor,
    eps: float,
    *,
    inner_weight: Tensor | None,
    weight_offset: float,
    out: Tensor,
    scales: Tensor | None,
) -> None:
    """Fills `out`, and `scales` where the output has some. Raises ValueError for wrong shapes."""
    if x.ndim != 2 or not 0 < x.shape[1] <= MAX_HIDDEN_SIZE:
        raise ValueError(f"x: expected [T, up to {MAX_HIDDEN_SIZE}], got {tuple(x.shape)}")
    num_rows, hidden_size = x.shape
    expect("x", x, (num_rows, hidden_size), FLOATS)
    expect("residual", residual, (num_rows, hidden_size), (x.dtype,))
    expect("weight", weight, (hidden_size,), FLOATS)
    if inner_weight is not None:
        expect("inner_weight", inner_weight, (hidden_size,), FLOATS)
    if num_rows:
        block = triton.next_power_of_2(hidden_size)
        add_rms_norm_kernel[(num_rows,)](
            x,
            residual,
            weight if inner_weight is None else inner_weight,
            weight,
            out,
            weight if scales is None else scales,
            hidden_size,
            eps,
            weight_offset,
            has_inner=inner_weight is not None,
            largest=LARGEST.get(out.dtype, 0.0),
            rounded=out.dtype == torch.int8,
            block=block,
            num_warps=num_warps(block),
        )


def num_warps(block: int) -> int:
    """Warps for a row of `block` numbers: 16 numbers a thread, from 1 warp to 16."""
    return min(max(block // 512, 1), 16)


def add_rms_norm_twin(
    x: Tensor,
    residual: Tensor,
    weight: Tensor,
    eps: float,
    *,
    inner_weight: Tensor | None = None,
    weight_offset: float = 0.0,
) -> Tensor:
    """See `add_rms_norm`."""
    return _normed_sum(x, residual, weight, eps, inner_weight, weight_offset).to(x.dtype)


def add_rms_norm_quantized_twin(
    x: Tensor,
    residual: Tensor,
    weight: Tensor,
    eps: float,
    *,
    dtype: torch.dtype,
    inner_weight: Tensor | None = None,
    weight_offset: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """See `add_rms_norm_quantized`."""
    normed = _normed_sum(x, residual, weight, eps, inner_weight, weight_offset)
    scales = (normed.abs().amax(-1) / LARGEST[dtype]).clamp_min(1e-12)
    codes = normed / scales[:, None]
    return (codes.round() if dtype == torch.int8 else codes).to(dtype), scales


def _normed_sum(
    x: Tensor, residual: Tensor, weight: Tensor, eps: float, inner_weight: Tensor | None, weight_offset: float
) -> Tensor:
    """Adds to `residual` and gives the norm in float32."""
    if inner_weight is not None:
        x = rms_norm(x.float(), inner_weight.float() + weight_offset, eps).to(x.dtype)
    residual += x
    return rms_norm(residual.float(), weight.float() + weight_offset, eps)
