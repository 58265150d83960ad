"""ERNIE 4.5, dense (Baidu 2025): Llama whose heads lie interleaved in files of either format."""

from collections.abc import Mapping
from dataclasses import replace

from local_engine.attention_config import AttentionKind
from local_engine.config import ModelConfig
from local_engine.loading.fields import FieldReader
from local_engine.loading.rope import hf_rope
from local_engine.models import llama

__all__ = ["gguf_config", "hf_config"]

# What absent keys mean to transformers.
_THETA, _MAX_CONTEXT = 500000.0, 131072


def hf_config(fields: FieldReader) -> ModelConfig:
    """config.json of Ernie4_5ForCausalLM. Raises ModelLoadError."""
    bias = fields.boolean("use_bias", False)
    max_context = fields.integer("max_position_embeddings", _MAX_CONTEXT)
    return replace(
        llama.hf_config(fields),
        architecture="ernie4_5",
        head_dim=fields.integer("head_dim", 128),
        max_context=max_context,
        rms_norm_eps=fields.number("rms_norm_eps", 1e-5),
        attention_kinds=(AttentionKind(rope=hf_rope(fields, max_context, theta=_THETA)),),
        tie_embeddings=fields.boolean("tie_word_embeddings", True),
        qkv_bias=bias,
        output_bias=bias,
        mlp_bias=bias,
        interleaved_heads=True,
    )


def gguf_config(fields: FieldReader, tensor_shapes: Mapping[str, tuple[int, ...]]) -> ModelConfig:
    """Metadata of a GGUF whose general.architecture is ernie4_5."""
    config = llama.gguf_config(fields, tensor_shapes, architecture="ernie4_5")
    return replace(config, interleaved_heads=True)
