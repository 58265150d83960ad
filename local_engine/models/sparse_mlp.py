"""The layers of experts that decoders share: how their weights are named and read."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from local_engine.config import MAX_LAYERS, ModelConfig
from local_engine.layer_config import PLAIN_ROUTING, ExpertsConfig, RoutingConfig
from local_engine.layers.experts import Expert, SparseExperts, clamped_swiglu
from local_engine.layers.linear import Linear
from local_engine.layers.ops import Ops
from local_engine.loading.fields import FieldReader
from local_engine.loading.weights import GgufName, Weights
from local_engine.models.activations import ACTIVATIONS
from local_engine.models.decoder import Mlp, dense_mlp
from local_engine.models.gated_mlp import GatedMlp, PlainMlp
from local_engine.models.projection import projection

__all__ = [
    "SIGMOID",
    "SOFTMAX",
    "ExpertNames",
    "dense_or_sparse_mlp",
    "gguf_expert_names",
    "gguf_experts",
    "hf_grouped_experts",
    "hf_named_dense_layers",
    "leading_layers",
    "sparse_experts",
    "sparse_mlp",
    "swiglu",
]


# The format's numbers for them. The second equals the first, normalised.
SOFTMAX, SIGMOID, _SOFTMAX_OF_CHOSEN = 1, 2, 3


@dataclass(frozen=True, slots=True)
class ExpertNames:
    """What a layer calls its router, the list of its experts, and their gate, up and down matrices.

    up is empty where gate has both, one above the other; of experts without a gate, gate is not read.
    shared, shared_gate: the block beside them that computes all tokens, and its gate. scales: what the weight of each
    expert is multiplied with. latent_down, latent_up: what makes experts' vectors of hidden states, and those again.
    """

    router: str
    experts: str
    gate: str = "gate_proj"
    up: str = "up_proj"
    down: str = "down_proj"
    shared: str = ""
    shared_gate: str = ""
    scales: str = ""
    latent_down: str = ""
    latent_up: str = ""

    def of_layer(self, layer: int) -> "ExpertNames":
        """The same with the names of the whole model."""
        prefix = f"model.layers.{layer}"
        return replace(
            self,
            router=f"{prefix}.{self.router}",
            experts=f"{prefix}.{self.experts}",
            shared=f"{prefix}.{self.shared}",
            shared_gate=f"{prefix}.{self.shared_gate}",
            scales=self.scales and f"{prefix}.{self.scales}",
            latent_down=f"{prefix}.{self.latent_down}",
            latent_up=f"{prefix}.{self.latent_up}",
        )

    @property
    def correction(self) -> str:
        """What is added to experts' scores for the choice."""
        return f"{self.router}.e_score_correction_bias"


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    return F.silu(gate).mul_(up)


def _activation(shape: ExpertsConfig) -> Callable[..., Tensor]:
    if shape.activation == "silu":
        return swiglu
    return partial(clamped_swiglu, alpha=shape.swiglu_alpha, limit=shape.swiglu_limit)


def sparse_experts(
    weights: Weights,
    ops: Ops,
    names: ExpertNames,
    config: ModelConfig,
    shape: ExpertsConfig,
    *,
    activation: Callable[..., Tensor] | None = None,
) -> SparseExperts:
    """The experts of one layer, by the names of the whole model.

    activation: as in `SparseExperts`, where it is not the shape's; without gates it is the block's.

    LoRA adapters know no experts: their matrices see other rows than those of the batch.
    """

    def linear(parts: list[str], rows: int, inputs: int) -> Linear:
        sizes = [rows] * len(parts)
        weight = weights.stacked([f"{name}.weight" for name in parts], sizes, inputs)
        biases = weights.joined([f"{name}.bias" for name in parts], sizes) if shape.bias else None
        return ops.linear(weight, biases)

    read, width, gated = shape.latent_size or config.hidden_size, shape.intermediate_size, config.block.gated
    experts = []
    for index in range(shape.count):
        name = f"{names.experts}.{index}"
        if not gated:
            inside = linear([f"{name}.{names.up}"], width, read)
        elif names.up:
            inside = linear([f"{name}.{names.gate}", f"{name}.{names.up}"], width, read)
        else:
            inside = linear([f"{name}.{names.gate}"], 2 * width, read)
        experts.append(Expert(inside, linear([f"{name}.{names.down}"], read, width)))
    return SparseExperts(
        _precise_router(weights, ops, names.router, shape.count, config.hidden_size)
        if shape.routing != PLAIN_ROUTING
        else linear([names.router], shape.count, config.hidden_size),
        experts,
        (activation or _activation(shape)) if gated else ACTIVATIONS[config.block.activation],
        per_token=shape.per_token,
        normalised=shape.normalised,
        routing=shape.routing,
        correction=weights.flat(names.correction, shape.count).float() if shape.routing.corrected else None,
        scales=weights.joined([names.scales], [shape.count]).float() if names.scales else None,
        weighted_inputs=shape.weighted_inputs,
        gated=gated,
    )


def sparse_mlp(
    weights: Weights,
    ops: Ops,
    names: ExpertNames,
    config: ModelConfig,
    shape: ExpertsConfig,
) -> Linear:
    """`sparse_experts`, summed over the ranks, and the block beside them, where the shape has one."""
    layer = sparse_experts(weights, ops, names, config, shape)
    # What the ranks have of all experts is summed once.
    routed = weights.summed(layer, [f"{names.experts}.{index}.{names.down}" for index in range(shape.count)])
    if shape.latent_size:
        routed = _within_latents(config, shape, names, weights, ops, layer)
    if not shape.shared_size:
        return routed
    block = GatedMlp if config.block.gated else PlainMlp
    shared = block(
        config, names.shared, weights, ops, width=shape.shared_size, activation=ACTIVATIONS[config.block.activation]
    )
    gate = weights.row(f"{names.shared_gate}.weight", config.hidden_size) if shape.shared_gate else None
    return _BesideExperts(routed, shared, None if gate is None else ops.linear(gate, None))


def _within_latents(
    config: ModelConfig, shape: ExpertsConfig, names: ExpertNames, weights: Weights, ops: Ops, layer: SparseExperts
) -> Linear:
    """The experts over vectors that are made of hidden states, which the router sees, and made into such again."""
    hidden, size, bias = config.hidden_size, shape.latent_size, config.mlp_bias
    down = projection(weights, ops, {names.latent_down: size}, hidden, bias=bias)
    up = projection(weights, ops, {names.latent_up: hidden}, size, bias=bias)
    return lambda x: up(layer(down(x), x))


def _precise_router(weights: Weights, ops: Ops, name: str, count: int, hidden: int) -> Linear:
    """In float32 whatever the model's type, as those that do not take the largest logits were trained."""
    linear = ops.linear(weights.stacked([f"{name}.weight"], [count], hidden).float(), None)
    return lambda x: linear(x.float())


class _BesideExperts:
    """Implements `Linear`: experts, and a block that computes all tokens, whose share of each its gate says."""

    def __init__(self, routed: Linear, shared: Linear, gate: Linear | None) -> None:
        self._routed, self._shared, self._gate = routed, shared, gate

    def __call__(self, x: Tensor) -> Tensor:
        shared = self._shared(x)
        if self._gate is not None:
            shared = torch.sigmoid(self._gate(x)) * shared
        return self._routed(x) + shared


def dense_or_sparse_mlp(names: ExpertNames, config: ModelConfig, index: int, weights: Weights, ops: Ops) -> Mlp:
    """The feed-forward block of layer `index`, or its experts, whose names in a layer are given."""
    if config.experts is None or index in config.experts.dense_layers:
        return dense_mlp(config, index, weights, ops)
    return sparse_mlp(weights, ops, names.of_layer(index), config, config.experts)


def hf_grouped_experts(fields: FieldReader) -> ExpertsConfig:
    """From config.json, of experts as DeepSeek V3 has them: chosen by sigmoids, in groups, with a block beside them.

    Raises ModelLoadError.
    """
    width = fields.integer("moe_intermediate_size")
    return ExpertsConfig(
        count=fields.integer("n_routed_experts"),
        per_token=fields.integer("num_experts_per_tok"),
        intermediate_size=width,
        normalised=fields.boolean("norm_topk_prob", True),
        dense_layers=leading_layers(fields.integer("first_k_dense_replace")),
        routing=RoutingConfig(
            scores="sigmoid",
            corrected=True,
            groups=fields.integer("n_group"),
            used_groups=fields.integer("topk_group"),
            scale=fields.number("routed_scaling_factor"),
        ),
        shared_size=fields.integer("n_shared_experts") * width,
    )


def hf_named_dense_layers(fields: FieldReader, num_layers: int) -> frozenset[int] | None:
    """The layers without experts by mlp_layer_types of config.json, a word a layer; None where it is absent.

    Raises ModelLoadError.
    """
    words = fields.texts("mlp_layer_types")
    if not words:
        return None
    if len(words) != num_layers or set(words) - {"dense", "sparse"}:
        fields.refuse(f"mlp_layer_types: expected dense or sparse for each of {num_layers} layers")
    return frozenset(index for index, word in enumerate(words) if word == "dense")


def gguf_experts(
    fields: FieldReader,
    architecture: str,
    intermediate_size: int,
    *,
    gating: int = SOFTMAX,
    normalised: bool = True,
) -> ExpertsConfig:
    """From a GGUF's keys under `architecture`. intermediate_size, gating, normalised: where the file does not say.

    Raises ModelLoadError for ways to choose experts that other architectures have.
    """
    gating = fields.integer(f"{architecture}.expert_gating_func", 0) or gating
    if gating not in (SOFTMAX, SIGMOID, _SOFTMAX_OF_CHOSEN):
        fields.refuse(f"{architecture}.expert_gating_func is {gating}, supported are softmax and sigmoid")
    width = fields.integer(f"{architecture}.expert_feed_forward_length", intermediate_size)
    shared = fields.integer(f"{architecture}.expert_shared_count", 0) * width
    return ExpertsConfig(
        count=fields.integer(f"{architecture}.expert_count"),
        per_token=fields.integer(f"{architecture}.expert_used_count"),
        intermediate_size=width,
        normalised=fields.boolean(f"{architecture}.expert_weights_norm", normalised),
        dense_layers=leading_layers(fields.integer(f"{architecture}.leading_dense_block_count", 0)),
        routing=RoutingConfig(
            scores="sigmoid" if gating == SIGMOID else "softmax",
            groups=fields.integer(f"{architecture}.expert_group_count", 0) or 1,
            used_groups=fields.integer(f"{architecture}.expert_group_used_count", 0) or 1,
            scale=fields.number(f"{architecture}.expert_weights_scale", 0.0) or 1.0,
        ),
        shared_size=fields.integer(f"{architecture}.expert_shared_feed_forward_length", shared),
    )


def leading_layers(count: int) -> frozenset[int]:
    """The indices of the first so many, which have no experts. Files are untrusted."""
    return frozenset(range(min(count, MAX_LAYERS)))


def gguf_expert_names(config: ModelConfig, names: ExpertNames) -> dict[str, GgufName]:
    """Our names of routers and experts to places in the stacks of a GGUF, weights and biases."""
    if config.experts is None:
        return {}
    found: dict[str, GgufName] = {}
    for layer in range(config.num_layers):
        ours = names.of_layer(layer)
        found[ours.correction] = GgufName(f"blk.{layer}.exp_probs_b.bias")
        found[f"{ours.shared_gate}.weight"] = GgufName(f"blk.{layer}.ffn_gate_inp_shexp.weight")
        found[f"{ours.latent_down}.weight"] = GgufName(f"blk.{layer}.ffn_latent_down.weight")
        found[f"{ours.latent_up}.weight"] = GgufName(f"blk.{layer}.ffn_latent_up.weight")
        for kind in ("weight", "bias"):
            if config.experts.shared_size:
                for part, theirs in (("gate_proj", "gate"), ("up_proj", "up"), ("down_proj", "down")):
                    found[f"{ours.shared}.{part}.{kind}"] = GgufName(f"blk.{layer}.ffn_{theirs}_shexp.{kind}")
            found[f"{ours.router}.{kind}"] = GgufName(f"blk.{layer}.ffn_gate_inp.{kind}")
            gate_up = "ffn_gate_exps" if ours.up else "ffn_gate_up_exps"
            for part, theirs in ((ours.gate, gate_up), (ours.up, "ffn_up_exps"), (ours.down, "ffn_down_exps")):
                for index in range(config.experts.count):
                    stack = GgufName(f"blk.{layer}.{theirs}.{kind}", expert=index)
                    found[f"{ours.experts}.{index}.{part}.{kind}"] = stack
    return found
