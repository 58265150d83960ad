"""A whole layer of experts on the device, from the router's logits on: `layers.experts.SparseExperts` is the twin.

Nothing waits to learn who was chosen, so the calls can be captured in a CUDA graph.
"""

from dataclasses import dataclass

from torch import Tensor

from local_engine.kernels.triton.combine_experts import combine_experts
from local_engine.kernels.triton.gated_activation import Activation, gated_activation
from local_engine.kernels.triton.grouped_matmul import grouped_matmul
from local_engine.kernels.triton.route_experts import route_experts
from local_engine.kernels.triton.row_groups import block_rows, group_rows

__all__ = ["StackedExperts", "sparse_experts"]


@dataclass(frozen=True, slots=True)
class StackedExperts:
    """The matrices of a layer's E experts, one dtype. gate_up: [E, 2 W, hidden], the gate's rows first.

    down: [E, hidden, W]. Biases: [E, 2 W] and [E, hidden], or None. activation, alpha, limit: see `gated_activation`.
    """

    gate_up: Tensor
    down: Tensor
    activation: Activation = "silu"
    gate_up_bias: Tensor | None = None
    down_bias: Tensor | None = None
    alpha: float = 1.702
    limit: float = 7.0


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
