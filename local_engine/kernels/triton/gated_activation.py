"""The gate of a feed-forward block (Shazeer 2020): activation(gate) * up, from gate and up side by side."""

from typing import assert_never

import torch
import torch.nn.functional as F  # noqa: N812
import triton
import triton.language as tl
from torch import Tensor

from local_engine.kernels.operations import Activation
from local_engine.kernels.triton.shapes import FLOATS, expect
from local_engine.layers.experts import clamped_swiglu

__all__ = ["Activation", "gated_activation", "gated_activation_twin"]

_BLOCK = 1024


@triton.jit
def gated_activation_kernel(gate_up, out, width, alpha, limit, activation: tl.constexpr, block: tl.constexpr):
    """`block` columns of one row.

    Grid: (T, width / block). Moves 3 T width numbers (2 read, 1 written). Computes in float32. Differs from the twin by
    one rounding of the output's type; in float32 by 1e-7 of gate times up, as 1 + erf cancels where gates are negative.
    """
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * block + tl.arange(0, block)
    inside = column < width
    gate = tl.load(gate_up + row * 2 * width + column, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(gate_up + row * 2 * width + width + column, mask=inside, other=0.0).to(tl.float32)
    if activation == "silu":
        gate = gate * tl.sigmoid(gate)
    elif activation == "gelu":
        gate = gate * 0.5 * (1.0 + tl.erf(gate * 0.7071067811865476))
    elif activation == "clamped_swiglu":
        gate = tl.minimum(gate, limit)
        gate = gate * tl.sigmoid(gate * alpha)
        up = tl.minimum(tl.maximum(up, -limit), limit) + 1.0
    else:
        # (1 + tanh(u)) / 2 is sigmoid(2 u); u = sqrt(2 / pi) (x + 0.044715 x^3).
        gate = gate * tl.sigmoid(1.5957691216057308 * (gate + 0.044715 * gate * gate * gate))
    tl.store(out + row * width + column, (gate * up).to(out.dtype.element_ty), mask=inside)


def gated_activation(gate_up: Tensor, activation: Activation, *, alpha: float = 1.702, limit: float = 7.0) -> Tensor:
    """gate_up [T, 2 W], the gate's columns first -> [T, W] in its dtype. Raises ValueError for wrong shapes.

    alpha, limit: of clamped_swiglu, see `layers.experts`.
    """
    if gate_up.ndim != 2 or gate_up.shape[1] % 2:
        raise ValueError(f"gate_up: expected [T, 2 W], got {tuple(gate_up.shape)}")
    num_rows, width = gate_up.shape[0], gate_up.shape[1] // 2
    expect("gate_up", gate_up, (num_rows, 2 * width), FLOATS)
    out = torch.empty(num_rows, width, dtype=gate_up.dtype, device=gate_up.device)
    if out.numel():
        grid = (num_rows, triton.cdiv(width, _BLOCK))
        gated_activation_kernel[grid](
            gate_up, out, width, alpha, limit, activation=activation, block=_BLOCK, num_warps=4
        )
    return out


def gated_activation_twin(
    gate_up: Tensor, activation: Activation, *, alpha: float = 1.702, limit: float = 7.0
) -> Tensor:
    """See `gated_activation`."""
    gate, up = gate_up.float().chunk(2, dim=-1)
    match activation:
        case "silu":
            gate = F.silu(gate)
        case "gelu":
            gate = F.gelu(gate)
        case "gelu_tanh":
            gate = F.gelu(gate, approximate="tanh")
        case "clamped_swiglu":
            return clamped_swiglu(gate, up, alpha=alpha, limit=limit).to(gate_up.dtype)
        case _:
            assert_never(activation)
    return (gate * up).to(gate_up.dtype)
