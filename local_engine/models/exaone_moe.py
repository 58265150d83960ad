"""K-EXAONE (LG AI Research 2025): EXAONE 4's attention behind norms of what layers read, and experts by sigmoids."""

from collections.abc import Mapping
from dataclasses import replace

from local_engine.config import ModelConfig
from local_engine.layer_config import LLAMA_BLOCK
from local_engine.loading.fields import FieldReader
from local_engine.loading.plain_source import HfRows
from local_engine.loading.weights import GgufName
from local_engine.models import exaone4, glm4_moe, qwen2
from local_engine.models.sparse_mlp import (
    SIGMOID,
    gguf_expert_names,
    gguf_experts,
    hf_grouped_experts,
    hf_named_dense_layers,
)

__all__ = ["GUESSING", "NAMES", "gguf_config", "gguf_names", "hf_config", "hf_places"]

NAMES = glm4_moe.NAMES
GUESSING = ("mtp.",)
"""What names of tensors begin with that guess further tokens."""
# What absent keys mean to transformers.
_EXPERTS = {
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 1024,
    "first_k_dense_replace": 1,
    "n_group": 1,
    "topk_group": 1,
    "routed_scaling_factor": 2.5,
}


def hf_config(fields: FieldReader) -> ModelConfig:
    """config.json of ExaoneMoeForCausalLM. Raises ModelLoadError."""
    config = exaone4.hf_config(fields)
    counts = {"n_routed_experts": fields.integer("num_experts", 64)}
    counts["n_shared_experts"] = fields.integer("num_shared_experts", 1)
    experts = hf_grouped_experts(fields.with_defaults({**_EXPERTS, **counts}))
    if (dense := hf_named_dense_layers(fields, config.num_layers)) is not None:
        experts = replace(experts, dense_layers=dense)
    return replace(config, architecture="exaone_moe", block=LLAMA_BLOCK, experts=experts)


def hf_places(config: ModelConfig) -> dict[str, HfRows]:
    """What corrects the choice of experts stands beside the router, not within it."""
    return {
        NAMES.of_layer(index).correction: HfRows(f"model.layers.{index}.mlp.e_score_correction_bias")
        for index in range(config.num_layers)
    }


def gguf_config(fields: FieldReader, tensor_shapes: Mapping[str, tuple[int, ...]]) -> ModelConfig:
    """Metadata of a GGUF whose general.architecture is exaone-moe."""
    name = "exaone-moe"
    predicting = fields.integer(f"{name}.nextn_predict_layers", 0)
    layers = fields.integer(f"{name}.block_count") - predicting
    fields = fields.without(f"{name}.block_count").with_defaults({f"{name}.block_count": layers})
    config = exaone4.gguf_config(fields, tensor_shapes, architecture=name)
    experts = gguf_experts(fields, name, config.intermediate_size, gating=SIGMOID)
    return replace(
        config,
        block=LLAMA_BLOCK,
        predicting_layers=predicting,
        experts=replace(experts, routing=replace(experts.routing, corrected=True)),
    )


def gguf_names(config: ModelConfig) -> dict[str, GgufName]:
    """Our tensor names to those of a GGUF."""
    return qwen2.gguf_names(config) | gguf_expert_names(config, NAMES)
