"""Which experts compute a token, and their shares: `layers.experts.choose_experts` is the twin.

All routers that are here choose the likeliest experts; shares are of the softmax over all (Qwen3-MoE as its config.json
may say) or of that over the chosen (Mixtral, gpt-oss, Qwen3-MoE).
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from local_engine.kernels.triton.shapes import FLOATS, expect

__all__ = ["MAX_EXPERTS", "route_experts"]

MAX_EXPERTS = 1024
# Numbers of a program's tile: tokens times the padded number of experts.
_TILE = 1024
# Up to so many tokens each has a program of its own.
_FEW_TOKENS = 256


@triton.jit
def route_experts_kernel(
    logits,
    experts,
    weights,
    num_tokens,
    num_experts,
    per_token: tl.constexpr,
    normalised: tl.constexpr,
    rows: tl.constexpr,
    slots: tl.constexpr,
    block: tl.constexpr,
):
    """`rows` tokens.

    Grid: (T / rows,). Tile: rows x the experts, padded to `block`. Reads T E numbers and writes 2 T per_token. Takes
    the largest logit again and again, of equal ones the first expert. Computes in float32, as the twin to 1e-6.
    """
    row, expert = tl.program_id(0) * rows + tl.arange(0, rows), tl.arange(0, block)
    inside = (row < num_tokens)[:, None] & (expert < num_experts)[None, :]
    at = row.to(tl.int64)[:, None] * num_experts + expert[None, :]
    value = tl.load(logits + at, mask=inside, other=float("-inf")).to(tl.float32)
    # Rows beyond the last have no logits, and -inf - -inf is not a number.
    value = tl.where((row < num_tokens)[:, None], value, 0.0)
    top = tl.max(value, 1)
    slot = tl.arange(0, slots)
    chosen = tl.full([rows, slots], 0, tl.int32)
    shares = tl.full([rows, slots], 0.0, tl.float32)
    left = inside
    for index in range(per_token):
        largest = tl.max(tl.where(left, value, float("-inf")), 1)
        first = tl.min(tl.where(left & (value == largest[:, None]), expert[None, :], num_experts - 1), 1)
        left = left & (expert[None, :] != first[:, None])
        chosen = tl.where(slot[None, :] == index, first[:, None], chosen)
        shares = tl.where(slot[None, :] == index, tl.exp(largest - top)[:, None], shares)
    total = tl.sum(shares, 1) if normalised else tl.sum(tl.exp(value - top[:, None]), 1)
    out = row[:, None] * per_token + slot[None, :]
    kept = (row < num_tokens)[:, None] & (slot < per_token)[None, :]
    tl.store(experts + out, chosen, mask=kept)
    total = tl.where(row < num_tokens, total, 1.0)
    tl.store(weights + out, shares / total[:, None], mask=kept)


def route_experts(logits: Tensor, per_token: int, *, normalised: bool) -> tuple[Tensor, Tensor]:
    """Router logits [T, E] -> the experts of each token, int32, and their weights, float32: both [T, per_token].

    The likeliest expert comes first. normalised: weights are shares of the chosen experts alone. Raises ValueError.
    """
    if logits.ndim != 2 or not 1 <= per_token <= logits.shape[1] <= MAX_EXPERTS:
        raise ValueError(f"logits: expected [T, {per_token} to {MAX_EXPERTS} experts], got {tuple(logits.shape)}")
    num_tokens, num_experts = logits.shape
    expect("logits", logits, (num_tokens, num_experts), FLOATS)
    experts = torch.empty(num_tokens, per_token, dtype=torch.int32, device=logits.device)
    weights = torch.empty(num_tokens, per_token, dtype=torch.float32, device=logits.device)
    if num_tokens:
        block = triton.next_power_of_2(num_experts)
        rows = max(_TILE // block, 1) if num_tokens > _FEW_TOKENS else 1
        route_experts_kernel[(triton.cdiv(num_tokens, rows),)](
            logits,
            experts,
            weights,
            num_tokens,
            num_experts,
            per_token=per_token,
            normalised=normalised,
            rows=rows,
            slots=triton.next_power_of_2(per_token),
            block=block,
            num_warps=4,
        )
    return experts, weights
