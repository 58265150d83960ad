"""StarCoder 2 (BigCode 2024): norms with means and biases, biases everywhere, feed-forward blocks without a gate."""

from collections.abc import Mapping
from dataclasses import replace

from local_engine.attention_config import AttentionKind
from local_engine.config import ModelConfig
from local_engine.layer_config import BlockConfig
from local_engine.loading.fields import FieldReader
from local_engine.loading.plain_source import HfRows
from local_engine.models import llama

__all__ = ["gguf_config", "hf_config", "hf_places"]

_BLOCK = BlockConfig(norm="layer_bias", activation="gelu_tanh", gated=False)
_ACTIVATION = "gelu_pytorch_tanh"


def hf_config(fields: FieldReader) -> ModelConfig:
    """config.json of Starcoder2ForCausalLM. Raises ModelLoadError."""
    if (activation := fields.text("hidden_act", _ACTIVATION)) != _ACTIVATION:
        fields.refuse(f"hidden_act {activation!r}, expected {_ACTIVATION!r}")
    config = llama.hf_config(fields.without("hidden_act"))
    (kind,) = config.attention_kinds
    bias = fields.boolean("use_bias", True)
    return replace(
        config,
        architecture="starcoder2",
        rms_norm_eps=fields.number("norm_epsilon", 1e-5),
        block=_BLOCK,
        attention_kinds=(AttentionKind(fields.optional_integer("sliding_window"), kind.rope),),
        tie_embeddings=fields.boolean("tie_word_embeddings", True),
        qkv_bias=bias,
        output_bias=bias,
        mlp_bias=bias,
    )


def gguf_config(fields: FieldReader, tensor_shapes: Mapping[str, tuple[int, ...]]) -> ModelConfig:
    """Metadata of a GGUF whose general.architecture is starcoder2."""
    return replace(llama.gguf_config(fields, tensor_shapes, architecture="starcoder2"), block=_BLOCK)


def hf_places(config: ModelConfig) -> dict[str, HfRows]:
    """Feed-forward blocks have other names in safetensors."""
    return {
        f"model.layers.{index}.mlp.{ours}.{kind}": HfRows(f"model.layers.{index}.mlp.{theirs}.{kind}")
        for index in range(config.num_layers)
        for ours, theirs in (("up_proj", "c_fc"), ("down_proj", "c_proj"))
        for kind in ("weight", "bias")
    }
