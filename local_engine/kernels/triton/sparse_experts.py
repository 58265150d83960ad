"""A whole layer of experts on the device, from the router's logits on: `layers.experts.SparseExperts` is the twin.

Nothing waits to learn who was chosen, so the calls can be captured in a CUDA graph.
"""

import torch
from torch import Tensor

from local_engine.kernels.operations import StackedExperts
from local_engine.kernels.triton.combine_experts import combine_experts
from local_engine.kernels.triton.gated_activation import gated_activation, gated_activation_twin
from local_engine.kernels.triton.grouped_matmul import grouped_matmul
from local_engine.kernels.triton.route_experts import route_experts
from local_engine.kernels.triton.row_groups import block_rows, group_rows
from local_engine.layers.experts import choose_experts

__all__ = ["StackedExperts", "sparse_experts", "sparse_experts_twin"]


def sparse_experts(
    x: Tensor,
    router_logits: Tensor,
    experts: StackedExperts,
    *,
    per_token: int,
    normalised: bool,
    block_size: int | None = None,
) -> Tensor:
    """x [T, hidden] -> [T, hidden] in its dtype. router_logits: [T, E].

    block_size: rows of a block; None goes by the number of tokens, and a fixed one makes a token's bits its own,
    whatever else is in the batch. With few tokens it moves the matrices of the chosen experts, with many it computes
    6 T per_token W hidden operations. Outputs of experts are rounded to the dtype of x before they are added, as in the
    twin.

    Raises ValueError for wrong shapes and types.
    """
    num_experts = len(experts.gate_up)
    chosen, weights = route_experts(router_logits, per_token, normalised=normalised)
    if block_size is None:
        block_size = block_rows(chosen.numel(), num_experts)
    groups = group_rows(chosen, num_experts, block_size=block_size)
    hidden = grouped_matmul(x, experts.gate_up, groups, biases=experts.gate_up_bias)
    hidden = gated_activation(hidden, experts.activation, alpha=experts.alpha, limit=experts.limit)
    return combine_experts(grouped_matmul(hidden, experts.down, groups, biases=experts.down_bias), weights)


def sparse_experts_twin(
    x: Tensor,
    router_logits: Tensor,
    experts: StackedExperts,
    *,
    per_token: int,
    normalised: bool,
    block_size: int | None = None,
) -> Tensor:
    """See `sparse_experts`: expert after expert, in float32. block_size: of the kernels alone."""
    chosen, weights = choose_experts(router_logits, per_token, normalised=normalised)
    out = torch.zeros(x.shape, dtype=torch.float32, device=x.device)
    for index in range(len(experts.gate_up)):
        rows, places = (chosen == index).nonzero(as_tuple=True)
        gate_up = x[rows].float() @ experts.gate_up[index].float().T
        if experts.gate_up_bias is not None:
            gate_up += experts.gate_up_bias[index].float()
        gated = gated_activation_twin(gate_up, experts.activation, alpha=experts.alpha, limit=experts.limit)
        y = gated @ experts.down[index].float().T
        if experts.down_bias is not None:
            y += experts.down_bias[index].float()
        out.index_add_(0, rows, y * weights[rows, places, None])
    return out.to(x.dtype)
