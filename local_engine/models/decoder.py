"""The decoder that all architectures share: layers of attention and feed-forward, as their configuration frames them.

Files beside this one say how an architecture's own files describe it, and what its feed-forward blocks are.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from local_engine.config import ModelConfig
from local_engine.layer_config import Activation
from local_engine.layers.attention import AttentionPlans, LayerCache
from local_engine.layers.ops import Ops
from local_engine.layers.recurrent_state import StepStates
from local_engine.loading.weights import Weights
from local_engine.models.gated_mlp import GatedMlp, PlainMlp
from local_engine.models.latent_attention import LatentAttention
from local_engine.models.norm import Norm, read_norm, unchanged
from local_engine.models.recurrent import build_recurrent
from local_engine.models.self_attention import LayerStep, Rotary, SelfAttention

__all__ = ["BuildMlp", "Decoder", "Mlp", "build_decoder", "dense_mlp"]

# A layer's feed-forward block: what it reads to what is added to the residual, [T, hidden_size] each.
Mlp = Callable[[Tensor], Tensor]
Attention = Callable[[Tensor, LayerCache, LayerStep], Tensor]
Mixer = Callable[[Tensor, "DecoderStep"], Tensor]
BuildMlp = Callable[[ModelConfig, int, Weights, Ops], Mlp]


def _gelu_tanh(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")


def _relu_squared(x: Tensor) -> Tensor:
    return F.relu(x).square()


_ACTIVATIONS: Mapping[Activation, Callable[[Tensor], Tensor]] = {
    "silu": F.silu,
    "gelu_tanh": _gelu_tanh,
    "relu_squared": _relu_squared,
}


def dense_mlp(config: ModelConfig, index: int, weights: Weights, ops: Ops) -> Mlp:
    """The one feed-forward block of layer `index`."""
    name, activation = f"model.layers.{index}.mlp", _ACTIVATIONS[config.block.activation]
    if not config.block.gated:
        return PlainMlp(config, name, weights, ops, activation=activation)
    return GatedMlp(config, name, weights, ops, width=config.intermediate_size, activation=activation)


@dataclass(frozen=True, slots=True)
class DecoderStep:
    """What all layers share in one step. attention: an item for each kind of layers."""

    attention: Sequence[LayerStep]
    caches: Sequence[LayerCache]
    states: StepStates


def _mixer(config: ModelConfig, index: int, weights: Weights, ops: Ops) -> Mixer:
    """What of layer `index` looks at other rows than its own: attention, or a recurrence."""
    if config.is_recurrent(index):
        recurrent = build_recurrent(config, index, weights, ops)
        place = sum(map(config.is_recurrent, range(index)))
        return lambda x, step: recurrent(x, step.states.layers[place], step.states.rows)
    attention: Attention = (
        SelfAttention(config, index, weights, ops)
        if config.latent is None
        else LatentAttention(config, config.latent, index, weights, ops)
    )
    kind, place = config.kind_of(index), index - sum(map(config.is_recurrent, range(index)))
    return lambda x, step: attention(x, step.caches[place], step.attention[kind])


class _Layer:
    """Adds to the residual in place: two fewer copies of [T, hidden_size] a layer."""

    def __init__(self, config: ModelConfig, index: int, weights: Weights, ops: Ops, build_mlp: BuildMlp) -> None:
        self._parallel = config.block.norms == "parallel"

        def norm(name: str | None) -> Norm:
            if name is None:
                return unchanged
            return read_norm(config, f"model.layers.{index}.{name}", config.hidden_size, weights, ops)

        names = config.block.layer_norms
        self._attention_input, self._attention_output = norm(names.attention_input), norm(names.attention_output)
        self._mix = _mixer(config, index, weights, ops)
        self._mlp_input, self._mlp_output = norm(names.mlp_input), norm(names.mlp_output)
        self._mlp = build_mlp(config, index, weights, ops)

    def __call__(self, hidden: Tensor, step: DecoderStep) -> None:
        x = self._attention_input(hidden)
        hidden += self._attention_output(self._mix(x, step))
        if not self._parallel:
            x = self._mlp_input(hidden)
        hidden += self._mlp_output(self._mlp(x))


class Decoder:
    """Implements `Model`. Weights are shared and never written, so any number of engines may hold one."""

    def __init__(self, config: ModelConfig, weights: Weights, ops: Ops, *, build_mlp: BuildMlp = dense_mlp) -> None:
        self._config = config
        hidden = config.hidden_size
        self._vocabulary = weights.vocabulary(config.vocab_size)
        self._embedding = weights.stacked(["model.embed_tokens.weight"], [self._vocabulary.rows], hidden)
        # Rounded to the model's type, as Gemma was trained.
        self._embedding_scale = float(torch.tensor(config.block.embedding_scale, dtype=self._embedding.dtype))
        self._layers = [_Layer(config, index, weights, ops, build_mlp) for index in range(config.num_layers)]
        for index in range(config.num_layers, config.num_layers + config.predicting_layers):
            for prefix in ("model.layers", "blk"):
                weights.skip_under(f"{prefix}.{index}.")
        self._norm = read_norm(config, "model.norm", hidden, weights, ops)
        if config.tie_embeddings:
            weights.skip("lm_head.weight")
            self._head = ops.linear(self._embedding, None)
        else:
            self._head = ops.linear(weights.stacked(["lm_head.weight"], [self._vocabulary.rows], hidden), None)
        self._rotary = Rotary(config, weights, self._embedding.device)

    @property
    def config(self) -> ModelConfig:
        return self._config

    def embed(self, token_ids: Tensor) -> Tensor:
        """See `Model.embed`."""
        embedded = self._vocabulary.embed(token_ids, self._embedding)
        return embedded if self._embedding_scale == 1 else embedded * self._embedding_scale

    def forward(
        self,
        hidden: Tensor,
        positions: Tensor,
        caches: Sequence[LayerCache],
        plans: AttentionPlans,
        states: StepStates,
    ) -> Tensor:
        """See `Model.forward`."""
        step = DecoderStep(self._rotary.steps(positions, hidden.dtype, plans), caches, states)
        for layer in self._layers:
            layer(hidden, step)
        return hidden

    def normed(self, hidden: Tensor) -> Tensor:
        """See `Model.normed`."""
        return self._norm(hidden)

    def logits(self, hidden: Tensor) -> Tensor:
        """See `Model.logits`."""
        logits = self._vocabulary.joined(self._head(self.normed(hidden))).float()
        if self._config.block.logits_scale != 1:
            logits *= self._config.block.logits_scale
        cap = self._config.logits_soft_cap
        return logits if cap is None else torch.tanh(logits / cap) * cap


def build_decoder(config: ModelConfig, weights: Weights, ops: Ops) -> Decoder:
    """A model with all its weights read. Raises ModelLoadError naming a missing or misshapen tensor."""
    return Decoder(config, weights, ops)
