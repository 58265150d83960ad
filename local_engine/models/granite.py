"""Granite 3 and 4 (IBM 2024): Llama with a factor on embeddings, scores, what layers add, and logits.

Some of Granite 3 have experts. Of Granite 4 the dense models without Mamba layers are this one with other names.

The factor m on what layers add is no one's business but this file's: with h / m in place of the residual h, a layer
adds its outputs as they are, and norms give the same when their epsilon is divided by m squared.
"""

from collections.abc import Mapping
from dataclasses import replace

from local_engine.config import AttentionKind, ModelConfig
from local_engine.layer_config import BlockConfig, ExpertsConfig
from local_engine.loading.fields import FieldReader
from local_engine.loading.plain_source import HfName, HfRows
from local_engine.loading.weights import GgufName
from local_engine.models import llama
from local_engine.models.sparse_mlp import ExpertNames, gguf_expert_names, gguf_experts

__all__ = [
    "NAMES",
    "gguf_config",
    "gguf_config_of_moe",
    "gguf_names_of_moe",
    "hf_config",
    "hf_config_of_4",
    "hf_config_of_moe",
    "hf_places_of_4",
    "hf_places_of_moe",
]

NAMES = ExpertNames("block_sparse_moe.router.layer", "block_sparse_moe.experts", shared="shared_mlp")

_LIMIT = 2.0**20


def hf_config(fields: FieldReader) -> ModelConfig:
    """config.json of GraniteForCausalLM. Raises ModelLoadError."""
    names = ("embedding_multiplier", "attention_multiplier", "residual_multiplier", "logits_scaling")
    return scaled(fields, llama.hf_config(fields), "granite", names)


def hf_config_of_4(fields: FieldReader) -> ModelConfig:
    """config.json of GraniteMoeHybridForCausalLM, of a dense model. Raises ModelLoadError."""
    if fields.integer("num_local_experts", 8):
        fields.refuse("num_local_experts is not 0: experts beside Mamba's layers are not supported")
    if not (kinds := fields.texts("layer_types")) or set(kinds) - {"attention", "full_attention"}:
        fields.refuse("layer_types has other layers than attention, which are not supported")
    config = replace(hf_config(fields), intermediate_size=fields.integer("shared_intermediate_size", 1024))
    if fields.text("position_embedding_type", "nope") != "rope":
        config = replace(config, attention_kinds=(AttentionKind(None, None),))
    return replace(config, mlp_bias=False, fused_gate_up=True)


def hf_places_of_4(config: ModelConfig) -> dict[str, HfRows]:
    """Its feed-forward blocks have the names of what stands beside experts in others."""
    return {
        f"model.layers.{index}.mlp.{ours}.weight": HfRows(f"model.layers.{index}.shared_mlp.{theirs}.weight")
        for index in range(config.num_layers)
        for ours, theirs in (("gate_up_proj", "input_linear"), ("down_proj", "output_linear"))
    }


def hf_config_of_moe(fields: FieldReader) -> ModelConfig:
    """config.json of GraniteMoeForCausalLM. Raises ModelLoadError."""
    config = hf_config(fields)
    experts = ExpertsConfig(
        count=fields.integer("num_local_experts", 8),
        per_token=fields.integer("num_experts_per_tok", 2),
        intermediate_size=config.intermediate_size,
    )
    return replace(config, architecture="granitemoe", mlp_bias=False, experts=experts)


def hf_places_of_moe(config: ModelConfig) -> dict[str, HfName]:
    """Experts in stacks, gate above up."""
    places: dict[str, HfName] = {}
    for layer in range(config.num_layers if config.experts is not None else 0):
        prefix = f"model.layers.{layer}.block_sparse_moe"
        for index in range(config.experts.count if config.experts is not None else 0):
            both, expert, width = f"{prefix}.input_linear.weight", f"{prefix}.experts.{index}", config.intermediate_size
            places[f"{expert}.gate_proj.weight"] = HfName(both, index, 0, stop=width, rows_first=True)
            places[f"{expert}.up_proj.weight"] = HfName(both, index, width, rows_first=True)
            places[f"{expert}.down_proj.weight"] = HfName(f"{prefix}.output_linear.weight", index, rows_first=True)
    return places


def gguf_config_of_moe(fields: FieldReader, tensor_shapes: Mapping[str, tuple[int, ...]]) -> ModelConfig:
    """Metadata of a GGUF whose general.architecture is granitemoe."""
    config = llama.gguf_shape(fields, tensor_shapes, architecture="granitemoe")
    experts = gguf_experts(fields, "granitemoe", config.intermediate_size)
    return replace(gguf_scaled(fields, config), experts=experts)


def gguf_names_of_moe(config: ModelConfig) -> dict[str, GgufName]:
    """Our tensor names to those of a GGUF."""
    return llama.gguf_names(config) | gguf_expert_names(config, NAMES)


def gguf_config(fields: FieldReader, tensor_shapes: Mapping[str, tuple[int, ...]]) -> ModelConfig:
    """Metadata of a GGUF whose general.architecture is granite."""
    config = llama.gguf_config(fields, tensor_shapes, architecture="granite")
    return gguf_scaled(fields, config)


def gguf_scaled(fields: FieldReader, config: ModelConfig) -> ModelConfig:
    """With the factors that a GGUF has under the architecture's name."""
    names = ("embedding_scale", "attention.scale", "residual_scale", "logit_scale")
    return scaled(fields, config, config.architecture, tuple(f"{config.architecture}.{name}" for name in names))


def scaled(fields: FieldReader, config: ModelConfig, architecture: str, names: tuple[str, ...]) -> ModelConfig:
    """With the factors of embeddings, scores and additions, and the divisor of logits, that the file has so named."""
    factors = []
    for name in names:
        factors.append(fields.number(name, 1.0))
        if not 1 / _LIMIT <= factors[-1] <= _LIMIT:
            fields.refuse(f"{name} is {factors[-1]:g}, expected a number from 2^-20 to 2^20")
    embedding, attention, added, logits = factors
    return replace(
        config,
        architecture=architecture,
        rms_norm_eps=config.rms_norm_eps / added**2,
        attention_scale=attention,
        block=BlockConfig(embedding_scale=embedding / added, logits_scale=1 / logits),
    )
