"""Mixtral (Jiang et al. 2024): Mistral with experts in every layer. A GGUF calls it `llama` and gives expert_count."""

from collections.abc import Mapping
from dataclasses import replace

from local_engine.attention_config import AttentionKind
from local_engine.config import ModelConfig
from local_engine.layer_config import ExpertsConfig
from local_engine.loading.fields import FieldReader
from local_engine.loading.rope import hf_rope
from local_engine.loading.weights import GgufName
from local_engine.models import llama
from local_engine.models.sparse_mlp import ExpertNames, gguf_expert_names, gguf_experts

__all__ = ["NAMES", "gguf_config", "gguf_names", "hf_config"]

NAMES = ExpertNames("block_sparse_moe.gate", "block_sparse_moe.experts", "w1", "w3", "w2")
_THETA = 1e6


def hf_config(fields: FieldReader) -> ModelConfig:
    """config.json of MixtralForCausalLM. Raises ModelLoadError."""
    config = llama.hf_config(fields)
    rope = hf_rope(fields, fields.integer("max_position_embeddings", 4096 * 32), theta=_THETA)
    return replace(
        config,
        architecture="mixtral",
        attention_kinds=(AttentionKind(fields.optional_integer("sliding_window"), rope),),
        experts=ExpertsConfig(
            count=fields.integer("num_local_experts", 8),
            per_token=fields.integer("num_experts_per_tok", 2),
            intermediate_size=config.intermediate_size,
        ),
    )


def gguf_config(fields: FieldReader, tensor_shapes: Mapping[str, tuple[int, ...]]) -> ModelConfig:
    """Metadata of a GGUF whose general.architecture is llama and that has experts."""
    config = llama.gguf_shape(fields, tensor_shapes, architecture="llama")
    experts = gguf_experts(fields, "llama", config.intermediate_size)
    return replace(config, architecture="mixtral", experts=experts)


def gguf_names(config: ModelConfig) -> dict[str, GgufName]:
    """Our tensor names to those of a GGUF."""
    return llama.gguf_names(config) | gguf_expert_names(config, NAMES)
