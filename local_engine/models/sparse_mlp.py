"""The layers of experts that decoders share: how their weights are named and read."""

from collections.abc import Callable
from dataclasses import dataclass

import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from local_engine.config import ModelConfig
from local_engine.layer_config import ExpertsConfig
from local_engine.layers.experts import Expert, SparseExperts
from local_engine.layers.linear import Linear
from local_engine.layers.ops import Ops
from local_engine.loading.fields import FieldReader
from local_engine.loading.weights import GgufName, Weights

__all__ = ["ExpertNames", "gguf_experts", "gguf_expert_names", "sparse_mlp", "swiglu"]


# The format's numbers for them. The second equals the first, normalised.
_SOFTMAX, _SOFTMAX_OF_CHOSEN = 1, 3


@dataclass(frozen=True, slots=True)
class ExpertNames:
    """What a layer calls its router, the list of its experts, and their gate, up and down matrices."""

    router: str
    experts: str
    gate: str = "gate_proj"
    up: str = "up_proj"
    down: str = "down_proj"

    def of_layer(self, layer: int) -> "ExpertNames":
        """The same with the names of the whole model."""
        prefix = f"model.layers.{layer}"
        return ExpertNames(f"{prefix}.{self.router}", f"{prefix}.{self.experts}", self.gate, self.up, self.down)


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    return F.silu(gate).mul_(up)


def sparse_mlp(
    weights: Weights,
    ops: Ops,
    names: ExpertNames,
    config: ModelConfig,
    shape: ExpertsConfig,
    *,
    activation: Callable[[Tensor, Tensor], Tensor] = swiglu,
    bias: bool = False,
) -> Linear:
    """The experts of one layer, by the names of the whole model. bias: router and experts have biases.

    LoRA adapters know no experts: their matrices see other rows than those of the batch.
    """

    def linear(parts: list[str], rows: int, inputs: int) -> Linear:
        sizes = [rows] * len(parts)
        weight = weights.stacked([f"{name}.weight" for name in parts], sizes, inputs)
        return ops.linear(weight, weights.joined([f"{name}.bias" for name in parts], sizes) if bias else None)

    hidden, width = config.hidden_size, shape.intermediate_size
    experts = []
    downs = []
    for index in range(shape.count):
        name = f"{names.experts}.{index}"
        gate_up = linear([f"{name}.{names.gate}", f"{name}.{names.up}"], width, hidden)
        downs.append(f"{name}.{names.down}")
        experts.append(Expert(gate_up, linear(downs[-1:], hidden, width)))
    layer = SparseExperts(
        linear([names.router], shape.count, hidden),
        experts,
        activation,
        per_token=shape.per_token,
        normalised=shape.normalised,
    )
    # What the ranks have of all experts is summed once.
    return weights.summed(layer, downs)


def gguf_experts(fields: FieldReader, architecture: str, intermediate_size: int) -> ExpertsConfig:
    """From a GGUF's keys under `architecture`. intermediate_size: of an expert, where the file does not say.

    Raises ModelLoadError for ways to choose experts that other architectures have.
    """
    for key, usual in (("expert_group_count", 1), ("expert_shared_count", 0), ("expert_weights_scale", 1.0)):
        if (value := fields.number(f"{architecture}.{key}", usual)) not in (0, usual):
            fields.refuse(f"{architecture}.{key} is {value:g}, supported is {usual:g}")
    gating = fields.integer(f"{architecture}.expert_gating_func", _SOFTMAX)
    if gating not in (_SOFTMAX, _SOFTMAX_OF_CHOSEN):
        fields.refuse(f"{architecture}.expert_gating_func is {gating}, supported is a softmax")
    return ExpertsConfig(
        count=fields.integer(f"{architecture}.expert_count"),
        per_token=fields.integer(f"{architecture}.expert_used_count"),
        intermediate_size=fields.integer(f"{architecture}.expert_feed_forward_length", intermediate_size),
        normalised=fields.boolean(f"{architecture}.expert_weights_norm", True),
    )


def gguf_expert_names(config: ModelConfig, names: ExpertNames) -> dict[str, GgufName]:
    """Our names of routers and experts to places in the stacks of a GGUF, weights and biases."""
    if config.experts is None:
        return {}
    found: dict[str, GgufName] = {}
    for layer in range(config.num_layers):
        ours = names.of_layer(layer)
        for kind in ("weight", "bias"):
            found[f"{ours.router}.{kind}"] = GgufName(f"blk.{layer}.ffn_gate_inp.{kind}")
            for part, theirs in ((ours.gate, "ffn_gate_exps"), (ours.up, "ffn_up_exps"), (ours.down, "ffn_down_exps")):
                for index in range(config.experts.count):
                    stack = GgufName(f"blk.{layer}.{theirs}.{kind}", expert=index)
                    found[f"{ours.experts}.{index}.{part}.{kind}"] = stack
    return found
