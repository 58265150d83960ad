"""OLMoE (Ai2 2024): Llama with experts in all layers, and norms of all heads of Q and of K."""

from collections.abc import Mapping
from dataclasses import replace

from local_engine.config import ModelConfig
from local_engine.layer_config import ExpertsConfig
from local_engine.loading.fields import FieldReader
from local_engine.models import llama
from local_engine.models.sparse_mlp import gguf_experts

__all__ = ["gguf_config", "hf_config"]


def hf_config(fields: FieldReader) -> ModelConfig:
    """config.json of OlmoeForCausalLM. Raises ModelLoadError."""
    if fields.optional_number("clip_qkv") is not None:
        fields.refuse("clip_qkv is set: queries, keys and values that are clipped are not supported")
    config = llama.hf_config(fields.with_defaults({"rms_norm_eps": 1e-5}))
    experts = ExpertsConfig(
        count=fields.integer("num_experts", 64),
        per_token=fields.integer("num_experts_per_tok", 8),
        intermediate_size=config.intermediate_size,
        normalised=fields.boolean("norm_topk_prob", False),
    )
    return replace(config, architecture="olmoe", mlp_bias=False, qk_norm="row", experts=experts)


def gguf_config(fields: FieldReader, tensor_shapes: Mapping[str, tuple[int, ...]]) -> ModelConfig:
    """Metadata of a GGUF whose general.architecture is olmoe."""
    if fields.number("olmoe.attention.clamp_kqv", 0.0):
        fields.refuse("olmoe.attention.clamp_kqv: queries, keys and values that are clipped are not supported")
    config = llama.gguf_shape(fields, tensor_shapes, architecture="olmoe")
    experts = gguf_experts(fields, "olmoe", config.intermediate_size, normalised=False)
    return replace(config, qk_norm="row", experts=experts)
