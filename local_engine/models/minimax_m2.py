"""MiniMax-M2 (MiniMax 2025): experts chosen by sigmoids in all layers, norms of all heads of Q and of K.

Heads turn in part.
"""

from collections.abc import Mapping
from dataclasses import replace

from local_engine.attention_config import AttentionKind
from local_engine.config import ModelConfig
from local_engine.layer_config import ExpertsConfig, RoutingConfig
from local_engine.loading.fields import FieldReader
from local_engine.loading.plain_source import HfRows
from local_engine.loading.rope import hf_partial_rope
from local_engine.loading.weights import GgufName
from local_engine.models import llama, mixtral, qwen2
from local_engine.models.sparse_mlp import SIGMOID, gguf_expert_names, gguf_experts

__all__ = ["NAMES", "gguf_config", "gguf_names", "hf_config", "hf_places"]

NAMES = mixtral.NAMES
_ROUTING = RoutingConfig(scores="sigmoid", corrected=True)


def hf_config(fields: FieldReader) -> ModelConfig:
    """config.json of MiniMaxM2ForCausalLM. Raises ModelLoadError."""
    fields = fields.with_defaults({"head_dim": 128, "max_position_embeddings": 196608, "rope_theta": 5e6})
    config = llama.hf_config(fields)
    turning = fields.integer("rotary_dim", config.head_dim)
    return replace(
        config,
        architecture="minimax-m2",
        attention_kinds=(AttentionKind(rope=hf_partial_rope(fields, config, share=turning / max(config.head_dim, 1))),),
        qkv_bias=False,
        output_bias=False,
        mlp_bias=False,
        qk_norm="row",
        experts=ExpertsConfig(
            count=fields.integer("num_local_experts", 256),
            per_token=fields.integer("num_experts_per_tok", 8),
            intermediate_size=config.intermediate_size,
            routing=_ROUTING,
        ),
    )


def hf_places(config: ModelConfig) -> dict[str, HfRows]:
    """What corrects the choice of experts stands beside the router, not within it."""
    return {
        NAMES.of_layer(index).correction: HfRows(f"model.layers.{index}.block_sparse_moe.e_score_correction_bias")
        for index in range(config.num_layers)
    }


def gguf_config(fields: FieldReader, tensor_shapes: Mapping[str, tuple[int, ...]]) -> ModelConfig:
    """Metadata of a GGUF whose general.architecture is minimax-m2."""
    config = llama.gguf_shape(fields, tensor_shapes, architecture="minimax-m2")
    experts = gguf_experts(fields, "minimax-m2", config.intermediate_size, gating=SIGMOID)
    return replace(config, qk_norm="row", experts=replace(experts, routing=_ROUTING))


def gguf_names(config: ModelConfig) -> dict[str, GgufName]:
    """Our tensor names to those of a GGUF."""
    return qwen2.gguf_names(config) | gguf_expert_names(config, NAMES)
