"""What the experts of each token gave, weighed by their shares and added."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from local_engine.kernels.triton.shapes import FLOATS, expect

__all__ = ["combine_experts"]

_BLOCK = 1024


@triton.jit
def combine_experts_kernel(parts, weights, out, width, per_token: tl.constexpr, block: tl.constexpr):
    """`block` columns of one token.

    Grid: (T, width / block). Moves (per_token + 1) T width numbers. Adds in float32, in the order of the experts'
    shares, whatever else is in the batch.
    """
    token = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * block + tl.arange(0, block)
    total = tl.zeros([block], tl.float32)
    for index in tl.static_range(per_token):
        part = token * per_token + index
        value = tl.load(parts + part * width + column, mask=column < width, other=0.0).to(tl.float32)
        total += value * tl.load(weights + part)
    tl.store(out + token * width + column, total.to(out.dtype.element_ty), mask=column < width)


def combine_experts(parts: Tensor, weights: Tensor) -> Tensor:
    """parts [T * per_token, W], weights [T, per_token] float32 -> [T, W] in the dtype of the parts.

    Raises ValueError for wrong shapes and types.
    """
    if weights.ndim != 2 or parts.ndim != 2:
        raise ValueError(f"parts, weights: expected two matrices, got {tuple(parts.shape)}, {tuple(weights.shape)}")
    num_tokens, per_token = weights.shape
    width = parts.shape[1]
    expect("parts", parts, (num_tokens * per_token, width), FLOATS)
    expect("weights", weights, (num_tokens, per_token), (torch.float32,))
    out = torch.empty(num_tokens, width, dtype=parts.dtype, device=parts.device)
    if out.numel():
        grid = (num_tokens, triton.cdiv(width, _BLOCK))
        combine_experts_kernel[grid](parts, weights, out, width, per_token=per_token, block=_BLOCK, num_warps=4)
    return out
