"""What llama.cpp keeps of Qwen's towers in an `mmproj` (convert_hf_to_gguf and mtmd's clip.cpp, 2026-11)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from local_engine.loading.fields import FieldReader
from local_engine.loading.weights import GgufName
from local_engine.models.mmproj import token_id
from local_engine.vision_config import QwenTowerConfig, VisionConfig

__all__ = ["QWEN2_5_VL", "QWEN2_VL", "QWEN3_VL", "QwenProjector"]

_LAYER = {
    "norm1": "ln1",
    "attn.qkv": "attn_qkv",
    "attn.q": "attn_q",
    "attn.k": "attn_k",
    "attn.v": "attn_v",
    "attn.proj": "attn_out",
    "norm2": "ln2",
}
_MLP = {
    "gated_silu": {"mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"},
    "gelu_tanh": {"mlp.linear_fc1": "ffn_up", "mlp.linear_fc2": "ffn_down"},
    "quick_gelu": {"mlp.fc1": "ffn_up", "mlp.fc2": "ffn_down"},
}
_SWAPPED = {"mlp.fc1": "ffn_down", "mlp.fc2": "ffn_up"}
"""In files of older converters."""
_MERGER = {"merger.norm": "v.post_ln", "merger.linear_fc1": "mm.0", "merger.linear_fc2": "mm.2"}
_STACKED = {"norm": "norm", "linear_fc1": "fc1", "linear_fc2": "fc2"}
_WINDOW = 112


@dataclass(frozen=True, slots=True)
class QwenProjector:
    """Implements `Projector`. norm, mlp: of the tower's generation. learned: it has positions that are stretched."""

    type: str
    norm: Literal["rms", "layer_bias"]
    mlp: Literal["gated_silu", "gelu_tanh", "quick_gelu"]
    learned: bool = False

    def tower(self, fields: FieldReader, decoder: FieldReader) -> VisionConfig:
        """See `Projector.tower`."""
        num_layers, patch_size = fields.integer("clip.vision.block_count"), fields.integer("clip.vision.patch_size")
        side = fields.integer("clip.vision.image_size") // max(patch_size, 1) if self.learned else 0
        window, whole = None, tuple[int, ...]()
        if period := fields.integer("clip.vision.n_wa_pattern", 0):
            window = fields.integer("clip.vision.window_size", _WINDOW)
            whole = tuple(index for index in range(min(num_layers, 1 << 12)) if (index + 1) % period == 0)
        stacked = _flags(fields, "clip.vision.is_deepstack_layers")
        return VisionConfig(
            hidden_size=fields.integer("clip.vision.embedding_length"),
            intermediate_size=fields.integer("clip.vision.feed_forward_length"),
            num_layers=num_layers,
            num_heads=fields.integer("clip.vision.attention.head_count"),
            patch_size=patch_size,
            square=fields.integer("clip.vision.spatial_merge_size", 2),
            norm_eps=fields.number("clip.vision.attention.layer_norm_epsilon"),
            token_id=token_id(decoder, "<|image_pad|>"),
            image_size=None,
            qwen=QwenTowerConfig(
                self.norm,
                self.mlp,
                window=window,
                whole_layers=whole,
                position_side=side,
                stacked_layers=tuple(index for index, flag in enumerate(stacked) if flag),
            ),
        )

    def names(self, vision: VisionConfig, tensor_shapes: Mapping[str, tuple[int, ...]]) -> dict[str, GgufName]:
        """See `Projector.names`."""
        assert vision.qwen is not None
        parts = {"patch_embed.proj": "v.patch_embd", "pos_embed": "v.position_embd"} | _MERGER
        swapped = tensor_shapes.get("v.blk.0.ffn_down.weight", ())[1:] == (vision.hidden_size,)
        layer = _LAYER | (_SWAPPED if swapped and self.mlp == "quick_gelu" else _MLP[self.mlp])
        for index in range(vision.num_layers):
            parts |= {f"blocks.{index}.{ours}": f"v.blk.{index}.{theirs}" for ours, theirs in layer.items()}
        for place, index in enumerate(vision.qwen.stacked_layers):
            name = f"deepstack_merger_list.{place}"
            parts |= {f"{name}.{ours}": f"v.deepstack.{index}.{theirs}" for ours, theirs in _STACKED.items()}
        names = {
            f"vision.{ours}.{kind}": GgufName(f"{theirs}.{kind}")
            for ours, theirs in parts.items()
            for kind in ("weight", "bias")
        }
        # Of the second of two frames.
        return names | {"vision.patch_embed.proj.weight.1": GgufName("v.patch_embd.weight.1")}


def _flags(fields: FieldReader, name: str) -> tuple[bool, ...]:
    flags = fields.flags_or_integer(name) if fields.given(name) else ()
    if isinstance(flags, int):
        fields.refuse(f"{name} is {flags}, expected an array")
    return flags


QWEN2_VL = QwenProjector("qwen2vl_merger", "layer_bias", "quick_gelu")
QWEN2_5_VL = QwenProjector("qwen2.5vl_merger", "rms", "gated_silu")
QWEN3_VL = QwenProjector("qwen3vl_merger", "layer_bias", "gelu_tanh", learned=True)
