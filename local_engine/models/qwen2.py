"""Qwen2 and Qwen2.5 (Qwen Team 2024): Llama with biases on Q, K and V, whose GGUF rows are not interleaved.

The upper layers may have a sliding window; the published models have it switched off.
"""

from collections.abc import Mapping
from dataclasses import replace

from local_engine.attention_config import AttentionKind
from local_engine.config import ModelConfig
from local_engine.loading.fields import FieldReader
from local_engine.loading.sliding_layers import gguf_sliding_layers, hf_sliding_layers
from local_engine.loading.weights import GgufName
from local_engine.models import llama

__all__ = ["gguf_config", "gguf_names", "gguf_windows", "hf_config", "hf_windows"]

# What absent keys mean to transformers.
_DEFAULT_WINDOW, _DEFAULT_FULL_LAYERS = 4096, 28


def hf_config(fields: FieldReader) -> ModelConfig:
    """config.json of Qwen2ForCausalLM. Raises ModelLoadError."""
    config = replace(llama.hf_config(fields), architecture="qwen2", qkv_bias=True, output_bias=False, mlp_bias=False)
    return hf_windows(fields, config)


def hf_windows(fields: FieldReader, config: ModelConfig) -> ModelConfig:
    """With the windows that config.json of a Qwen gives to some of the layers."""
    window = fields.optional_integer("sliding_window") if fields.given("sliding_window") else _DEFAULT_WINDOW
    if not fields.boolean("use_sliding_window", False):
        window = None
    first = fields.integer("max_window_layers", _DEFAULT_FULL_LAYERS)
    sliding = hf_sliding_layers(fields, config.num_layers, window, lambda index: index >= first)
    (full,) = config.attention_kinds
    return config.with_layers(lambda index: AttentionKind(window, full.rope) if sliding(index) else full)


def gguf_windows(fields: FieldReader, config: ModelConfig) -> ModelConfig:
    """With the windows that a GGUF of a Qwen gives to some of the layers. It must say which."""
    prefix = f"{config.architecture}.attention.sliding_window"
    (windowed,) = config.attention_kinds
    if windowed.window is None:
        return config
    if not fields.given(f"{prefix}_pattern"):
        fields.refuse(f"{prefix}: {prefix}_pattern, the layers that have the window, is missing")
    sliding = gguf_sliding_layers(fields, config.architecture, config.num_layers, lambda _: False)
    full = AttentionKind(None, windowed.rope)
    return config.with_layers(lambda index: windowed if sliding(index) else full)


def gguf_config(
    fields: FieldReader, tensor_shapes: Mapping[str, tuple[int, ...]], *, architecture: str = "qwen2"
) -> ModelConfig:
    """Metadata of a GGUF, its keys under the architecture's name."""
    config = llama.gguf_shape(fields, tensor_shapes, architecture=architecture)
    return replace(gguf_windows(fields, config), qkv_bias=True)


def gguf_names(config: ModelConfig) -> dict[str, GgufName]:
    """Our tensor names to those of a GGUF."""
    return llama.gguf_names(config, interleaved=False)
