"""Phi-3, Phi-3.5 and Phi-4, the text models (Microsoft 2024): Llama with fused projections and longrope.

Phi-4-mini turns a part of each head only. Longrope has one list of factors for windows up to the trained one and
another beyond it. Which of them a model runs with follows from the window that it is served with, not from each
prompt's length: cached keys would not fit otherwise.
"""

from collections.abc import Mapping
from dataclasses import replace

from local_engine.attention_config import AttentionKind
from local_engine.config import ModelConfig
from local_engine.loading.fields import FieldReader
from local_engine.loading.rope import hf_partial_rope
from local_engine.loading.weights import GgufName
from local_engine.models import llama
from local_engine.models.self_attention import LONG_FACTORS, SHORT_FACTORS

__all__ = ["gguf_config", "gguf_names", "hf_config"]


def hf_config(fields: FieldReader) -> ModelConfig:
    """config.json of Phi3ForCausalLM. Raises ModelLoadError."""
    config = llama.hf_config(fields)
    rope = hf_partial_rope(fields, config, share=1.0)
    return replace(
        config,
        architecture="phi3",
        qkv_bias=False,
        output_bias=False,
        mlp_bias=False,
        fused_qkv=True,
        fused_gate_up=True,
        attention_kinds=(AttentionKind(fields.optional_integer("sliding_window"), rope),),
    )


def gguf_config(fields: FieldReader, tensor_shapes: Mapping[str, tuple[int, ...]]) -> ModelConfig:
    """Metadata of a GGUF whose general.architecture is phi3. Longrope is known by its tensors of factors."""
    config = llama.gguf_shape(fields, tensor_shapes, architecture="phi3")
    (kind,) = config.attention_kinds
    if kind.rope is not None and "rope_factors_long.weight" in tensor_shapes:
        rope = replace(
            kind.rope,
            scaling="longrope",
            original_max_context=fields.integer("phi3.rope.scaling.original_context_length", config.max_context),
            attention_factor=fields.number("phi3.rope.scaling.attn_factor", 1.0),
        )
        kind = replace(kind, rope=rope)
    return replace(config, fused_qkv=True, fused_gate_up=True, attention_kinds=(kind,))


def gguf_names(config: ModelConfig) -> dict[str, GgufName]:
    """Our tensor names to those of a GGUF."""
    factors = {LONG_FACTORS: GgufName("rope_factors_long.weight"), SHORT_FACTORS: GgufName("rope_factors_short.weight")}
    return llama.gguf_names(config) | factors
