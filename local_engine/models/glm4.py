"""GLM-4 of April 2025 (Zhipu 2025): norms around the halves of a layer, and heads that turn in their first half.

Those lie interleaved in files of either format; gate and up are one tensor.
"""

from collections.abc import Mapping
from dataclasses import replace

from local_engine.attention_config import AttentionKind
from local_engine.config import ModelConfig
from local_engine.layer_config import BlockConfig
from local_engine.loading.fields import FieldReader
from local_engine.loading.plain_source import HfRows
from local_engine.loading.rope import hf_partial_rope
from local_engine.models import llama

__all__ = ["gguf_config", "hf_config", "hf_places"]

_SHARE = 0.5
# What transformers calls our norms.
_NORMS = {
    "post_attention_layernorm": "post_self_attn_layernorm",
    "pre_feedforward_layernorm": "post_attention_layernorm",
    "post_feedforward_layernorm": "post_mlp_layernorm",
}


def hf_config(fields: FieldReader) -> ModelConfig:
    """config.json of Glm4ForCausalLM. Raises ModelLoadError."""
    config = replace(
        llama.hf_config(fields),
        architecture="glm4",
        head_dim=fields.integer("head_dim", 128),
        rms_norm_eps=fields.number("rms_norm_eps", 1.5625e-07),
        qkv_bias=fields.boolean("attention_bias", True),
        output_bias=False,
        mlp_bias=False,
    )
    rope = hf_partial_rope(fields, config, share=_SHARE)
    return _framed(replace(config, attention_kinds=(AttentionKind(rope=rope),)))


def gguf_config(fields: FieldReader, tensor_shapes: Mapping[str, tuple[int, ...]]) -> ModelConfig:
    """Metadata of a GGUF whose general.architecture is glm4."""
    return _framed(llama.gguf_shape(fields, tensor_shapes, architecture="glm4"))


def hf_places(config: ModelConfig) -> dict[str, HfRows]:
    """Of tensors that transformers keeps otherwise."""
    norms = {
        f"model.layers.{index}.{ours}.weight": HfRows(f"model.layers.{index}.{theirs}.weight")
        for index in range(config.num_layers)
        for ours, theirs in _NORMS.items()
    }
    return llama.hf_places(config) | norms


def _framed(config: ModelConfig) -> ModelConfig:
    return replace(config, fused_gate_up=True, interleaved_heads=True, block=BlockConfig(norms="around"))
