"""Qwen3-Next and Qwen3.5, dense and with experts (Qwen Team 2025, 2026): gated delta rules, and gated attention.

Every fourth layer has attention, whose heads turn in their first quarter. Norms multiply by 1 + weight. Qwen3.5 has the
positions and the tower of Qwen3-VL, of which the last layer's patches alone are used.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from local_engine.attention_config import AttentionKind
from local_engine.config import MAX_LAYERS, ModelConfig
from local_engine.layer_config import BlockConfig, ExpertsConfig
from local_engine.loading.fields import FieldReader
from local_engine.loading.plain_source import HfName, HfRows
from local_engine.loading.rope import hf_rope_of
from local_engine.loading.weights import GgufName
from local_engine.models import llama
from local_engine.models.qwen2_moe import NAMES
from local_engine.models.qwen2_vl import with_axes
from local_engine.models.qwen3_moe import hf_dense_layers
from local_engine.models.qwen3_vl import hf_vision
from local_engine.models.sparse_mlp import gguf_expert_names, gguf_experts
from local_engine.recurrent_config import GatedDeltaConfig

__all__ = [
    "LEFT_OUT",
    "PREFIXES",
    "gguf_config",
    "gguf_names",
    "hf_config",
    "hf_config_of_moe",
    "hf_places",
    "with_tower",
]

PREFIXES = {"model.language_model.": "model."}
"""What tensors' names begin with in files of a text model that was cut from one with a tower, and here."""
LEFT_OUT = ("mtp.", "model.visual.")
"""Of such files, and what guesses further tokens."""

_SHARE, _INTERVAL, _SECTIONS = 0.25, 4, (11, 11, 10)
# What becomes of a GGUF's names in a layer without attention.
_GGUF_PARTS = {
    "in_proj_qkvz.weight": "ssm_in.weight",
    "in_proj_qkv.weight": "attn_qkv.weight",
    "in_proj_z.weight": "attn_gate.weight",
    "in_proj_ba.weight": "ssm_ba.weight",
    "in_proj_b.weight": "ssm_beta.weight",
    "in_proj_a.weight": "ssm_alpha.weight",
    "conv1d.weight": "ssm_conv1d.weight",
    "dt_bias": "ssm_dt.bias",
    "A": "ssm_a",
    "norm.weight": "ssm_norm.weight",
    "out_proj.weight": "ssm_out.weight",
}


def hf_config(fields: FieldReader) -> ModelConfig:
    """config.json of a dense one, with a table for its text or without. Raises ModelLoadError."""
    text = fields.table("text_config") or fields
    tied = text.boolean("tie_word_embeddings", fields.boolean("tie_word_embeddings", False))
    # What transformers takes for absent keys. The widths of the dense block are nowhere in a model of experts.
    text = text.with_defaults({"intermediate_size": 5632, "rms_norm_eps": 1e-6, "head_dim": 256})
    scaling = text.table("rope_parameters") or text.table("rope_scaling")
    share = text.number("partial_rotary_factor", _SHARE)
    if scaling is not None:
        share = scaling.number("partial_rotary_factor", share)
    if not 0 < share <= 1:
        fields.refuse(f"partial_rotary_factor is {share}, expected more than 0 and at most 1")
    config = llama.hf_config(text.without("rope_parameters", "rope_scaling"))
    rope = hf_rope_of(fields, scaling, config.max_context, theta=text.number("rope_theta", 10000.0))
    return replace(
        config,
        architecture="qwen3_next",
        block=BlockConfig(norm_offset=1.0),
        attention_kinds=(AttentionKind(rope=replace(rope, rotary_dim=int(config.head_dim * share))),),
        tie_embeddings=tied,
        mlp_bias=False,
        qk_norm="heads",
        attention_gate=True,
        recurrent=GatedDeltaConfig(
            layers=_hf_recurrent_layers(text, config.num_layers),
            taps=text.integer("linear_conv_kernel_dim", 4),
            key_heads=text.integer("linear_num_key_heads", 16),
            value_heads=text.integer("linear_num_value_heads", 32),
            key_dim=text.integer("linear_key_head_dim", 128),
            value_dim=text.integer("linear_value_head_dim", 128),
        ),
    )


def hf_config_of_moe(fields: FieldReader) -> ModelConfig:
    """config.json of one with experts. Raises ModelLoadError."""
    config = hf_config(fields)
    text = fields.table("text_config") or fields
    experts = ExpertsConfig(
        count=text.integer("num_experts", 512),
        per_token=text.integer("num_experts_per_tok", 10),
        intermediate_size=text.integer("moe_intermediate_size", 512),
        normalised=text.boolean("norm_topk_prob", True),
        dense_layers=hf_dense_layers(text, config.num_layers),
        shared_size=text.integer("shared_expert_intermediate_size", 512),
        shared_gate=True,
    )
    return replace(config, experts=experts)


def with_tower(read: Callable[[FieldReader], ModelConfig]) -> Callable[[FieldReader], ModelConfig]:
    """Of config.json whose text is read so, with the tower that it has beside it."""

    def read_both(fields: FieldReader) -> ModelConfig:
        config = with_axes(read(fields), _SECTIONS, interleaved=True)
        return replace(config, vision=hf_vision(fields, stacked=()))

    return read_both


def _hf_recurrent_layers(fields: FieldReader, num_layers: int) -> frozenset[int]:
    kinds = fields.texts("layer_types")
    if kinds and len(kinds) != num_layers:
        fields.refuse(f"layer_types has {len(kinds)} items for {num_layers} layers")
    if other := set(kinds) - {"linear_attention", "full_attention"}:
        fields.refuse(f"layer_types has {min(other)!r}, supported are linear_attention and full_attention")
    if not kinds:
        return _but_every_nth(fields, "full_attention_interval", num_layers)
    return frozenset(index for index, kind in enumerate(kinds) if kind == "linear_attention")


def _but_every_nth(fields: FieldReader, name: str, num_layers: int) -> frozenset[int]:
    interval = fields.integer(name, _INTERVAL)
    if interval < 1:
        fields.refuse(f"{name} is {interval}, expected a positive number")
    return frozenset(index for index in range(min(num_layers, MAX_LAYERS)) if (index + 1) % interval)


def hf_places(config: ModelConfig) -> dict[str, HfName | HfRows]:
    """Experts in stacks, gate above up, where a file has them so; and what it groups by key heads."""
    places: dict[str, HfName | HfRows] = {
        name: HfRows(name, parts=parts)
        for index in filter(config.is_recurrent, range(config.num_layers))
        for name, parts in _grouped_parts(config, index).items()
    }
    if config.experts is None:
        return places
    width = config.experts.intermediate_size
    for layer in range(config.num_layers):
        prefix = f"model.layers.{layer}.mlp.experts"
        for index in range(config.experts.count):
            places[f"{prefix}.{index}.gate_proj.weight"] = HfName(
                f"{prefix}.gate_up_proj", index, 0, stop=width, rows_first=True
            )
            places[f"{prefix}.{index}.up_proj.weight"] = HfName(f"{prefix}.gate_up_proj", index, width, rows_first=True)
            places[f"{prefix}.{index}.down_proj.weight"] = HfName(f"{prefix}.down_proj", index, rows_first=True)
    return places


def _grouped_parts(config: ModelConfig, index: int) -> dict[str, tuple[int, ...]]:
    """Matrices in which files may have rows of all inputs of one key head, then of the next, and rows of each input."""
    delta = config.recurrent
    if not isinstance(delta, GatedDeltaConfig):
        return {}
    name, share = f"model.layers.{index}.linear_attn", max(delta.value_heads // max(delta.key_heads, 1), 1)
    values = share * delta.value_dim
    return {
        f"{name}.in_proj_qkvz.weight": (delta.key_dim, delta.key_dim, values, values),
        f"{name}.in_proj_ba.weight": (share, share),
    }


def gguf_config(fields: FieldReader, tensor_shapes: Mapping[str, tuple[int, ...]]) -> ModelConfig:
    """Metadata of a GGUF whose general.architecture is qwen3next, qwen35 or qwen35moe."""
    name = fields.text("general.architecture")
    sizes = fields.with_defaults({f"{name}.feed_forward_length": 5632})
    config = with_axes(llama.gguf_shape(sizes, tensor_shapes, architecture=name), (), interleaved=True)
    predicting = fields.integer(f"{name}.nextn_predict_layers", 0)
    layers = config.num_layers - predicting
    heads = fields.integer(f"{name}.ssm.time_step_rank")
    experts = None
    if fields.integer(f"{name}.expert_count", 0):
        experts = gguf_experts(fields, name, config.intermediate_size)
        shared = experts.shared_size or experts.intermediate_size
        experts = replace(experts, shared_size=shared, shared_gate=True)
    return replace(
        config,
        num_layers=layers,
        predicting_layers=predicting,
        block=BlockConfig(norm_offset=1.0),
        qk_norm="heads",
        attention_gate=True,
        experts=experts,
        recurrent=GatedDeltaConfig(
            layers=_but_every_nth(fields, f"{name}.full_attention_interval", layers),
            taps=fields.integer(f"{name}.ssm.conv_kernel"),
            key_heads=fields.integer(f"{name}.ssm.group_count"),
            value_heads=heads,
            key_dim=fields.integer(f"{name}.ssm.state_size"),
            value_dim=fields.integer(f"{name}.ssm.inner_size") // max(heads, 1),
            tiled=name != "qwen3next",
        ),
    )


def gguf_names(config: ModelConfig) -> dict[str, GgufName]:
    """Our tensor names to those of a GGUF."""
    names = llama.gguf_names(config, interleaved=False, mlp_norm="post_attention_norm")
    names |= gguf_expert_names(config, NAMES)
    for index in filter(config.is_recurrent, range(config.num_layers)):
        names.pop(f"model.layers.{index}.self_attn.qkv_proj.weight")
        grouped = _grouped_parts(config, index)
        for part, theirs in _GGUF_PARTS.items():
            ours = f"model.layers.{index}.linear_attn.{part}"
            names[ours] = GgufName(f"blk.{index}.{theirs}", parts=grouped.get(ours, ()))
    return names
