"""Granite 3 and 4 (IBM 2024): Llama with a factor on embeddings, scores, what layers add, and logits.

Some of Granite 3 have experts. Granite 4 has other names, experts beside a block for all tokens in some of its models,
and in most of them Mamba's layers.

The factor m on what layers add is no one's business but this file's: with h / m in place of the residual h, a layer
adds its outputs as they are, and norms give the same when their epsilon is divided by m squared.
"""

from collections.abc import Mapping
from dataclasses import replace

from local_engine.attention_config import AttentionKind
from local_engine.config import ModelConfig
from local_engine.layer_config import BlockConfig, ExpertsConfig
from local_engine.loading.fields import FieldReader
from local_engine.loading.plain_source import HfName, HfRows
from local_engine.loading.recurrent_layers import gguf_recurrent_layers, hf_without_step_limits
from local_engine.loading.weights import GgufName
from local_engine.models import llama
from local_engine.models.mamba2_in_gguf import gguf_mamba2, gguf_mamba2_names
from local_engine.models.sparse_mlp import ExpertNames, gguf_expert_names, gguf_experts
from local_engine.recurrent_config import Mamba2Config

__all__ = [
    "NAMES",
    "gguf_config",
    "gguf_config_of_4",
    "gguf_config_of_moe",
    "gguf_names_of_4",
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
    """config.json of GraniteMoeHybridForCausalLM, with Mamba's layers or without. Raises ModelLoadError."""
    config, shared = hf_config(fields), fields.integer("shared_intermediate_size", 1024)
    experts = None
    if count := fields.integer("num_local_experts", 8):
        experts = ExpertsConfig(
            count=count,
            per_token=fields.integer("num_experts_per_tok", 2),
            intermediate_size=config.intermediate_size,
            shared_size=shared,
        )
    if fields.text("position_embedding_type", "nope") != "rope":
        config = replace(config, attention_kinds=(AttentionKind(None, None),))
    return replace(
        config,
        intermediate_size=shared,
        mlp_bias=False,
        fused_gate_up=True,
        experts=experts,
        recurrent=_hf_mamba(fields, config),
    )


def _hf_mamba(fields: FieldReader, config: ModelConfig) -> Mamba2Config | None:
    """Mamba's layers; None where all have attention."""
    kinds = fields.texts("layer_types")
    if len(kinds) != config.num_layers:
        fields.refuse(f"layer_types has {len(kinds)} items for {config.num_layers} layers")
    if other := set(kinds) - {"attention", "full_attention", "mamba", "linear_attention"}:
        fields.refuse(f"layer_types has {min(other)!r}, supported are attention and mamba")
    layers = frozenset(index for index, kind in enumerate(kinds) if kind in ("mamba", "linear_attention"))
    if not layers:
        return None
    hf_without_step_limits(fields)
    heads = fields.integer("mamba_n_heads", 128)
    width = fields.integer("mamba_expand", 2) * config.hidden_size
    return Mamba2Config(
        layers=layers,
        taps=fields.integer("mamba_d_conv", 4),
        heads=heads,
        head_dim=width // max(heads, 1),
        groups=fields.integer("mamba_n_groups", 1),
        state_size=fields.integer("mamba_d_state", 256),
        norm_eps=fields.number("rms_norm_eps", 1e-6),
        bias=fields.boolean("mamba_proj_bias", False),
        conv_bias=fields.boolean("mamba_conv_bias", True),
    )


def hf_places_of_4(config: ModelConfig) -> dict[str, HfName | HfRows]:
    """Its feed-forward blocks have the names of what stands beside experts in others, and does so in some of it."""
    block = "mlp" if config.experts is None else "shared_mlp"
    places: dict[str, HfName | HfRows] = {
        f"model.layers.{index}.{block}.{ours}.weight": HfRows(f"model.layers.{index}.shared_mlp.{theirs}.weight")
        for index in range(config.num_layers)
        for ours, theirs in (("gate_up_proj", "input_linear"), ("down_proj", "output_linear"))
    }
    return places | hf_places_of_moe(config)


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
    width = 0 if config.experts is None else config.experts.intermediate_size
    for layer in range(config.num_layers if config.experts is not None else 0):
        prefix = f"model.layers.{layer}.block_sparse_moe"
        for index in range(config.experts.count if config.experts is not None else 0):
            both, expert = f"{prefix}.input_linear.weight", f"{prefix}.experts.{index}"
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


def gguf_config_of_4(fields: FieldReader, tensor_shapes: Mapping[str, tuple[int, ...]]) -> ModelConfig:
    """Metadata of a GGUF whose general.architecture is granitehybrid: layers without kv heads have Mamba's."""
    name = "granitehybrid"
    fields, layers = gguf_recurrent_layers(fields, name)
    config = llama.gguf_shape(fields, tensor_shapes, architecture=name)
    experts, width = None, tensor_shapes.get("blk.0.ffn_up.weight", (config.intermediate_size,))[0]
    if fields.integer(f"{name}.expert_count", 0):
        experts = gguf_experts(fields, name, config.intermediate_size)
    if not fields.boolean(f"{name}.rope.scaling.finetuned", True):
        config = replace(config, attention_kinds=(AttentionKind(None, None),))
    return replace(
        gguf_scaled(fields, config),
        intermediate_size=width,
        experts=experts,
        recurrent=gguf_mamba2(fields, name, layers, tensor_shapes, norm_eps=config.rms_norm_eps),
    )


def gguf_names_of_4(config: ModelConfig) -> dict[str, GgufName]:
    """Our tensor names to those of a GGUF."""
    return gguf_names_of_moe(config) | gguf_mamba2_names(config)


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
