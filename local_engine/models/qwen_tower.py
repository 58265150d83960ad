"""The vision towers of Qwen2-VL, Qwen2.5-VL and Qwen3-VL (Wang et al. 2024; Bai et al. 2025), which read images of any
size, and how config.json describes them.

Patches of one square lie side by side and become one row. Heads turn by a patch's height and width. Weights stand under
`vision.`, and the rows of the layers that are stacked behind those of the last one.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from local_engine.attention_config import RopeConfig
from local_engine.config import ModelConfig
from local_engine.layers.linear import DenseLinear
from local_engine.layers.rms_norm import rms_norm
from local_engine.layers.rope import apply_rope, inverse_frequencies, rope_tables
from local_engine.loading.fields import FieldReader
from local_engine.loading.weights import Weights
from local_engine.vision_config import QwenTowerConfig, VisionConfig

__all__ = ["QwenTower", "hf_tower"]

Block = Callable[[Tensor], Tensor]

_CHANNELS, _FRAMES, _THETA = 3, 2, 10000.0
_ACTIVATIONS: Mapping[str, Block] = {
    "gated_silu": F.silu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),
}
_ACTIVATION_NAMES = {"gated_silu": "silu", "gelu_tanh": "gelu_pytorch_tanh", "quick_gelu": "quick_gelu"}
# What files call what widens and what narrows, and the gate before them.
_MLP_NAMES = {
    "gated_silu": ("up_proj", "down_proj"),
    "gelu_tanh": ("linear_fc1", "linear_fc2"),
    "quick_gelu": ("fc1", "fc2"),
}
_GATE = "gate_proj"


@dataclass(frozen=True, slots=True)
class _Layer:
    attention_norm: Block
    qkv: DenseLinear
    output: DenseLinear
    mlp_norm: Block
    mlp: Block


@dataclass(frozen=True, slots=True)
class _Merger:
    """Of each square's patches a row for the decoder. norm: over each patch, or over them side by side."""

    norm: Block
    norm_width: int
    widen: DenseLinear
    project: DenseLinear

    def __call__(self, patches: Tensor) -> Tensor:
        """[P, hidden_size] -> [P / square^2, decoder's hidden_size]."""
        rows = self.norm(patches.reshape(-1, self.norm_width)).reshape(-1, self.widen.weight.shape[1])
        return self.project(F.gelu(self.widen(rows)))


@dataclass(frozen=True, slots=True)
class _Patches:
    """How the patches of one image lie: squares in reading order, or window after window.

    order: of the squares. windows: patches of each. angles: cosines and sines by which heads turn.
    """

    order: Tensor
    windows: list[int]
    angles: tuple[Tensor, Tensor]


class QwenTower:
    """One image to its rows: [3, height, width] float32 -> [n, (1 + num_stacked) * hidden_size] of the decoder.

    The constructor reads the weights; it raises ModelLoadError.
    """

    def __init__(self, config: ModelConfig, weights: Weights) -> None:
        assert config.vision is not None
        assert config.vision.qwen is not None
        self._vision, self._qwen = config.vision, config.vision.qwen
        vision, hidden = self._vision, self._vision.hidden_size
        self._patch = _patch_projection(vision, weights)
        self._learned = None
        if side := self._qwen.position_side:
            learned = weights.stacked(["vision.pos_embed.weight"], [side * side], hidden)
            self._learned = learned.float().T.reshape(1, hidden, side, side)
        self._layers = [_layer(vision, index, weights) for index in range(vision.num_layers)]
        self._merge = _merger(config, "vision.merger", weights)
        self._stacked = {
            layer: _merger(config, f"vision.deepstack_merger_list.{place}", weights, joined=True)
            for place, layer in enumerate(self._qwen.stacked_layers)
        }
        turning = hidden // vision.num_heads // 2  # of each axis
        frequencies = inverse_frequencies(RopeConfig(_THETA, rotary_dim=turning), turning, max_context=1)
        self._frequencies = frequencies.repeat(2).to(self._patch.weight.device)

    @torch.inference_mode()
    def __call__(self, pixels: Tensor) -> Tensor:
        """On any device and in any float type; the rows are of the tower's own. Blocks."""
        vision, size = self._vision, self._vision.patch_size
        channels, height, width = pixels.shape
        cut = pixels.to(self._patch.weight).view(channels, height // size, size, width // size, size)
        laid = self._laid(height // size, width // size)
        hidden = self._patch(_in_squares(cut.permute(1, 3, 0, 2, 4).flatten(2), vision.square))
        if self._learned is not None:
            stretched = F.interpolate(
                self._learned, (height // size, width // size), mode="bilinear", align_corners=True
            )
            hidden = hidden + _in_squares(stretched[0].permute(1, 2, 0), vision.square).to(hidden)
        hidden = self._ordered(hidden, laid.order)
        stacked = []
        for index, layer in enumerate(self._layers):
            is_whole = self._qwen.window is None or index in self._qwen.whole_layers
            parts = [len(hidden)] if is_whole else laid.windows
            hidden = hidden + layer.output(self._attended(layer.qkv(layer.attention_norm(hidden)), parts, laid.angles))
            hidden = hidden + layer.mlp(layer.mlp_norm(hidden))
            if index in self._stacked:
                stacked.append(self._stacked[index](hidden))
        return torch.cat((self._merge(hidden), *stacked), -1)[laid.order.argsort()]

    def _laid(self, height: int, width: int) -> _Patches:
        """The patches of an image of so many of them, without what they show."""
        square, device = self._vision.square, self._frequencies.device
        places = torch.cartesian_prod(torch.arange(height), torch.arange(width)).view(height, width, 2)
        rows, columns = height // square, width // square
        order, windows = torch.arange(rows * columns), [height * width]
        if self._qwen.window is not None:
            side = self._qwen.window // self._vision.unit
            down, across = torch.arange(rows) // side, torch.arange(columns) // side
            window = (down[:, None] * columns + across).flatten()
            order = window.argsort(stable=True)
            counts = window.bincount()
            windows = (counts[counts > 0] * square**2).tolist()
        by_axis = self._ordered(_in_squares(places, square), order).repeat_interleave(len(self._frequencies) // 2, 1)
        angles = rope_tables(by_axis.to(device), self._frequencies, torch.float32)
        return _Patches(order.to(device), windows, angles)

    def _ordered(self, patches: Tensor, order: Tensor) -> Tensor:
        """[P, ...], square by square."""
        return patches.view(len(order), -1, patches.shape[-1])[order].flatten(0, 1)

    def _attended(self, qkv: Tensor, parts: list[int], angles: tuple[Tensor, Tensor]) -> Tensor:
        """[P, 3 * hidden_size] -> [P, hidden_size]: the patches of each part see each other."""
        heads = qkv.view(len(qkv), 3 * self._vision.num_heads, -1)
        turned, values = heads.tensor_split([2 * self._vision.num_heads], 1)
        queries, keys = apply_rope(turned.float(), *angles).to(qkv).chunk(2, 1)
        split = [each.transpose(0, 1).split_with_sizes(parts, 1) for each in (queries, keys, values)]
        attended = [F.scaled_dot_product_attention(*part) for part in zip(*split, strict=True)]
        return torch.cat(attended, 1).transpose(0, 1).flatten(1)


def _in_squares(patches: Tensor, square: int) -> Tensor:
    """[height, width, D] -> [height * width, D], those of a square side by side."""
    height, width, size = patches.shape
    cut = patches.reshape(height // square, square, width // square, square, size)
    return cut.transpose(1, 2).reshape(height * width, size)


def _patch_projection(vision: VisionConfig, weights: Weights) -> DenseLinear:
    """An image is two equal frames, so the matrices of both are one: a convolution whose windows do not overlap."""
    name, size = "vision.patch_embed.proj", vision.patch_size
    shape = (vision.hidden_size, _CHANNELS, size, size)
    if weights.has(f"{name}.weight.1"):
        frames = [weights.tensor(f"{name}.weight{frame}", shape) for frame in ("", ".1")]
    else:
        frames = list(weights.tensor(f"{name}.weight", (*shape[:2], _FRAMES, size, size)).unbind(2))
    matrix = sum(frame.float() for frame in frames[1:]) + frames[0].float()
    bias = weights.joined([f"{name}.bias"], [vision.hidden_size]) if weights.has(f"{name}.bias") else None
    return DenseLinear(matrix.flatten(1).to(frames[0]), bias)


def _layer(vision: VisionConfig, index: int, weights: Weights) -> _Layer:
    name, hidden = f"vision.blocks.{index}", vision.hidden_size
    fused = weights.has(f"{name}.attn.qkv.weight")
    parts = {f"{name}.attn.qkv": 3 * hidden} if fused else {f"{name}.attn.{part}": hidden for part in "qkv"}
    return _Layer(
        attention_norm=_norm(vision, f"{name}.norm1", hidden, weights),
        qkv=_linear(weights, parts, hidden),
        output=_linear(weights, {f"{name}.attn.proj": hidden}, hidden),
        mlp_norm=_norm(vision, f"{name}.norm2", hidden, weights),
        mlp=_mlp(vision, f"{name}.mlp", weights),
    )


def _mlp(vision: VisionConfig, name: str, weights: Weights) -> Block:
    assert vision.qwen is not None
    hidden, width = vision.hidden_size, vision.intermediate_size
    up, down = _MLP_NAMES[vision.qwen.mlp]
    activation = _ACTIVATIONS[vision.qwen.mlp]
    widen = _linear(weights, {f"{name}.{up}": width}, hidden)
    narrow = _linear(weights, {f"{name}.{down}": hidden}, width)
    if vision.qwen.mlp != "gated_silu":
        return lambda x: narrow(activation(widen(x)))
    gate = _linear(weights, {f"{name}.{_GATE}": width}, hidden)
    return lambda x: narrow(activation(gate(x)) * widen(x))


def _merger(config: ModelConfig, name: str, weights: Weights, *, joined: bool = False) -> _Merger:
    assert config.vision is not None
    hidden = config.vision.hidden_size
    width = hidden * config.vision.square**2
    norm_width = width if joined else hidden
    return _Merger(
        norm=_norm(config.vision, f"{name}.norm", norm_width, weights),
        norm_width=norm_width,
        widen=_linear(weights, {f"{name}.linear_fc1": width}, width),
        project=_linear(weights, {f"{name}.linear_fc2": config.hidden_size}, width),
    )


def _norm(vision: VisionConfig, name: str, width: int, weights: Weights) -> Block:
    assert vision.qwen is not None
    weight = weights.joined([f"{name}.weight"], [width])
    if vision.qwen.norm == "rms":
        return partial(rms_norm, weight=weight, eps=vision.norm_eps)
    bias = weights.joined([f"{name}.bias"], [width])
    return partial(F.layer_norm, normalized_shape=(width,), weight=weight, bias=bias, eps=vision.norm_eps)


def _linear(weights: Weights, parts: Mapping[str, int], columns: int) -> DenseLinear:
    names, rows = list(parts), list(parts.values())
    weight = weights.stacked([f"{name}.weight" for name in names], rows, columns)
    return DenseLinear(weight, weights.joined([f"{name}.bias" for name in names], rows))


def hf_tower(fields: FieldReader, vision: FieldReader, qwen: QwenTowerConfig) -> VisionConfig:
    """From config.json and its `vision_config`, where each generation of towers has the same names. Raises
    ModelLoadError."""
    activation = vision.text("hidden_act", _ACTIVATION_NAMES[qwen.mlp])
    if activation != _ACTIVATION_NAMES[qwen.mlp]:
        fields.refuse(f"vision_config.hidden_act is {activation!r}, expected {_ACTIVATION_NAMES[qwen.mlp]!r}")
    for name, expected in (("in_channels", _CHANNELS), ("in_chans", _CHANNELS), ("temporal_patch_size", _FRAMES)):
        if (value := vision.integer(name, expected)) != expected:
            fields.refuse(f"vision_config.{name} is {value}, expected {expected}")
    rope = vision.table("rope_parameters")
    if rope is not None and (theta := rope.number("rope_theta", _THETA)) != _THETA:
        fields.refuse(f"vision_config.rope_parameters.rope_theta is {theta}, expected {_THETA}")
    return VisionConfig(
        hidden_size=vision.integer("hidden_size"),
        intermediate_size=vision.integer("intermediate_size"),
        num_layers=vision.integer("depth"),
        num_heads=vision.integer("num_heads", 16),
        patch_size=vision.integer("patch_size"),
        square=vision.integer("spatial_merge_size", 2),
        norm_eps=1e-6,
        token_id=fields.integer("image_token_id", 151_655),
        image_size=None,
        qwen=qwen,
    )
