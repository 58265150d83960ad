"""SmolLM3 (Hugging Face 2025): Llama whose every fourth layer does not turn its queries and keys (NoPE)."""

from collections.abc import Mapping
from dataclasses import replace

from local_engine.attention_config import AttentionKind
from local_engine.config import ModelConfig
from local_engine.loading.fields import FieldReader
from local_engine.loading.rope import hf_rope
from local_engine.loading.sliding_layers import every_but_nth, hf_sliding_layers, hf_turning_layers
from local_engine.models import llama

__all__ = ["gguf_config", "hf_config"]

# What absent keys mean to transformers; llama.cpp has the interval as a constant.
_THETA = 2_000_000.0
_INTERVAL = 4


def hf_config(fields: FieldReader) -> ModelConfig:
    """config.json of SmolLM3ForCausalLM. Raises ModelLoadError."""
    config = llama.hf_config(fields)
    rope = hf_rope(fields, fields.integer("max_position_embeddings", 32768), theta=_THETA)
    has_rope = hf_turning_layers(fields, config.num_layers, _INTERVAL)
    window = fields.optional_integer("sliding_window") if fields.boolean("use_sliding_window", False) else None
    sliding = hf_sliding_layers(fields, config.num_layers, window, lambda index: not has_rope(index))
    return replace(config, architecture="smollm3").with_layers(
        lambda index: AttentionKind(window if sliding(index) else None, rope if has_rope(index) else None)
    )


def gguf_config(fields: FieldReader, tensor_shapes: Mapping[str, tuple[int, ...]]) -> ModelConfig:
    """Metadata of a GGUF whose general.architecture is smollm3."""
    config = llama.gguf_config(fields, tensor_shapes, architecture="smollm3")
    (turning,) = config.attention_kinds
    has_rope = every_but_nth(_INTERVAL)
    return config.with_layers(lambda index: turning if has_rope(index) else replace(turning, rope=None))
