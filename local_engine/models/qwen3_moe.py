"""Qwen3-MoE (Qwen Team 2025): Qwen3 with experts in all layers or in some."""

from collections.abc import Mapping
from dataclasses import replace

from local_engine.config import MAX_LAYERS, ModelConfig
from local_engine.layer_config import ExpertsConfig
from local_engine.loading.fields import FieldReader
from local_engine.loading.weights import GgufName
from local_engine.models import llama, qwen2, qwen3
from local_engine.models.qwen2 import gguf_windows
from local_engine.models.sparse_mlp import ExpertNames, gguf_expert_names, gguf_experts

__all__ = ["NAMES", "gguf_config", "gguf_names", "hf_config", "hf_dense_layers"]

NAMES = ExpertNames("mlp.gate", "mlp.experts")


def hf_config(fields: FieldReader) -> ModelConfig:
    """config.json of Qwen3MoeForCausalLM. Raises ModelLoadError."""
    config = replace(qwen3.hf_config(fields), architecture="qwen3_moe")
    count = fields.optional_integer("num_experts")
    return replace(
        config,
        experts=ExpertsConfig(
            count=fields.integer("num_local_experts", 128) if count is None else count,
            per_token=fields.integer("num_experts_per_tok", 8),
            intermediate_size=fields.integer("moe_intermediate_size", 768),
            normalised=fields.boolean("norm_topk_prob", False),
            dense_layers=hf_dense_layers(fields, config.num_layers),
        ),
    )


def hf_dense_layers(fields: FieldReader, num_layers: int) -> frozenset[int]:
    """The layers that config.json of a Qwen gives no experts."""
    every, dense = fields.integer("decoder_sparse_step", 1), fields.integers("mlp_only_layers")
    if every < 1:
        fields.refuse(f"decoder_sparse_step is {every}, expected a positive number")
    layers = range(min(num_layers, MAX_LAYERS))
    return frozenset(index for index in layers if index in dense or (index + 1) % every != 0)


def gguf_config(
    fields: FieldReader, tensor_shapes: Mapping[str, tuple[int, ...]], *, architecture: str = "qwen3moe"
) -> ModelConfig:
    """Metadata of a GGUF, its keys under the architecture's name: experts in all layers."""
    config = gguf_windows(fields, llama.gguf_shape(fields, tensor_shapes, architecture=architecture))
    return replace(config, qk_norm="heads", experts=gguf_experts(fields, architecture, config.intermediate_size))


def gguf_names(config: ModelConfig) -> dict[str, GgufName]:
    """Our tensor names to those of a GGUF."""
    return qwen2.gguf_names(config) | gguf_expert_names(config, NAMES)
