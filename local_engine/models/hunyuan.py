"""Hunyuan, dense, version 1 (Tencent 2025): Llama with norms of query and key heads that have turned already."""

from collections.abc import Mapping
from dataclasses import replace

from local_engine.attention_config import AttentionKind, RopeConfig
from local_engine.config import ModelConfig
from local_engine.loading.fields import FieldReader
from local_engine.loading.plain_source import HfRows
from local_engine.models import llama

__all__ = ["gguf_config", "hf_config", "hf_places"]


def hf_config(fields: FieldReader) -> ModelConfig:
    """config.json of HunYuanDenseV1ForCausalLM. Raises ModelLoadError."""
    scaling = fields.table("rope_parameters") or fields.table("rope_scaling")
    alpha = scaling.number("alpha", 0.0) if scaling is not None else 0.0
    # Called dynamic, but a fixed alpha does no more than raise the base frequency.
    stretched = scaling is not None and alpha > 0 and scaling.text("rope_type", scaling.text("type", "")) == "dynamic"
    config = llama.hf_config(fields.without("rope_parameters", "rope_scaling") if stretched else fields)
    if scaling is not None and stretched:
        if not alpha <= 1 << 20 or config.head_dim <= 2:
            fields.refuse(f"rope scaling has alpha {alpha:g} for heads of {config.head_dim}")
        theta = scaling.number("rope_theta", fields.number("rope_theta", 10000.0))
        rope = RopeConfig(theta=theta * alpha ** (config.head_dim / (config.head_dim - 2)))
        config = replace(config, attention_kinds=(AttentionKind(rope=rope),))
    eps = fields.number("rms_norm_eps", 1e-5)
    return replace(config, architecture="hunyuan_v1_dense", rms_norm_eps=eps, mlp_bias=False, qk_norm="turned_heads")


def gguf_config(fields: FieldReader, tensor_shapes: Mapping[str, tuple[int, ...]]) -> ModelConfig:
    """Metadata of a GGUF whose general.architecture is hunyuan-dense."""
    config = llama.gguf_config(fields, tensor_shapes, architecture="hunyuan-dense")
    return replace(config, qk_norm="turned_heads")


def hf_places(config: ModelConfig) -> dict[str, HfRows]:
    """The norms of heads have other names in safetensors."""
    return {
        f"model.layers.{index}.self_attn.{ours}.weight": HfRows(f"model.layers.{index}.self_attn.{theirs}.weight")
        for index in range(config.num_layers)
        for ours, theirs in (("q_norm", "query_layernorm"), ("k_norm", "key_layernorm"))
    }
