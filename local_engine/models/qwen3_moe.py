"""Qwen3-MoE (Qwen Team 2025): Qwen3 with experts in all layers or in some."""

from collections.abc import Mapping
from dataclasses import replace

from local_engine.config import MAX_LAYERS, ModelConfig
from local_engine.layer_config import ExpertsConfig
from local_engine.layers.ops import Ops
from local_engine.loading.fields import FieldReader
from local_engine.loading.weights import GgufName, Weights
from local_engine.models import llama, qwen2, qwen3
from local_engine.models.decoder import Decoder, Mlp, dense_mlp
from local_engine.models.qwen2 import gguf_windows
from local_engine.models.sparse_mlp import ExpertNames, gguf_expert_names, gguf_experts, sparse_mlp

__all__ = ["NAMES", "build_qwen3_moe", "gguf_config", "gguf_names", "hf_config"]

NAMES = ExpertNames("mlp.gate", "mlp.experts")


def hf_config(fields: FieldReader) -> ModelConfig:
    """config.json of Qwen3MoeForCausalLM. Raises ModelLoadError."""
    config = replace(qwen3.hf_config(fields), architecture="qwen3_moe")
    every, dense = fields.integer("decoder_sparse_step", 1), fields.integers("mlp_only_layers")
    if every < 1:
        fields.refuse(f"decoder_sparse_step is {every}, expected a positive number")
    count = fields.optional_integer("num_experts")
    return replace(
        config,
        experts=ExpertsConfig(
            count=fields.integer("num_local_experts", 128) if count is None else count,
            per_token=fields.integer("num_experts_per_tok", 8),
            intermediate_size=fields.integer("moe_intermediate_size", 768),
            normalised=fields.boolean("norm_topk_prob", False),
            dense_layers=frozenset(
                index
                for index in range(min(config.num_layers, MAX_LAYERS))
                if index in dense or (index + 1) % every != 0
            ),
        ),
    )


def gguf_config(fields: FieldReader, tensor_shapes: Mapping[str, tuple[int, ...]]) -> ModelConfig:
    """Metadata of a GGUF whose general.architecture is qwen3moe: experts in all layers."""
    config = gguf_windows(fields, llama.gguf_shape(fields, tensor_shapes, architecture="qwen3moe"))
    return replace(config, qk_norm="heads", experts=gguf_experts(fields, "qwen3moe", config.intermediate_size))


def gguf_names(config: ModelConfig) -> dict[str, GgufName]:
    """Our tensor names to those of a GGUF."""
    return qwen2.gguf_names(config) | gguf_expert_names(config, NAMES)


def build_qwen3_moe(config: ModelConfig, weights: Weights, ops: Ops) -> Decoder:
    """A model with all its weights read. Raises ModelLoadError naming a missing or misshapen tensor."""
    return Decoder(config, weights, ops, build_mlp=_mlp)


def _mlp(config: ModelConfig, index: int, weights: Weights, ops: Ops) -> Mlp:
    if config.experts is None or index in config.experts.dense_layers:
        return dense_mlp(config, index, weights, ops)
    return sparse_mlp(weights, ops, NAMES.of_layer(index), config, config.experts)
