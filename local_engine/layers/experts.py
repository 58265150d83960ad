"""A sparse layer of experts: every token is computed by the few that its router chooses (Shazeer et al. 2017).

The reference runs expert after expert over the tokens that chose it. A token's outputs are added in the order of the
experts' indices, whatever else is in the batch, so on the CPU in float32 it comes out the same alone and in company.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from local_engine.layer_config import PLAIN_ROUTING, RoutingConfig
from local_engine.layers.linear import Linear

__all__ = ["Expert", "SparseExperts", "choose_experts", "clamped_swiglu"]


@dataclass(frozen=True, slots=True)
class Expert:
    """One feed-forward block: gate_up yields the gate's W columns, then the W that are gated; or W without a gate."""

    gate_up: Linear
    down: Linear


def choose_experts(
    logits: Tensor,
    per_token: int,
    *,
    normalised: bool,
    routing: RoutingConfig = PLAIN_ROUTING,
    correction: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Router logits [T, E] -> indices of the `per_token` likeliest experts, int64, and their weights, float32.

    Both [T, per_token]. Weights are shares of the softmax over all experts, or of the chosen ones if normalised, or as
    `routing` says. correction: [E] float32, where it has one.
    """
    logits = logits.to(torch.float32)
    if routing != PLAIN_ROUTING:
        return _route(logits, per_token, normalised, routing, correction)
    chosen, experts = logits.topk(per_token, dim=-1)
    if normalised:
        return experts, chosen.softmax(-1)
    return experts, (chosen - logits.logsumexp(-1, keepdim=True)).exp()


def _route(
    logits: Tensor, per_token: int, normalised: bool, routing: RoutingConfig, correction: Tensor | None
) -> tuple[Tensor, Tensor]:
    scores = logits.sigmoid() if routing.scores == "sigmoid" else logits.softmax(-1)
    judged = scores if correction is None else scores + correction
    if routing.groups > 1:
        grouped = judged.view(len(judged), routing.groups, -1)
        best = grouped.topk(1 if correction is None else 2, dim=-1).values.sum(-1)
        used = torch.zeros_like(best, dtype=torch.bool)
        used.scatter_(1, best.topk(routing.used_groups, dim=-1).indices, True)
        judged = grouped.masked_fill(~used.unsqueeze(-1), -torch.inf).flatten(1)
    experts = judged.topk(per_token, dim=-1).indices
    weights = scores.gather(1, experts)
    if normalised:
        weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
    return experts, weights * routing.scale


def clamped_swiglu(gate: Tensor, up: Tensor, *, alpha: float, limit: float) -> Tensor:
    """gpt-oss's activation: (up + 1) * gate * sigmoid(alpha * gate), gate at most `limit`, up within +-limit."""
    gate = gate.clamp(max=limit)
    return (up.clamp(-limit, limit) + 1).mul_(gate).mul_(torch.sigmoid(gate * alpha))


class SparseExperts:
    """The layer: [T, hidden_size] -> [T, hidden_size].

    activation: gate and up, [n, W] each, to what `down` takes; of experts that are not gated, what they have inside.
    scales: [E], what the weight of each expert is multiplied with. weighted_inputs: the weights multiply what experts
    read, not what they yield.
    """

    def __init__(
        self,
        router: Linear,
        experts: Sequence[Expert],
        activation: Callable[..., Tensor],
        *,
        per_token: int,
        normalised: bool,
        routing: RoutingConfig = PLAIN_ROUTING,
        correction: Tensor | None = None,
        scales: Tensor | None = None,
        weighted_inputs: bool = False,
        gated: bool = True,
    ) -> None:
        self._router = router
        self._experts = experts
        self._activation = activation
        self._per_token = per_token
        self._normalised = normalised
        self._routing, self._correction, self._scales = routing, correction, scales
        self._weighted_inputs = weighted_inputs
        self._parts = 2 if gated else 1

    def __call__(self, x: Tensor, judged: Tensor | None = None) -> Tensor:
        """judged: what the router sees of the tokens, where it is not x."""
        experts, weights = choose_experts(
            self._router(x if judged is None else judged),
            self._per_token,
            normalised=self._normalised,
            routing=self._routing,
            correction=self._correction,
        )
        if self._scales is not None:
            weights = weights * self._scales[experts]
        # Pairs of a token and an expert, ordered by expert: `places` are indices into the flattened choice.
        flat = experts.flatten()
        places = flat.argsort(stable=True)
        counts = flat.bincount(minlength=len(self._experts)).tolist()
        shares = weights.flatten().to(x.dtype)
        out = torch.zeros_like(x)
        begin = 0
        for expert, count in zip(self._experts, counts, strict=True):
            if count:
                mine = places[begin : begin + count]
                rows = mine // self._per_token
                share, read = shares[mine, None], x[rows]
                inside = expert.gate_up(read * share if self._weighted_inputs else read)
                yielded = expert.down(self._activation(*inside.chunk(self._parts, dim=-1)))
                out.index_add_(0, rows, yielded if self._weighted_inputs else yielded * share)
            begin += count
        return out
