"""Siglip's vision tower (Zhai et al. 2023), which Gemma 3 and Idefics3 read images with, and what they make of patches.

Attention is over all patches of one image. Weights stand under `vision.`, those of the projection under `projector.`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from local_engine.config import ModelConfig
from local_engine.layers.linear import DenseLinear
from local_engine.layers.rms_norm import rms_norm
from local_engine.loading.fields import FieldReader
from local_engine.loading.weights import Weights
from local_engine.vision_config import VisionConfig

__all__ = ["ImageTower", "hf_tower", "pooled_projection", "shuffled_projection"]

Projection = Callable[[Tensor], Tensor]
"""From patches [P, tower's hidden_size] to rows [tokens, decoder's hidden_size]."""

_CHANNELS = 3
_ACTIVATIONS = ("gelu_pytorch_tanh",)


@dataclass(frozen=True, slots=True)
class _Norm:
    weight: Tensor
    bias: Tensor
    eps: float

    def __call__(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)


@dataclass(frozen=True, slots=True)
class _Layer:
    attention_norm: _Norm
    qkv: DenseLinear
    output: DenseLinear
    mlp_norm: _Norm
    up: DenseLinear
    down: DenseLinear


class ImageTower:
    """One image to the rows that stand for it: [3, S, S] float32 -> [tokens, hidden_size] of the decoder."""

    def __init__(self, vision: VisionConfig, weights: Weights, project: Projection) -> None:
        self._vision = vision
        self._project = project
        hidden, width = vision.hidden_size, vision.intermediate_size
        patch = weights.tensor(
            "vision.embeddings.patch_embedding.weight", (hidden, _CHANNELS, vision.patch_size, vision.patch_size)
        )
        # A convolution whose windows do not overlap is a product with flat patches.
        self._patch = DenseLinear(
            patch.flatten(1), weights.joined(["vision.embeddings.patch_embedding.bias"], [hidden])
        )
        positions = [_patches(vision) ** 2]
        self._positions = weights.stacked(["vision.embeddings.position_embedding.weight"], positions, hidden)
        self._layers = []
        for index in range(vision.num_layers):
            name = f"vision.encoder.layers.{index}"
            attention = f"{name}.self_attn"
            self._layers.append(
                _Layer(
                    attention_norm=_norm(weights, f"{name}.layer_norm1", vision),
                    qkv=_linear(weights, [f"{attention}.{part}_proj" for part in "qkv"], hidden, hidden),
                    output=_linear(weights, [f"{attention}.out_proj"], hidden, hidden),
                    mlp_norm=_norm(weights, f"{name}.layer_norm2", vision),
                    up=_linear(weights, [f"{name}.mlp.fc1"], width, hidden),
                    down=_linear(weights, [f"{name}.mlp.fc2"], hidden, width),
                )
            )
        self._norm = _norm(weights, "vision.post_layernorm", vision)
        weights.skip_under("vision.head.")  # pools an image to one vector, for other uses

    @torch.inference_mode()
    def __call__(self, pixels: Tensor) -> Tensor:
        """On any device and in any float type; the rows are of the tower's own. Blocks."""
        size = self._vision.patch_size
        side = _patches(self._vision)
        whole = pixels[:, : side * size, : side * size].to(self._positions)
        patches = whole.reshape(_CHANNELS, side, size, side, size).permute(1, 3, 0, 2, 4).reshape(side * side, -1)
        hidden = self._patch(patches) + self._positions
        for layer in self._layers:
            hidden = hidden + layer.output(self._attended(layer.qkv(layer.attention_norm(hidden))))
            hidden = hidden + layer.down(F.gelu(layer.up(layer.mlp_norm(hidden)), approximate="tanh"))
        return self._project(self._norm(hidden))

    def _attended(self, qkv: Tensor) -> Tensor:
        """[P, 3 * hidden_size] -> [P, hidden_size]."""
        count, heads = len(qkv), self._vision.num_heads
        queries, keys, values = qkv.view(count, 3, heads, -1).permute(1, 2, 0, 3)
        return F.scaled_dot_product_attention(queries, keys, values).transpose(0, 1).reshape(count, -1)


def _norm(weights: Weights, name: str, vision: VisionConfig) -> _Norm:
    weight, bias = (weights.joined([f"{name}.{part}"], [vision.hidden_size]) for part in ("weight", "bias"))
    return _Norm(weight, bias, vision.norm_eps)


def _linear(weights: Weights, names: list[str], rows: int, columns: int) -> DenseLinear:
    sizes = [rows] * len(names)
    weight = weights.stacked([f"{name}.weight" for name in names], sizes, columns)
    return DenseLinear(weight, weights.joined([f"{name}.bias" for name in names], sizes))


def pooled_projection(config: ModelConfig, vision: VisionConfig, weights: Weights) -> Projection:
    """Gemma 3's: means over squares of patches, a norm that multiplies by 1 + weight, and a matrix."""
    norm = weights.joined(["projector.mm_soft_emb_norm.weight"], [vision.hidden_size]).float() + 1.0
    matrix = weights.stacked(["projector.mm_input_projection_weight"], [vision.hidden_size], config.hidden_size)
    return partial(_pooled, vision=vision, norm=norm, matrix=matrix)


def _pooled(patches: Tensor, *, vision: VisionConfig, norm: Tensor, matrix: Tensor) -> Tensor:
    side = _patches(vision)
    grid = patches.T.reshape(1, vision.hidden_size, side, side)
    means = F.avg_pool2d(grid, vision.square).flatten(2)[0].T
    return rms_norm(means, norm, vision.norm_eps) @ matrix


def shuffled_projection(config: ModelConfig, vision: VisionConfig, weights: Weights) -> Projection:
    """Idefics3's: the patches of a square side by side in one row, and a matrix."""
    width = vision.hidden_size * vision.square**2
    matrix = weights.stacked(["projector.proj.weight"], [config.hidden_size], width)
    return partial(_shuffled, vision=vision, matrix=matrix)


def _shuffled(patches: Tensor, *, vision: VisionConfig, matrix: Tensor) -> Tensor:
    square = vision.square
    side = _patches(vision) // square
    grid = patches.view(side, square, side, square, vision.hidden_size)
    return F.linear(grid.transpose(1, 2).reshape(side * side, -1), matrix)


def _patches(vision: VisionConfig) -> int:
    """A side of an image, in patches."""
    assert vision.image_size is not None
    return vision.image_size // vision.patch_size


def hf_tower(
    fields: FieldReader, *, defaults: dict[str, int], square: Callable[[int], int], token_id: int, bidirectional: bool
) -> VisionConfig:
    """`vision_config` of config.json. defaults: what an absent key means. square: from a side of an image in patches to
    that of those which become one row. Raises ModelLoadError."""
    activation = fields.text("hidden_act", "gelu_pytorch_tanh")
    if activation not in _ACTIVATIONS:
        fields.refuse(f"vision_config.hidden_act is {activation!r}, expected {_ACTIVATIONS[0]!r}")
    if fields.integer("num_channels", _CHANNELS) != _CHANNELS:
        fields.refuse(f"vision_config.num_channels is {fields.integer('num_channels')}, expected {_CHANNELS}")
    numbers = {name: fields.integer(name, default) for name, default in defaults.items()}
    side = numbers["image_size"] // max(numbers["patch_size"], 1)
    return VisionConfig(
        hidden_size=numbers["hidden_size"],
        intermediate_size=numbers["intermediate_size"],
        num_layers=numbers["num_hidden_layers"],
        num_heads=numbers["num_attention_heads"],
        image_size=numbers["image_size"],
        patch_size=numbers["patch_size"],
        norm_eps=fields.number("layer_norm_eps", 1e-6),
        square=square(side),
        token_id=token_id,
        bidirectional=bidirectional,
    )
