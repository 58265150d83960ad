"""Qwen2 and Qwen2.5 (Qwen Team 2024): Llama with biases on Q, K and V, whose GGUF rows are not interleaved."""

from collections.abc import Mapping
from dataclasses import replace

from local_engine.config import ModelConfig
from local_engine.loading.fields import FieldReader
from local_engine.loading.weights import GgufName
from local_engine.models import llama

__all__ = ["gguf_config", "gguf_names", "hf_config", "refuse_windowed_gguf", "refuse_windowed_layers"]


def hf_config(fields: FieldReader) -> ModelConfig:
    """config.json of Qwen2ForCausalLM. Raises ModelLoadError, also where some layers have a sliding window."""
    refuse_windowed_layers(fields)
    config = llama.hf_config(fields)
    return replace(config, architecture="qwen2", qkv_bias=True, output_bias=False, mlp_bias=False)


def refuse_windowed_layers(fields: FieldReader) -> None:
    """Qwen's window holds for the upper layers only; its models are published with it off."""
    if fields.boolean("use_sliding_window", False):
        fields.refuse("use_sliding_window is true; a sliding window on some of the layers is not supported")
    if other := set(fields.texts("layer_types")) - {"full_attention"}:
        fields.refuse(f"layer_types has {min(other)!r}, supported is full_attention alone")


def refuse_windowed_gguf(fields: FieldReader, architecture: str) -> None:
    """The same of a GGUF's metadata."""
    name = f"{architecture}.attention.sliding_window"
    if fields.integer(name, 0):
        fields.refuse(f"{name}: a sliding window on some of the layers is not supported")


def gguf_config(fields: FieldReader, tensor_shapes: Mapping[str, tuple[int, ...]]) -> ModelConfig:
    """Metadata of a GGUF whose general.architecture is qwen2."""
    refuse_windowed_gguf(fields, "qwen2")
    return replace(llama.gguf_config(fields, tensor_shapes, architecture="qwen2"), qkv_bias=True)


def gguf_names(config: ModelConfig) -> dict[str, GgufName]:
    """Our tensor names to those of a GGUF."""
    return llama.gguf_names(config, interleaved=False)
