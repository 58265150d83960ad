"""Qwen3, dense (Qwen Team 2025): Llama with a norm on every head's queries and keys, and a head size of its own."""

from collections.abc import Mapping
from dataclasses import replace

from local_engine.config import ModelConfig
from local_engine.loading.fields import FieldReader
from local_engine.models import llama
from local_engine.models.qwen2 import gguf_windows, hf_windows

__all__ = ["gguf_config", "hf_config"]


def hf_config(fields: FieldReader) -> ModelConfig:
    """config.json of Qwen3ForCausalLM. Raises ModelLoadError."""
    head_dim = fields.integer("head_dim", 128)
    config = replace(llama.hf_config(fields), architecture="qwen3", head_dim=head_dim, mlp_bias=False, qk_norm="heads")
    return hf_windows(fields, config)


def gguf_config(
    fields: FieldReader, tensor_shapes: Mapping[str, tuple[int, ...]], *, architecture: str = "qwen3"
) -> ModelConfig:
    """Metadata of a GGUF, its keys under the architecture's name."""
    config = llama.gguf_shape(fields, tensor_shapes, architecture=architecture)
    return replace(gguf_windows(fields, config), qk_norm="heads")
