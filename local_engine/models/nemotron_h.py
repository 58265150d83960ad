"""Nemotron-H, Nemotron Nano 2 and Nemotron 3 (NVIDIA 2025): layers of one half each, behind one norm.

A layer has Mamba's recurrence, attention without rope, or a feed-forward block with squared ReLUs: dense, or of experts
chosen by sigmoids beside a block for all tokens. Steps of time have no least size, as the models were trained;
transformers gives them one.
"""

from collections.abc import Mapping
from dataclasses import replace

from local_engine.attention_config import AttentionKind
from local_engine.config import ModelConfig
from local_engine.layer_config import BlockConfig, ExpertsConfig
from local_engine.loading.fields import FieldReader
from local_engine.loading.plain_source import HfRows
from local_engine.loading.recurrent_layers import gguf_recurrent_layers, hf_without_step_limits
from local_engine.loading.weights import GgufName
from local_engine.models import llama
from local_engine.models.mamba2_in_gguf import gguf_mamba2, gguf_mamba2_names
from local_engine.models.sparse_mlp import (
    SIGMOID,
    ExpertNames,
    gguf_expert_names,
    gguf_experts,
    hf_grouped_experts,
)
from local_engine.recurrent_config import Mamba2Config

__all__ = [
    "GUESSING",
    "NAMES",
    "PREFIXES",
    "gguf_config",
    "gguf_config_of_moe",
    "gguf_names",
    "hf_config",
    "hf_places",
]

NAMES = ExpertNames(
    "mlp.gate",
    "mlp.experts",
    shared="mlp.shared_experts",
    latent_down="mlp.fc1_latent_proj",
    latent_up="mlp.fc2_latent_proj",
)
PREFIXES = {"backbone.": "model."}
GUESSING = ("mtp.",)
"""What names of tensors begin with that guess further tokens."""

_BLOCK = BlockConfig(activation="relu_squared", gated=False)
# Letters of hybrid_override_pattern, and words of layers_block_type, older ones too.
_KINDS = {
    "M": "mamba",
    "mamba": "mamba",
    "linear_attention": "mamba",
    "*": "attention",
    "attention": "attention",
    "full_attention": "attention",
    "-": "mlp",
    "mlp": "mlp",
    "E": "moe",
    "moe": "moe",
}
# What absent keys mean to transformers.
_DEFAULTS = {
    "head_dim": 128,
    "num_key_value_heads": 8,
    "max_position_embeddings": 4096,
    "intermediate_size": 21504,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "moe_intermediate_size": 7688,
    "num_experts_per_tok": 2,
    "first_k_dense_replace": 0,
    "routed_scaling_factor": 1.0,
    "n_group": 1,
    "topk_group": 1,
}
_MAMBA_PARTS = (
    *(f"{part}.{kind}" for part in ("in_proj", "conv1d", "out_proj") for kind in ("weight", "bias")),
    "norm.weight",
    "dt_bias",
    "A_log",
    "D",
)


def hf_config(fields: FieldReader) -> ModelConfig:
    """config.json of NemotronHForCausalLM. Raises ModelLoadError."""
    kinds = _hf_kinds(fields)
    head_dim = fields.optional_integer("attention_head_dim")  # as older files call it
    defaults = _DEFAULTS if head_dim is None else {**_DEFAULTS, "head_dim": head_dim}
    layers = {"num_hidden_layers": len(kinds)}
    fields = fields.without("num_hidden_layers").with_defaults({**defaults, **layers})
    if (activation := fields.text("mlp_hidden_act", "relu2")) != "relu2":
        fields.refuse(f"mlp_hidden_act {activation!r}, expected 'relu2'")
    config = llama.hf_config(fields)
    of_kind = {kind: frozenset(index for index, each in enumerate(kinds) if each == kind) for kind in _KINDS.values()}
    eps = fields.number("layer_norm_epsilon", 1e-5)
    return replace(
        config,
        architecture="nemotron_h",
        rms_norm_eps=eps,
        block=_BLOCK,
        attention_kinds=(AttentionKind(None, None),),
        qkv_bias=False,
        output_bias=False,
        mlp_layers=of_kind["mlp"] | of_kind["moe"],
        experts=_hf_experts(fields, dense_layers=of_kind["mlp"]) if of_kind["moe"] else None,
        recurrent=_hf_mamba(fields, of_kind["mamba"], eps) if of_kind["mamba"] else None,
    )


def _hf_kinds(fields: FieldReader) -> tuple[str, ...]:
    """What each layer is."""
    words = (
        fields.texts("layers_block_type")
        or fields.texts("layer_types")
        or tuple(fields.text("hybrid_override_pattern"))
    )
    if other := set(words) - _KINDS.keys():
        fields.refuse(f"the pattern of layers has {min(other)!r}, supported are {', '.join(_KINDS)}")
    return tuple(_KINDS[word] for word in words)


def _hf_experts(fields: FieldReader, *, dense_layers: frozenset[int]) -> ExpertsConfig:
    return replace(
        hf_grouped_experts(fields),
        dense_layers=dense_layers,
        shared_size=fields.integer("moe_shared_expert_intermediate_size", 7688),
        latent_size=fields.optional_integer("moe_latent_size") or 0,
    )


def _hf_mamba(fields: FieldReader, layers: frozenset[int], eps: float) -> Mamba2Config:
    hf_without_step_limits(fields)
    return Mamba2Config(
        layers=layers,
        taps=fields.integer("conv_kernel", 4),
        heads=fields.integer("mamba_num_heads", 128),
        head_dim=fields.integer("mamba_head_dim", 64),
        groups=fields.integer("n_groups", 8),
        state_size=fields.integer("ssm_state_size", 128),
        norm_eps=eps,
        bias=fields.boolean("use_bias", False),
        conv_bias=fields.boolean("use_conv_bias", True),
    )


def hf_places(config: ModelConfig) -> dict[str, HfRows]:
    """All of a layer is its `mixer` there."""
    places = {
        "model.embed_tokens.weight": HfRows("model.embeddings.weight"),
        "model.norm.weight": HfRows("model.norm_f.weight"),
    }
    for index in range(config.num_layers):
        layer = f"model.layers.{index}"
        norm, half, parts = _half(config, index)
        places[f"{layer}.{norm}.weight"] = HfRows(f"{layer}.norm.weight")
        places |= {f"{layer}.{half}.{part}": HfRows(f"{layer}.mixer.{part}") for part in parts}
    return places


def _half(config: ModelConfig, index: int) -> tuple[str, str, list[str]]:
    """What we call a layer's norm and the one half that it has, and the half's parts."""
    if config.is_recurrent(index):
        return "input_layernorm", "mamba", list(_MAMBA_PARTS)
    kinds = ("weight", "bias")
    if config.attends(index):
        parts = ("q_proj", "k_proj", "v_proj", "o_proj")
        return "input_layernorm", "self_attn", [f"{part}.{kind}" for part in parts for kind in kinds]
    blocks = ["up_proj", "down_proj"]
    others: list[str] = []
    if config.experts is not None:
        blocks += [f"experts.{expert}.{part}" for expert in range(config.experts.count) for part in blocks]
        blocks += [f"shared_experts.{part}" for part in ("up_proj", "down_proj")]
        blocks += ["gate", "fc1_latent_proj", "fc2_latent_proj"]
        others = ["gate.e_score_correction_bias"]
    return "post_attention_layernorm", "mlp", [*others, *(f"{part}.{kind}" for part in blocks for kind in kinds)]


def gguf_config(
    fields: FieldReader, tensor_shapes: Mapping[str, tuple[int, ...]], *, architecture: str = "nemotron_h"
) -> ModelConfig:
    """Metadata of a GGUF: layers without kv heads have a recurrence, or a feed-forward block where it has a width.

    Raises ModelLoadError.
    """
    name = architecture
    widths = fields.integers(f"{name}.feed_forward_length")
    fields = fields.without(f"{name}.feed_forward_length").with_defaults(
        {f"{name}.feed_forward_length": max(widths, default=0) or 1}
    )
    fields, without_heads = gguf_recurrent_layers(fields, name)
    config = llama.gguf_shape(fields, tensor_shapes, architecture=name)
    mlp_layers = frozenset(index for index, width in enumerate(widths) if width)
    predicting = fields.integer(f"{name}.nextn_predict_layers", 0)
    layers = frozenset(range(min(config.num_layers - predicting, len(widths))))
    return replace(
        config,
        num_layers=config.num_layers - predicting,
        predicting_layers=predicting,
        block=_BLOCK,
        attention_kinds=(AttentionKind(None, None),),
        mlp_bias=any(shape.endswith("ffn_up.bias") for shape in tensor_shapes),
        mlp_layers=mlp_layers & layers,
        recurrent=gguf_mamba2(
            fields, name, (without_heads - mlp_layers) & layers, tensor_shapes, norm_eps=config.rms_norm_eps
        ),
    )


def gguf_config_of_moe(fields: FieldReader, tensor_shapes: Mapping[str, tuple[int, ...]]) -> ModelConfig:
    """Metadata of a GGUF whose general.architecture is nemotron_h_moe."""
    name = "nemotron_h_moe"
    config = gguf_config(fields, tensor_shapes, architecture=name)
    experts = gguf_experts(fields, name, config.intermediate_size, gating=SIGMOID)
    experts = replace(
        experts,
        routing=replace(experts.routing, corrected=True),
        latent_size=fields.integer(f"{name}.moe_latent_size", 0),
    )
    return replace(config, experts=experts)


def gguf_names(config: ModelConfig) -> dict[str, GgufName]:
    """Our tensor names to those of a GGUF."""
    names = llama.gguf_names(config) | gguf_mamba2_names(config) | gguf_expert_names(config, NAMES)
    for index in config.mlp_layers:
        norm = names.pop(f"model.layers.{index}.input_layernorm.weight")
        names[f"model.layers.{index}.post_attention_layernorm.weight"] = norm
    return names
