"""Qwen1.5-MoE and Qwen2-MoE (Qwen Team 2024): Qwen2 with experts, and a gated block beside them for all tokens."""

from collections.abc import Mapping
from dataclasses import replace

from local_engine.config import ModelConfig
from local_engine.layer_config import ExpertsConfig
from local_engine.loading.fields import FieldReader
from local_engine.loading.sliding_layers import hf_sliding_layers
from local_engine.loading.weights import GgufName
from local_engine.models import llama, qwen2
from local_engine.models.qwen3_moe import hf_dense_layers
from local_engine.models.sparse_mlp import ExpertNames, gguf_expert_names, gguf_experts

__all__ = ["NAMES", "gguf_config", "gguf_names", "hf_config"]

NAMES = ExpertNames("mlp.gate", "mlp.experts", shared="mlp.shared_expert", shared_gate="mlp.shared_expert_gate")


def hf_config(fields: FieldReader) -> ModelConfig:
    """config.json of Qwen2MoeForCausalLM. Raises ModelLoadError."""
    if fields.boolean("use_sliding_window", False):
        fields.refuse("use_sliding_window is true: windows are not supported in this architecture")
    config = llama.hf_config(fields)
    hf_sliding_layers(fields, config.num_layers, None, lambda _: False)
    return replace(
        config,
        architecture="qwen2_moe",
        qkv_bias=fields.boolean("qkv_bias", True),
        output_bias=False,
        mlp_bias=False,
        experts=ExpertsConfig(
            count=fields.integer("num_experts", 60),
            per_token=fields.integer("num_experts_per_tok", 4),
            intermediate_size=fields.integer("moe_intermediate_size", 1408),
            normalised=fields.boolean("norm_topk_prob", False),
            dense_layers=hf_dense_layers(fields, config.num_layers),
            shared_size=fields.integer("shared_expert_intermediate_size", 5632),
            shared_gate=True,
        ),
    )


def gguf_config(fields: FieldReader, tensor_shapes: Mapping[str, tuple[int, ...]]) -> ModelConfig:
    """Metadata of a GGUF whose general.architecture is qwen2moe: experts in all layers."""
    config = llama.gguf_shape(fields, tensor_shapes, architecture="qwen2moe")
    experts = gguf_experts(fields, "qwen2moe", config.intermediate_size, normalised=False)
    shared = experts.shared_size or config.intermediate_size
    return replace(config, experts=replace(experts, shared_size=shared, shared_gate=True))


def gguf_names(config: ModelConfig) -> dict[str, GgufName]:
    """Our tensor names to those of a GGUF."""
    return qwen2.gguf_names(config) | gguf_expert_names(config, NAMES)
