"""Command R, Aya and Command R7B (Cohere 2024): attention and feed-forward side by side, behind one norm.

The norm subtracts the mean and has no bias. Heads lie interleaved in files of either format. Cohere2 has a window on
three layers of four; those that see everything turn nothing.
"""

from collections.abc import Mapping
from dataclasses import replace

from local_engine.attention_config import AttentionKind
from local_engine.config import ModelConfig
from local_engine.layer_config import BlockConfig
from local_engine.loading.fields import FieldReader
from local_engine.loading.rope import hf_rope
from local_engine.loading.sliding_layers import SlidingLayers, every_but_nth, gguf_sliding_layers, hf_sliding_layers
from local_engine.models import llama

__all__ = ["gguf_config", "gguf_config_of_2", "hf_config", "hf_config_of_2"]

# What absent keys mean to transformers and llama.cpp.
_LOGIT_SCALE, _MAX_CONTEXT, _THETA = 0.0625, 8192, 500000.0
_WINDOW, _PERIOD = 4096, 4


def hf_config(fields: FieldReader) -> ModelConfig:
    """config.json of CohereForCausalLM. Raises ModelLoadError."""
    if fields.boolean("use_qk_norm", False):
        fields.refuse("use_qk_norm is true: norms of each head with weights of its own are not supported")
    config = llama.hf_config(fields)
    max_context = fields.integer("max_position_embeddings", _MAX_CONTEXT)
    rope = hf_rope(fields, max_context, theta=_THETA)
    return _framed(
        replace(
            config,
            architecture="cohere",
            max_context=max_context,
            rms_norm_eps=fields.number("layer_norm_eps", 1e-5),
            attention_kinds=(AttentionKind(rope=rope),),
            tie_embeddings=fields.boolean("tie_word_embeddings", True),
            mlp_bias=False,
        ),
        fields.number("logit_scale", _LOGIT_SCALE),
    )


def hf_config_of_2(fields: FieldReader) -> ModelConfig:
    """config.json of Cohere2ForCausalLM. Raises ModelLoadError."""
    config = replace(hf_config(fields), architecture="cohere2")
    window = fields.optional_integer("sliding_window") if fields.given("sliding_window") else _WINDOW
    period = fields.integer("sliding_window_pattern", _PERIOD)
    if period < 1:
        fields.refuse(f"sliding_window_pattern is {period}, expected 1 or more")
    sliding = hf_sliding_layers(fields, config.num_layers, window, every_but_nth(period))
    rope = hf_rope(fields, config.max_context)
    return _windowed(replace(config, attention_kinds=(AttentionKind(window, rope),)), sliding)


def gguf_config(fields: FieldReader, tensor_shapes: Mapping[str, tuple[int, ...]]) -> ModelConfig:
    """Metadata of a GGUF whose general.architecture is command-r."""
    config = llama.gguf_config(fields, tensor_shapes, architecture="command-r")
    return _framed(config, fields.number("command-r.logit_scale", _LOGIT_SCALE))


def gguf_config_of_2(fields: FieldReader, tensor_shapes: Mapping[str, tuple[int, ...]]) -> ModelConfig:
    """Metadata of a GGUF whose general.architecture is cohere2."""
    config = llama.gguf_shape(fields, tensor_shapes, architecture="cohere2")
    sliding = gguf_sliding_layers(fields, "cohere2", config.num_layers, every_but_nth(_PERIOD))
    return _framed(_windowed(config, sliding), fields.number("cohere2.logit_scale", _LOGIT_SCALE))


def _windowed(config: ModelConfig, sliding: SlidingLayers) -> ModelConfig:
    (local,) = config.attention_kinds
    full = AttentionKind(None, None)
    return config.with_layers(lambda index: local if sliding(index) else full)


def _framed(config: ModelConfig, logits_scale: float) -> ModelConfig:
    block = BlockConfig(norms="parallel", norm="layer", logits_scale=logits_scale)
    return replace(config, interleaved_heads=True, block=block)
