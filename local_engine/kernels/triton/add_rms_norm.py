"""Residual add and RMS norm (Zhang and Sennrich 2019) in one pass over the hidden states.

Llama's form is residual += x; y = norm(residual) * weight. Gemma's normalises x by a weight of its own before it is
added, and adds 1 to all weights, in float32: x has both with `inner_weight` and `weight_offset`.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from local_engine.kernels.triton.shapes import FLOATS, expect
from local_engine.layers.rms_norm import rms_norm

__all__ = ["MAX_HIDDEN_SIZE", "add_rms_norm", "add_rms_norm_twin"]

# A row is held in registers: beyond this it would spill.
MAX_HIDDEN_SIZE = 16_384


@triton.jit
def add_rms_norm_kernel(
    x,
    residual,
    inner_weight,
    weight,
    out,
    hidden_size,
    eps,
    weight_offset,
    has_inner: tl.constexpr,
    block: tl.constexpr,
):
    """One row.

    Grid: (T,). Tile: the row, padded to `block`. Moves 4 T hidden_size numbers (2 read, 2 written) and the weights,
    which stay in the L2 cache. Accumulates in float32. Differs from the twin by one rounding of the output's type.
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
    tl.store(out + at, (total * scale * weights).to(out.dtype.element_ty), mask=inside)


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
    if x.ndim != 2 or not 0 < x.shape[1] <= MAX_HIDDEN_SIZE:
        raise ValueError(f"x: expected [T, up to {MAX_HIDDEN_SIZE}], got {tuple(x.shape)}")
    num_rows, hidden_size = x.shape
    expect("x", x, (num_rows, hidden_size), FLOATS)
    expect("residual", residual, (num_rows, hidden_size), (x.dtype,))
    expect("weight", weight, (hidden_size,), FLOATS)
    if inner_weight is not None:
        expect("inner_weight", inner_weight, (hidden_size,), FLOATS)
    out = torch.empty_like(x)
    if num_rows:
        block = triton.next_power_of_2(hidden_size)
        add_rms_norm_kernel[(num_rows,)](
            x,
            residual,
            weight if inner_weight is None else inner_weight,
            weight,
            out,
            hidden_size,
            eps,
            weight_offset,
            has_inner=inner_weight is not None,
            block=block,
            num_warps=num_warps(block),
        )
    return out


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
    if inner_weight is not None:
        x = rms_norm(x.float(), inner_weight.float() + weight_offset, eps).to(x.dtype)
    residual += x
    return rms_norm(residual.float(), weight.float() + weight_offset, eps).to(x.dtype)
