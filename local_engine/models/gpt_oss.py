"""gpt-oss (OpenAI 2025): experts in every layer, a window on every other, a sink in every head, biases everywhere.

An expert computes down((up + 1) * gate * sigmoid(alpha * gate)), with gate at most `limit` and up within +-limit.
Safetensors have the experts of a layer as stacks whose rows are gate and up by turns, plain or in mxfp4.
"""

from collections.abc import Mapping
from dataclasses import replace

from local_engine.attention_config import AttentionKind
from local_engine.config import ModelConfig
from local_engine.layer_config import ExpertsConfig
from local_engine.loading.fields import FieldReader
from local_engine.loading.plain_source import HfName
from local_engine.loading.rope import hf_rope
from local_engine.loading.sliding_layers import every_but_nth, gguf_sliding_layers, hf_sliding_layers
from local_engine.loading.weights import GgufName
from local_engine.models import llama
from local_engine.models.sparse_mlp import ExpertNames, gguf_expert_names, gguf_experts

__all__ = ["NAMES", "gguf_config", "gguf_names", "hf_config", "hf_places"]

NAMES = ExpertNames("mlp.router", "mlp.experts")
# What absent keys mean to transformers and llama.cpp.
_WINDOW, _PERIOD, _THETA = 128, 2, 150000.0


def hf_config(fields: FieldReader) -> ModelConfig:
    """config.json of GptOssForCausalLM. Raises ModelLoadError."""
    config = llama.hf_config(fields)
    rope = hf_rope(fields, fields.integer("max_position_embeddings", 131072), theta=_THETA)
    window = fields.optional_integer("sliding_window") if fields.given("sliding_window") else _WINDOW
    sliding = hf_sliding_layers(fields, config.num_layers, window, every_but_nth(_PERIOD))
    has_bias = fields.boolean("attention_bias", True)
    return replace(
        config.with_layers(lambda index: AttentionKind(window if sliding(index) else None, rope)),
        architecture="gpt_oss",
        head_dim=fields.integer("head_dim", 64),
        qkv_bias=has_bias,
        output_bias=has_bias,
        mlp_bias=True,
        attention_sinks=True,
        experts=ExpertsConfig(
            count=fields.integer("num_local_experts", 128),
            per_token=fields.integer("num_experts_per_tok", 4),
            intermediate_size=config.intermediate_size,
            bias=True,
            activation="clamped_swiglu",
            swiglu_alpha=fields.number("swiglu_alpha", 1.702),
            swiglu_limit=fields.number("swiglu_limit", 7.0),
        ),
    )


def gguf_config(fields: FieldReader, tensor_shapes: Mapping[str, tuple[int, ...]]) -> ModelConfig:
    """Metadata of a GGUF whose general.architecture is gpt-oss."""
    config = llama.gguf_shape(fields, tensor_shapes, architecture="gpt-oss")
    rope = config.attention_kinds[0].rope
    if rope is not None:
        rope = replace(rope, truncate=False)  # as the models were trained; the format cannot say it
    window = fields.integer("gpt-oss.attention.sliding_window", _WINDOW)
    sliding = gguf_sliding_layers(fields, "gpt-oss", config.num_layers, every_but_nth(_PERIOD))
    return replace(
        config.with_layers(lambda index: AttentionKind(window if sliding(index) else None, rope)),
        mlp_bias=True,
        attention_sinks=True,
        experts=replace(
            gguf_experts(fields, "gpt-oss", config.intermediate_size), bias=True, activation="clamped_swiglu"
        ),
    )


def gguf_names(config: ModelConfig) -> dict[str, GgufName]:
    """Our tensor names to those of a GGUF."""
    names = llama.gguf_names(config, interleaved=False, mlp_norm="post_attention_norm")
    names |= gguf_expert_names(config, NAMES)
    for layer in range(config.num_layers):
        prefix = f"model.layers.{layer}"
        names[f"{prefix}.self_attn.sinks"] = GgufName(f"blk.{layer}.attn_sinks.weight")
    return names


def hf_places(config: ModelConfig) -> dict[str, HfName]:
    """Our names of the experts' matrices and biases to places in the stacks of safetensors."""
    if config.experts is None:
        return {}
    names: dict[str, HfName] = {}
    for layer in range(config.num_layers):
        prefix = NAMES.of_layer(layer).experts
        for index in range(config.experts.count):
            for kind, ending in (("weight", ""), ("bias", "_bias")):
                gate_up, down = f"{prefix}.gate_up_proj{ending}", f"{prefix}.down_proj{ending}"
                names[f"{prefix}.{index}.gate_proj.{kind}"] = HfName(gate_up, index, 0, 2)
                names[f"{prefix}.{index}.up_proj.{kind}"] = HfName(gate_up, index, 1, 2)
                names[f"{prefix}.{index}.down_proj.{kind}"] = HfName(down, index)
    return names
