"""Mistral (Jiang et al. 2023): Llama with a sliding window on every layer where the file has one.

llama.cpp writes it as architecture `llama`, so its GGUFs are read by Llama's functions.
"""

from dataclasses import replace

from local_engine.config import ModelConfig
from local_engine.loading.fields import FieldReader
from local_engine.models import llama

__all__ = ["hf_config"]

# What an absent key means to transformers; null is no window.
_DEFAULT_WINDOW = 4096


def hf_config(fields: FieldReader) -> ModelConfig:
    """config.json of MistralForCausalLM. Raises ModelLoadError, also where layers differ in their windows."""
    window = fields.optional_integer("sliding_window") if fields.given("sliding_window") else _DEFAULT_WINDOW
    expected = "full_attention" if window is None else "sliding_attention"
    if other := set(fields.texts("layer_types")) - {expected}:
        fields.refuse(f"layer_types has {min(other)!r}, supported is {expected} alone with sliding_window {window}")
    config = llama.hf_config(fields)
    (kind,) = config.attention_kinds
    return replace(
        config,
        architecture="mistral",
        qkv_bias=False,
        output_bias=False,
        mlp_bias=False,
        attention_kinds=(replace(kind, window=window),),
    )
