"""OLMo 2 and 3 (Ai2 2024, 2025): norms of what layers add instead of what they read, and of all heads of Q and of K.

OLMo 3 has a window on three layers of four; those that see everything alone have the stretched rope. llama.cpp calls
both olmo2.
"""

from collections.abc import Mapping
from dataclasses import replace

from local_engine.attention_config import AttentionKind, RopeConfig
from local_engine.config import ModelConfig
from local_engine.layer_config import BlockConfig
from local_engine.loading.fields import FieldReader
from local_engine.loading.rope import hf_rope_of
from local_engine.loading.sliding_layers import every_but_nth, gguf_sliding_layers, hf_sliding_layers
from local_engine.models import llama

__all__ = ["gguf_config", "hf_config", "hf_config_of_3"]

# What absent keys mean to transformers and llama.cpp.
_WINDOW, _PERIOD, _THETA = 4096, 4, 500000.0


def hf_config(fields: FieldReader) -> ModelConfig:
    """config.json of Olmo2ForCausalLM. Raises ModelLoadError."""
    return _normed(replace(llama.hf_config(fields), architecture="olmo2", mlp_bias=False))


def hf_config_of_3(fields: FieldReader) -> ModelConfig:
    """config.json of Olmo3ForCausalLM. Raises ModelLoadError."""
    config = hf_config(fields)
    ropes, theta = fields.table("rope_parameters"), fields.number("rope_theta", _THETA)
    scaling = fields.table("rope_scaling") if ropes is None else ropes.table("full_attention")
    full = AttentionKind(None, hf_rope_of(fields, scaling, config.max_context, theta=theta))
    window = fields.optional_integer("sliding_window") if fields.given("sliding_window") else _WINDOW
    local_scaling = None if ropes is None else ropes.table("sliding_attention")
    local = AttentionKind(window, hf_rope_of(fields, local_scaling, config.max_context, theta=theta))
    sliding = hf_sliding_layers(fields, config.num_layers, window, every_but_nth(_PERIOD))
    return config.with_layers(lambda index: local if sliding(index) else full)


def gguf_config(fields: FieldReader, tensor_shapes: Mapping[str, tuple[int, ...]]) -> ModelConfig:
    """Metadata of a GGUF whose general.architecture is olmo2."""
    config = llama.gguf_shape(fields, tensor_shapes, architecture="olmo2")
    (kind,) = config.attention_kinds
    if kind.window is not None and kind.rope is not None:
        full, local = replace(kind, window=None), replace(kind, rope=RopeConfig(theta=kind.rope.theta))
        sliding = gguf_sliding_layers(fields, "olmo2", config.num_layers, every_but_nth(_PERIOD))
        config = config.with_layers(lambda index: local if sliding(index) else full)
    return _normed(config)


def _normed(config: ModelConfig) -> ModelConfig:
    return replace(config, qk_norm="row", block=BlockConfig(norms="after"))
