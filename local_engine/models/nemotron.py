"""Nemotron and Minitron (NVIDIA 2024): norms with means, biases and weights from zero, squared ReLUs.

Heads turn in part.
"""

from collections.abc import Mapping
from dataclasses import replace

from local_engine.attention_config import AttentionKind
from local_engine.config import ModelConfig
from local_engine.layer_config import BlockConfig
from local_engine.loading.fields import FieldReader
from local_engine.loading.rope import hf_partial_rope
from local_engine.models import llama

__all__ = ["gguf_config", "hf_config"]

_BLOCK = BlockConfig(norm="layer_bias", norm_offset=1.0, activation="relu_squared", gated=False)
_SHARE = 0.5


def hf_config(fields: FieldReader) -> ModelConfig:
    """config.json of NemotronForCausalLM. Raises ModelLoadError."""
    if (activation := fields.text("hidden_act", "relu2")) != "relu2":
        fields.refuse(f"hidden_act {activation!r}, expected 'relu2'")
    config = llama.hf_config(fields.without("hidden_act").with_defaults({"max_position_embeddings": 4096}))
    return replace(
        config,
        architecture="nemotron",
        rms_norm_eps=fields.number("norm_eps", 1e-5),
        block=_BLOCK,
        attention_kinds=(AttentionKind(rope=hf_partial_rope(fields, config, share=_SHARE)),),
    )


def gguf_config(fields: FieldReader, tensor_shapes: Mapping[str, tuple[int, ...]]) -> ModelConfig:
    """Metadata of a GGUF whose general.architecture is nemotron."""
    return replace(llama.gguf_shape(fields, tensor_shapes, architecture="nemotron"), block=_BLOCK)
