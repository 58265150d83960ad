"""How files describe Gemma 2 (Gemma Team 2024): soft caps, and a sliding window on every other layer."""

from collections.abc import Mapping
from dataclasses import replace

from local_engine.attention_config import AttentionKind
from local_engine.config import ModelConfig
from local_engine.loading.fields import FieldReader
from local_engine.loading.rope import hf_rope
from local_engine.loading.sliding_layers import every_but_nth, gguf_sliding_layers, hf_sliding_layers
from local_engine.models import gemma, llama

__all__ = ["gguf_config", "hf_config"]

# What an absent key means to transformers and llama.cpp.
_WINDOW, _PERIOD, _SCORE_CAP, _LOGITS_CAP = 4096, 2, 50.0, 30.0
_LAYERS_OF_27B = 46


def hf_config(fields: FieldReader) -> ModelConfig:
    """config.json of Gemma2ForCausalLM. Raises ModelLoadError."""
    config = gemma.hf_shape(fields, "gemma2")
    if not fields.given("attn_logit_softcapping"):
        config = replace(config, attention_soft_cap=_SCORE_CAP)
    if not fields.given("final_logit_softcapping"):
        config = replace(config, logits_soft_cap=_LOGITS_CAP)
    rope = hf_rope(fields, config.max_context)
    window = fields.integer("sliding_window", _WINDOW)
    sliding = hf_sliding_layers(fields, config.num_layers, window, every_but_nth(_PERIOD))
    return config.with_layers(lambda index: AttentionKind(window if sliding(index) else None, rope))


def gguf_config(fields: FieldReader, tensor_shapes: Mapping[str, tuple[int, ...]]) -> ModelConfig:
    """Metadata of a GGUF whose general.architecture is gemma2."""
    config = llama.gguf_shape(fields, tensor_shapes, architecture="gemma2")
    rope = config.attention_kinds[0].rope
    window = fields.integer("gemma2.attention.sliding_window", _WINDOW)
    sliding = gguf_sliding_layers(fields, "gemma2", config.num_layers, every_but_nth(_PERIOD))
    return replace(
        config.with_layers(lambda index: AttentionKind(window if sliding(index) else None, rope)),
        block=gemma.block(config.hidden_size),
        attention_scale=gemma.gguf_score_scale(fields, config, layers_of_27b=_LAYERS_OF_27B),
        attention_soft_cap=fields.number("gemma2.attn_logit_softcapping", _SCORE_CAP),
        logits_soft_cap=fields.number("gemma2.final_logit_softcapping", _LOGITS_CAP),
    )
