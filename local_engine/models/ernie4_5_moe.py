"""ERNIE 4.5 with experts (Baidu 2025), text: beside them, in most of its models, blocks for all tokens."""

from collections.abc import Mapping
from dataclasses import replace

from local_engine.config import MAX_LAYERS, ModelConfig
from local_engine.layer_config import ExpertsConfig, RoutingConfig
from local_engine.loading.fields import FieldReader
from local_engine.loading.plain_source import HfRows
from local_engine.loading.weights import GgufName
from local_engine.models import ernie4_5, glm4_moe, llama
from local_engine.models.sparse_mlp import gguf_expert_names, gguf_experts

__all__ = ["GUESSING", "NAMES", "gguf_config", "gguf_names", "hf_config", "hf_places"]

NAMES = glm4_moe.NAMES
GUESSING = ("model.mtp_",)
"""What names of tensors begin with that guess further tokens."""
_ROUTING = RoutingConfig(corrected=True)


def hf_config(fields: FieldReader) -> ModelConfig:
    """config.json of Ernie4_5_MoeForCausalLM. Raises ModelLoadError."""
    if fields.boolean("use_bias", False):
        fields.refuse("use_bias is true: biases are not supported beside experts")
    head_dim = fields.integer("hidden_size") // max(fields.integer("num_attention_heads"), 1)
    config = ernie4_5.hf_config(fields.with_defaults({"head_dim": head_dim}))
    width = fields.integer("moe_intermediate_size", 1536)
    first, last = fields.integer("moe_layer_start_index", 1), fields.integer("moe_layer_end_index", -1)
    return replace(
        config,
        architecture="ernie4_5_moe",
        experts=ExpertsConfig(
            count=fields.integer("moe_num_experts", 64),
            per_token=fields.integer("moe_k", 6),
            intermediate_size=width,
            dense_layers=_dense_layers(
                fields, config, first, config.num_layers if last == -1 else last, "moe_layer_interval"
            ),
            routing=_ROUTING,
            shared_size=fields.integer("moe_num_shared_experts", 2) * width,
        ),
    )


def _dense_layers(fields: FieldReader, config: ModelConfig, first: int, last: int, interval: str) -> frozenset[int]:
    """All but the last of each so many from the first one with experts to the last."""
    if (every := fields.integer(interval, 1)) < 1:
        fields.refuse(f"{interval} is {every}, expected a positive number")
    layers = range(min(config.num_layers, MAX_LAYERS))
    return frozenset(index for index in layers if (index + 1) % every or not first <= index <= last)


def hf_places(config: ModelConfig) -> dict[str, HfRows]:
    """What corrects the choice of experts has another name, and heads lie otherwise."""
    corrections = {
        NAMES.of_layer(index).correction: HfRows(f"model.layers.{index}.mlp.moe_statics.e_score_correction_bias")
        for index in range(config.num_layers)
    }
    return llama.hf_places(config) | corrections


def gguf_config(fields: FieldReader, tensor_shapes: Mapping[str, tuple[int, ...]]) -> ModelConfig:
    """Metadata of a GGUF whose general.architecture is ernie4_5-moe."""
    name = "ernie4_5-moe"
    config = llama.gguf_shape(fields, tensor_shapes, architecture=name)
    # Converters have a wrong width of the shared block in some models.
    experts = gguf_experts(fields.without(f"{name}.expert_shared_feed_forward_length"), name, config.intermediate_size)
    first = fields.integer(f"{name}.leading_dense_block_count", 0)
    dense = _dense_layers(fields, config, first, config.num_layers, f"{name}.interleave_moe_layer_step")
    return replace(config, interleaved_heads=True, experts=replace(experts, dense_layers=dense, routing=_ROUTING))


def gguf_names(config: ModelConfig) -> dict[str, GgufName]:
    """Our tensor names to those of a GGUF."""
    return llama.gguf_names(config) | gguf_expert_names(config, NAMES)
