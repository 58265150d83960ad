"""Inputs of each layer's own, beside the residual (Gemma 3n and 4): of the token's id, and of its embedding.

A layer gates them by its residual, and adds what it makes of them.
"""

import torch
from torch import Tensor

from local_engine.config import ModelConfig
from local_engine.layers.ops import Ops
from local_engine.loading.weights import Weights
from local_engine.models.activations import ACTIVATIONS
from local_engine.models.norm import read_norm
from local_engine.models.projection import projection

__all__ = ["PerLayerBlock", "PerLayerInputs"]


class PerLayerInputs:
    """What all layers get, made once a step."""

    def __init__(self, config: ModelConfig, weights: Weights, ops: Ops) -> None:
        size = config.block.per_layer_size
        self._shape, self._scale = (config.num_layers, size), config.hidden_size**-0.5
        width = config.num_layers * size
        self._embedding = weights.stacked(["model.embed_tokens_per_layer.weight"], [config.vocab_size], width)
        # Rounded to the model's type, as it was trained.
        self._embedding_scale = float(torch.tensor(size**0.5, dtype=self._embedding.dtype))
        parts = {"model.per_layer_model_projection": width}
        self._projection = projection(weights, ops, parts, config.hidden_size)
        self._norm = read_norm(config, "model.per_layer_projection_norm", size, weights, ops)

    def embed(self, token_ids: Tensor) -> Tensor:
        """What they have of the tokens' ids: token_ids [T] int64 -> [T, num_layers * per_layer_size]."""
        return self._embedding[token_ids] * self._embedding_scale

    def __call__(self, embedded: Tensor, of_tokens: Tensor) -> Tensor:
        """[T, hidden_size] and `embed`'s rows -> [num_layers, T, per_layer_size]."""
        of_embeddings = self._norm((self._projection(embedded) * self._scale).view(-1, *self._shape))
        return ((of_embeddings + of_tokens.reshape(-1, *self._shape)) * 2**-0.5).transpose(0, 1)


class PerLayerBlock:
    """What layer `index` adds to its residual for its input."""

    def __init__(self, config: ModelConfig, index: int, weights: Weights, ops: Ops) -> None:
        name, hidden, size = f"model.layers.{index}", config.hidden_size, config.block.per_layer_size
        self._activation = ACTIVATIONS[config.block.activation]
        self._gate = projection(weights, ops, {f"{name}.per_layer_input_gate": size}, hidden)
        self._projection = projection(weights, ops, {f"{name}.per_layer_projection": hidden}, size)
        self._norm = read_norm(config, f"{name}.post_per_layer_input_norm", hidden, weights, ops)

    def __call__(self, hidden: Tensor, given: Tensor) -> Tensor:
        """hidden [T, hidden_size], given [T, per_layer_size] -> [T, hidden_size]."""
        return self._norm(self._projection(self._activation(self._gate(hidden)) * given))
