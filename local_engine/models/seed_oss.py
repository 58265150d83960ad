"""Seed-OSS (ByteDance 2025): Llama with biases on Q, K and V, and a head size of its own."""

from collections.abc import Mapping
from dataclasses import replace

from local_engine.config import ModelConfig
from local_engine.loading.fields import FieldReader
from local_engine.loading.weights import GgufName
from local_engine.models import llama

__all__ = ["gguf_config", "gguf_names", "hf_config"]


def hf_config(fields: FieldReader) -> ModelConfig:
    """config.json of SeedOssForCausalLM. Raises ModelLoadError."""
    return replace(
        llama.hf_config(fields),
        architecture="seed_oss",
        head_dim=fields.integer("head_dim", 128),
        qkv_bias=fields.boolean("attention_bias", True),
        output_bias=fields.boolean("attention_out_bias", False),
    )


def gguf_config(fields: FieldReader, tensor_shapes: Mapping[str, tuple[int, ...]]) -> ModelConfig:
    """Metadata of a GGUF whose general.architecture is seed_oss."""
    return llama.gguf_config(fields, tensor_shapes, architecture="seed_oss")


def gguf_names(config: ModelConfig) -> dict[str, GgufName]:
    """Our tensor names to those of a GGUF."""
    return llama.gguf_names(config, interleaved=False, mlp_norm="post_attention_norm")
