"""The decoder that all architectures share: layers of attention and feed-forward, as their configuration frames them.

Files beside this one say how an architecture's own files describe it, and what its feed-forward blocks are.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from local_engine.config import ModelConfig
from local_engine.layers.attention import AttentionPlans, LayerCache
from local_engine.layers.ops import Ops
from local_engine.layers.recurrent_state import StepStates
from local_engine.loading.weights import Weights
from local_engine.models.activations import ACTIVATIONS
from local_engine.models.gated_mlp import GatedMlp, PlainMlp
from local_engine.models.latent_attention import LatentAttention
from local_engine.models.norm import Norm, read_norm, unchanged
from local_engine.models.per_layer import PerLayerBlock, PerLayerInputs
from local_engine.models.recurrent import build_recurrent
from local_engine.models.self_attention import LayerStep, Rotary, SelfAttention

__all__ = ["BuildMlp", "Decoder", "Mlp", "dense_mlp"]

# A layer's feed-forward block: what it reads to what is added to the residual, [T, hidden_size] each.
Mlp = Callable[[Tensor], Tensor]
Attention = Callable[[Tensor, LayerCache, LayerStep], Tensor]
Mixer = Callable[[Tensor, "DecoderStep"], Tensor]
BuildMlp = Callable[[ModelConfig, int, Weights, Ops], Mlp]


def dense_mlp(config: ModelConfig, index: int, weights: Weights, ops: Ops) -> Mlp:
    """The one feed-forward block of layer `index`."""
    config = config.of_layer(index)
    name, activation = f"model.layers.{index}.mlp", ACTIVATIONS[config.block.activation]
    block = GatedMlp if config.block.gated else PlainMlp
    return block(config, name, weights, ops, width=config.intermediate_size, activation=activation)


@dataclass(frozen=True, slots=True)
class DecoderStep:
    """What all layers share in one step. attention: an item for each kind of layers.

    per_layer: [num_layers, T, per_layer_size], where the model has such inputs.
    """

    attention: Sequence[LayerStep]
    caches: Sequence[LayerCache]
    states: StepStates
    per_layer: Tensor | None


def _recurrence(config: ModelConfig, index: int, weights: Weights, ops: Ops) -> Mixer:
    recurrent = build_recurrent(config, index, weights, ops)
    place = sum(map(config.is_recurrent, range(index)))
    return lambda x, step: recurrent(x, step.states.layers[place], step.states.rows)


def _attention(config: ModelConfig, index: int, weights: Weights, ops: Ops) -> Mixer:
    attention: Attention = (
        SelfAttention(config, index, weights, ops)
        if config.latent is None
        else LatentAttention(config, config.latent, index, weights, ops)
    )
    kind, place = config.kind_of(index), config.cache_of(index)
    return lambda x, step: attention(x, step.caches[place], step.attention[kind])


class _Layer:
    """Adds to the residual in place: two fewer copies of [T, hidden_size] a layer."""

    def __init__(self, config: ModelConfig, index: int, weights: Weights, ops: Ops, build_mlp: BuildMlp) -> None:
        self._parallel = config.block.norms == "parallel"

        def norm(name: str | None, used: bool) -> Norm:
            if name is None or not used:
                return unchanged
            return read_norm(config, f"model.layers.{index}.{name}", config.hidden_size, weights, ops)

        names = config.block.layer_norms
        mixes, feeds = config.is_recurrent(index) or config.attends(index), config.feeds_forward(index)
        self._attention_input = norm(names.attention_input, mixes)
        self._attention_output = norm(names.attention_output, mixes)
        # What looks at other rows than one's own: attention, a recurrence, or both side by side.
        self._mixers: list[Mixer] = []
        if config.is_recurrent(index):
            self._mixers.append(_recurrence(config, index, weights, ops))
        if config.attends(index):
            self._mixers.append(_attention(config, index, weights, ops))
        self._mlp_input, self._mlp_output = norm(names.mlp_input, feeds), norm(names.mlp_output, feeds)
        self._mlp = build_mlp(config, index, weights, ops) if feeds else None
        self._index = index
        self._per_layer = PerLayerBlock(config, index, weights, ops) if config.block.per_layer_size else None
        scale = f"model.layers.{index}.layer_scalar"
        self._scale = weights.joined([scale], [1]) if config.block.layer_scales else None

    def __call__(self, hidden: Tensor, step: DecoderStep) -> None:
        x = self._attention_input(hidden)
        for mix in self._mixers:
            hidden += self._attention_output(mix(x, step))
        if self._mlp is not None:
            if not self._parallel:
                x = self._mlp_input(hidden)
            hidden += self._mlp_output(self._mlp(x))
        if self._per_layer is not None and step.per_layer is not None:
            hidden += self._per_layer(hidden, step.per_layer[self._index])
        if self._scale is not None:
            hidden *= self._scale


class Decoder:
    """Implements `Model`. Weights are shared and never written, so any number of engines may hold one.

    The constructor reads them all; it raises ModelLoadError naming a missing or misshapen tensor.
    """

    def __init__(self, config: ModelConfig, weights: Weights, ops: Ops, *, build_mlp: BuildMlp = dense_mlp) -> None:
        self._config = config
        hidden = config.hidden_size
        self._vocabulary = weights.vocabulary(config.vocab_size)
        self._embedding = weights.stacked(["model.embed_tokens.weight"], [self._vocabulary.rows], hidden)
        # Rounded to the model's type, as Gemma was trained.
        self._embedding_scale = float(torch.tensor(config.block.embedding_scale, dtype=self._embedding.dtype))
        self._per_layer = PerLayerInputs(config, weights, ops) if config.block.per_layer_size else None
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
        self._num_stacked = 0 if config.vision is None else config.vision.num_stacked

    @property
    def config(self) -> ModelConfig:
        return self._config

    def embed(self, token_ids: Tensor) -> Tensor:
        """See `Model.embed`."""
        embedded = self._vocabulary.embed(token_ids, self._embedding)
        if self._embedding_scale != 1:
            embedded = embedded * self._embedding_scale
        if self._num_stacked:
            return F.pad(embedded, (0, self._num_stacked * self._config.hidden_size))
        return embedded if self._per_layer is None else torch.cat((embedded, self._per_layer.embed(token_ids)), -1)

    def forward(
        self,
        hidden: Tensor,
        positions: Tensor,
        caches: Sequence[LayerCache],
        plans: AttentionPlans,
        states: StepStates,
    ) -> Tensor:
        """See `Model.forward`."""
        per_layer = None
        width = self._config.hidden_size
        hidden, behind = hidden[:, :width].contiguous(), hidden[:, width:]
        if self._per_layer is not None:
            per_layer = self._per_layer(hidden, behind)
        stacked = behind.chunk(self._num_stacked, -1) if self._num_stacked else ()
        step = DecoderStep(self._rotary.steps(positions, hidden.dtype, plans), caches, states, per_layer)
        for layer, added in zip_longest(self._layers, stacked):
            layer(hidden, step)
            if added is not None:
                hidden += added
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
