"""How files describe Gemma 3, text (Gemma Team 2025): five layers of a sliding window to one that sees all.

The windowed layers turn by a base frequency of their own and are never stretched. Queries and keys are normalised.
"""

from collections.abc import Mapping
from dataclasses import replace

from local_engine.attention_config import AttentionKind, RopeConfig
from local_engine.config import ModelConfig
from local_engine.loading.fields import FieldReader
from local_engine.loading.rope import hf_rope_of
from local_engine.loading.sliding_layers import every_but_nth, gguf_sliding_layers, hf_sliding_layers
from local_engine.models import gemma, llama

__all__ = ["gguf_config", "hf_config"]

# What an absent key means to transformers and llama.cpp.
_WINDOW, _PERIOD, _THETA, _LOCAL_THETA = 4096, 6, 1_000_000.0, 10_000.0
_LAYERS_OF_27B = 62


def hf_config(fields: FieldReader) -> ModelConfig:
    """config.json of Gemma3ForCausalLM. Raises ModelLoadError."""
    config = replace(gemma.hf_shape(fields, "gemma3"), qk_norm="heads")
    # transformers 5 has an object for each kind of layer; older files a scaling and two base frequencies.
    ropes = fields.table("rope_parameters")
    full_scaling = ropes.table("full_attention") if ropes else fields.table("rope_scaling")
    local_scaling = ropes.table("sliding_attention") if ropes else None
    theta, local_theta = fields.number("rope_theta", _THETA), fields.number("rope_local_base_freq", _LOCAL_THETA)
    full = AttentionKind(None, hf_rope_of(fields, full_scaling, config.max_context, theta=theta))
    window = fields.integer("sliding_window", _WINDOW)
    local = AttentionKind(window, hf_rope_of(fields, local_scaling, config.max_context, theta=local_theta))
    period = fields.integer("sliding_window_pattern", _PERIOD)
    if period < 1:
        fields.refuse(f"sliding_window_pattern is {period}, expected 1 or more")
    sliding = hf_sliding_layers(fields, config.num_layers, window, every_but_nth(period))
    return config.with_layers(lambda index: local if sliding(index) else full)


def gguf_config(fields: FieldReader, tensor_shapes: Mapping[str, tuple[int, ...]]) -> ModelConfig:
    """Metadata of a GGUF whose general.architecture is gemma3."""
    config = llama.gguf_shape(fields, tensor_shapes, architecture="gemma3")
    full = replace(config.attention_kinds[0], window=None)
    local = AttentionKind(
        fields.integer("gemma3.attention.sliding_window", _WINDOW),
        RopeConfig(theta=fields.number("gemma3.rope.freq_base_swa", _LOCAL_THETA)),
    )
    sliding = gguf_sliding_layers(fields, "gemma3", config.num_layers, every_but_nth(_PERIOD))
    return replace(
        config.with_layers(lambda index: local if sliding(index) else full),
        qk_norm="heads",
        block=gemma.block(config.hidden_size),
        attention_scale=gemma.gguf_score_scale(fields, config, layers_of_27b=_LAYERS_OF_27B),
        logits_soft_cap=fields.optional_number("gemma3.final_logit_softcapping"),
    )
