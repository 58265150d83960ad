"""How the layers of a decoder are put together: the groups of `ModelConfig` that every path of computation reads.

Imports no torch.
"""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

__all__ = [
    "LLAMA_BLOCK",
    "PLAIN_ROUTING",
    "Activation",
    "BlockConfig",
    "ExpertsConfig",
    "LatentConfig",
    "LayerNorms",
    "NormPlacement",
    "RoutingConfig",
    "Xielu",
]

Activation = Literal["silu", "gelu_tanh", "relu_squared", "xielu"]
NormPlacement = Literal["before", "after", "around", "around_attention", "parallel"]


class Xielu(NamedTuple):
    """The numbers of one layer's xIELU, see models/apertus.py. alpha_p, alpha_n: before their softplus."""

    alpha_p: float
    alpha_n: float
    beta: float
    eps: float


class LayerNorms(NamedTuple):
    """What a layer calls the norms of what its two sublayers read and of what they add to the residual; None: none."""

    attention_input: str | None
    attention_output: str | None
    mlp_input: str | None
    mlp_output: str | None


_LAYER_NORMS = {
    "before": LayerNorms("input_layernorm", None, "post_attention_layernorm", None),
    "after": LayerNorms(None, "post_attention_layernorm", None, "post_feedforward_layernorm"),
    "around": LayerNorms(
        "input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"
    ),
    "around_attention": LayerNorms("input_layernorm", "post_attention_layernorm", None, "post_feedforward_layernorm"),
    "parallel": LayerNorms("input_layernorm", None, None, None),
}


@dataclass(frozen=True, slots=True)
class BlockConfig:
    """In what a layer's frame is not Llama's.

    norms: of what attention and feed-forward read, of what they add to the residual, or of both. parallel: one of what
        both of them read, side by side. around_attention: what the feed-forward block reads is normalised within it.
    norm: layer subtracts the mean, layer_bias adds one too. norm_offset: added to the weights of norms.
    activation: of the gate; not gated, of what the feed-forward block has inside. xielus: of each layer, where the file
        has them beside its tensors.
    embedding_scale, logits_scale: what embeddings and logits are multiplied with.
    layer_scales: what a layer leaves is multiplied with a number of its own.
    per_layer_size: numbers that each layer gets of a token, beside the residual (`models/per_layer.py`); 0 is none.
    """

    norms: NormPlacement = "before"
    norm: Literal["rms", "layer", "layer_bias"] = "rms"
    norm_offset: float = 0.0
    activation: Activation = "silu"
    xielus: tuple[Xielu, ...] = ()
    gated: bool = True
    embedding_scale: float = 1.0
    logits_scale: float = 1.0
    layer_scales: bool = False
    per_layer_size: int = 0

    @property
    def layer_norms(self) -> LayerNorms:
        return _LAYER_NORMS[self.norms]

    def problem(self) -> str | None:
        """One line naming the first impossible value, or None."""
        for name, number in (("embedding_scale", self.embedding_scale), ("logits_scale", self.logits_scale)):
            if not (math.isfinite(number) and number > 0):
                return f"{name} is {number}, expected a positive number"
        if not 0 <= self.per_layer_size <= 1 << 16:
            return f"per_layer_size is {self.per_layer_size}, expected 0 to {1 << 16}"
        return None


LLAMA_BLOCK = BlockConfig()


@dataclass(frozen=True, slots=True)
class LatentConfig:
    """Attention over one compressed vector a token in place of keys and values (MLA, DeepSeek-AI 2024).

    rank: numbers of that vector, from which each head makes plain_dim of its key and value_dim of its value.
    turning_dim: of a further part of the key, which turns and is the same for all heads.
    query_rank: of the vector that queries are made from; 0 makes them from the hidden state.
    """

    rank: int
    query_rank: int
    plain_dim: int
    turning_dim: int
    value_dim: int

    def problem(self) -> str | None:
        """One line naming the first impossible value, or None."""
        for name, value in (
            ("kv_lora_rank", self.rank),
            ("q_lora_rank", self.query_rank + 1),
            ("qk_nope_head_dim", self.plain_dim),
            ("qk_rope_head_dim", self.turning_dim),
            ("v_head_dim", self.value_dim),
        ):
            if not 1 <= value <= 1 << 16:
                return f"{name} is {value}, expected 1 to {1 << 16}"
        return None


@dataclass(frozen=True, slots=True)
class RoutingConfig:
    """How a router chooses the experts of a token, where it is not by the largest logits.

    scores: of an expert: its share of all, or by itself. corrected: for the choice alone a number of the expert's own
    is added. groups, used_groups: the choice is among the groups with the best experts: the best one's score, or the
    sum of the two best where scores are corrected. scale: of the chosen experts' weights.
    """

    scores: Literal["softmax", "sigmoid"] = "softmax"
    corrected: bool = False
    groups: int = 1
    used_groups: int = 1
    scale: float = 1.0

    def problem(self, count: int, per_token: int) -> str | None:
        """One line naming the first impossible value, or None. count, per_token: as in `ExpertsConfig`."""
        if self.groups < 1 or count % self.groups or not 1 <= self.used_groups <= self.groups:
            return f"{self.used_groups} of {self.groups} groups of {count} experts cannot be"
        if per_token > count // self.groups * self.used_groups:
            return f"{per_token} experts a token are more than {self.used_groups} groups have"
        if self.groups > 1 and self.corrected and count // self.groups < 2:
            return f"{self.groups} groups of {count} experts have less than two each"
        if not (math.isfinite(self.scale) and self.scale > 0):
            return f"the scale of the experts' weights is {self.scale}, expected a positive number"
        return None


PLAIN_ROUTING = RoutingConfig()


@dataclass(frozen=True, slots=True)
class ExpertsConfig:
    """The sparse experts of a decoder's layers.

    per_token: how many of the `count` experts compute a token. intermediate_size: the width of one.
    normalised: the chosen experts' weights add up to 1. dense_layers: indices of the layers that have none.
    shared_size: the width of a block that computes all tokens beside them; 0 is none. shared_gate: it has a gate.
    weighted_inputs: an expert's weight multiplies what it reads, not what it yields.
    latent_size: of the vectors that experts read and yield in place of hidden states; 0 is none.
    bias: router and experts have biases. activation: of experts' gates. swiglu_alpha, swiglu_limit: of clamped_swiglu,
        which is gpt-oss's, see models/gpt_oss.py.
    """

    count: int
    per_token: int
    intermediate_size: int
    normalised: bool = True
    dense_layers: frozenset[int] = frozenset()
    routing: RoutingConfig = PLAIN_ROUTING
    shared_size: int = 0
    shared_gate: bool = False
    weighted_inputs: bool = False
    latent_size: int = 0
    bias: bool = False
    activation: Literal["silu", "clamped_swiglu"] = "silu"
    swiglu_alpha: float = 1.702
    swiglu_limit: float = 7.0

    def problem(self) -> str | None:
        """One line naming the first impossible value, or None."""
        for name, value, high in (
            ("number of experts", self.count, 1 << 14),
            ("number of experts per token", self.per_token, self.count),
            ("experts' intermediate_size", self.intermediate_size, 1 << 22),
            ("shared experts' size", self.shared_size or 1, 1 << 22),
            ("experts' latent size", self.latent_size or 1, 1 << 20),
        ):
            if not 1 <= value <= high:
                return f"the {name} is {value}, expected 1 to {high}"
        for name, number in (("swiglu_alpha", self.swiglu_alpha), ("swiglu_limit", self.swiglu_limit)):
            if not (math.isfinite(number) and number > 0):
                return f"{name} is {number}, expected a positive number"
        return self.routing.problem(self.count, self.per_token)
