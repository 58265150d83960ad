"""EXAONE 4 (LG AI Research 2025): norms of what layers add, and of query and key heads.

The large model has a window on three layers of four; those that see everything turn nothing there.
"""

from collections.abc import Mapping
from dataclasses import replace

from local_engine.attention_config import AttentionKind
from local_engine.config import ModelConfig
from local_engine.layer_config import BlockConfig
from local_engine.loading.fields import FieldReader
from local_engine.loading.sliding_layers import SlidingLayers, every_but_nth, gguf_sliding_layers, hf_sliding_layers
from local_engine.models import llama

__all__ = ["gguf_config", "hf_config"]

# What absent keys mean to transformers and llama.cpp, which knows the large model by its layers.
_WINDOW, _PERIOD, _LAYERS_OF_32B = 4096, 4, 64


def hf_config(fields: FieldReader) -> ModelConfig:
    """config.json of Exaone4ForCausalLM. Raises ModelLoadError."""
    config = llama.hf_config(fields)
    window = fields.optional_integer("sliding_window") if fields.given("sliding_window") else _WINDOW
    period = 1 if fields.texts("layer_types") else fields.integer("sliding_window_pattern", _PERIOD)
    if period < 1:
        fields.refuse(f"sliding_window_pattern is {period}, expected 1 or more")
    sliding = hf_sliding_layers(fields, config.num_layers, window, every_but_nth(period))
    eps = fields.number("rms_norm_eps", 1e-5)
    config = replace(config, architecture="exaone4", rms_norm_eps=eps, qkv_bias=False, output_bias=False)
    return _normed(_windowed(config, window, sliding))


def gguf_config(
    fields: FieldReader, tensor_shapes: Mapping[str, tuple[int, ...]], *, architecture: str = "exaone4"
) -> ModelConfig:
    """Metadata of a GGUF whose general.architecture is exaone4, or another of the same attention."""
    config = llama.gguf_shape(fields, tensor_shapes, architecture=architecture)
    (kind,) = config.attention_kinds
    window = _WINDOW if kind.window is None and config.num_layers == _LAYERS_OF_32B else kind.window
    sliding = gguf_sliding_layers(fields, architecture, config.num_layers, every_but_nth(_PERIOD))
    return _normed(_windowed(config, window, sliding))


def _windowed(config: ModelConfig, window: int | None, sliding: SlidingLayers) -> ModelConfig:
    if window is None:
        return config
    (kind,) = config.attention_kinds
    local, full = replace(kind, window=window), AttentionKind(None, None)
    return config.with_layers(lambda index: local if sliding(index) else full)


def _normed(config: ModelConfig) -> ModelConfig:
    return replace(config, mlp_bias=False, qk_norm="heads", block=BlockConfig(norms="after"))
