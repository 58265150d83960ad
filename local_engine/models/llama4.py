"""Llama 4, text (Meta 2025): Scout and Maverick without their towers, and MobileLLM.

Three layers of four turn and see the tokens of their own section of 8,192; the fourth sees all, turns nothing, and its
queries grow with their position. In all layers, or in some, a token's expert is chosen by a sigmoid, which multiplies
what the expert reads, beside a block for all tokens.
"""

from collections.abc import Mapping
from dataclasses import replace

from local_engine.attention_config import AttentionKind, QueryGrowth
from local_engine.config import MAX_LAYERS, ModelConfig
from local_engine.layer_config import ExpertsConfig, RoutingConfig
from local_engine.loading.fields import FieldReader
from local_engine.loading.plain_source import HfName, HfRows
from local_engine.loading.rope import hf_rope
from local_engine.loading.sliding_layers import every_but_nth, hf_turning_layers
from local_engine.loading.weights import GgufName
from local_engine.models import llama
from local_engine.models.sparse_mlp import SIGMOID, ExpertNames, gguf_expert_names, gguf_experts

__all__ = ["NAMES", "PREFIXES", "TOWERS", "gguf_config", "gguf_names", "hf_config", "hf_places"]

NAMES = ExpertNames("mlp.router", "mlp.experts", shared="mlp.shared_expert")
PREFIXES = {
    "language_model.lm_head.": "lm_head.",
    "language_model.model.": "model.",
    "model.language_model.": "model.",
}
"""What tensors' names begin with in files of the model with its tower, of older transformers and of this, and here."""
TOWERS = ("vision_model.", "multi_modal_projector.", "model.vision_model.", "model.multi_modal_projector.")

_ROUTING = RoutingConfig(scores="sigmoid")
# What absent keys mean to transformers and llama.cpp, which knows by the number of experts which heads have norms.
_SECTION, _GROWTH_LENGTH, _GROWTH_RATE, _INTERVAL, _THETA = 8192, 8192, 0.1, 4, 500000.0
_EXPERTS_WITHOUT_NORMS = 128
_BLOCKS = ("gate_proj", "up_proj", "down_proj")


def hf_config(fields: FieldReader) -> ModelConfig:
    """config.json of Llama4ForCausalLM, or of Llama4ForConditionalGeneration without its tower.

    Raises ModelLoadError.
    """
    fields = fields.table("text_config") or fields
    config = llama.hf_config(fields.with_defaults({"rms_norm_eps": 1e-5, "max_position_embeddings": 131072}))
    layers = range(min(config.num_layers, MAX_LAYERS))
    if (step := fields.integer("interleave_moe_layer_step", 1)) < 1:
        fields.refuse(f"interleave_moe_layer_step is {step}, expected 1 or more")
    sparse = fields.integers("moe_layers")
    experts = ExpertsConfig(
        count=fields.integer("num_local_experts", 16),
        per_token=fields.integer("num_experts_per_tok", 1),
        intermediate_size=config.intermediate_size,
        normalised=False,
        dense_layers=frozenset(layers) - frozenset(sparse) if sparse else _dense(config, step),
        routing=_ROUTING,
        shared_size=config.intermediate_size,
        weighted_inputs=True,
    )
    growth = QueryGrowth(
        fields.integer("floor_scale", _GROWTH_LENGTH), fields.number("attn_scale", _GROWTH_RATE), offset=1
    )
    turning = AttentionKind(
        rope=hf_rope(fields, config.max_context, theta=_THETA),
        unweighted_qk_norm=fields.boolean("use_qk_norm", True),
    )
    still = AttentionKind(None, None, query_growth=growth if fields.switch("attn_temperature_tuning", True) else None)
    return replace(
        _with_kinds(fields, config, turning, still),
        architecture="llama4",
        intermediate_size=fields.integer("intermediate_size_mlp", 16384),
        mlp_bias=False,
        interleaved_heads=True,
        experts=experts,
    )


def _dense(config: ModelConfig, step: int) -> frozenset[int]:
    """The layers without experts: all but the last of each `step`."""
    return frozenset(filter(every_but_nth(step), range(min(config.num_layers, MAX_LAYERS))))


def _with_kinds(fields: FieldReader, config: ModelConfig, turning: AttentionKind, still: AttentionKind) -> ModelConfig:
    """Each layer of its kind, in sections where layer_types says so, or else where it turns."""
    has_rope = hf_turning_layers(fields, config.num_layers, _INTERVAL)
    words = fields.texts("layer_types")
    if words and len(words) != config.num_layers:
        fields.refuse(f"layer_types has {len(words)} items for {config.num_layers} layers")
    if other := set(words) - {"full_attention", "chunked_attention"}:
        fields.refuse(f"layer_types has {min(other)!r}, supported are full_attention and chunked_attention")
    size = fields.optional_integer("attention_chunk_size") if fields.given("attention_chunk_size") else _SECTION

    def kind_of(index: int) -> AttentionKind:
        kind = turning if has_rope(index) else still
        return replace(kind, section=size) if (words[index] != "full_attention" if words else kind.rope) else kind

    return config.with_layers(kind_of)


def hf_places(config: ModelConfig) -> dict[str, HfName | HfRows]:
    """Its own names of feed-forward blocks, stacks of experts, gate before up, and heads that lie pair by pair."""
    places: dict[str, HfName | HfRows] = dict(llama.hf_places(config))
    experts = config.experts
    for index in range(config.num_layers):
        ours, theirs = f"model.layers.{index}.mlp", f"model.layers.{index}.feed_forward"
        for block in _BLOCKS:
            for part in (block, f"shared_expert.{block}"):
                places[f"{ours}.{part}.weight"] = HfRows(f"{theirs}.{part}.weight")
        if experts is None or index in experts.dense_layers:
            continue
        places[f"{ours}.router.weight"] = HfRows(f"{theirs}.router.weight")
        both, width = f"{theirs}.experts.gate_up_proj", experts.intermediate_size
        for expert in range(experts.count):
            name = f"{ours}.experts.{expert}"
            places[f"{name}.gate_proj.weight"] = HfName(both, expert, 0, stop=width)
            places[f"{name}.up_proj.weight"] = HfName(both, expert, width)
            places[f"{name}.down_proj.weight"] = HfName(f"{theirs}.experts.down_proj", expert)
    return places


def gguf_config(fields: FieldReader, tensor_shapes: Mapping[str, tuple[int, ...]]) -> ModelConfig:
    """Metadata of a GGUF whose general.architecture is llama4."""
    window = "llama4.attention.sliding_window"
    config = llama.gguf_shape(fields.without(window), tensor_shapes, architecture="llama4")
    experts = None
    if count := fields.integer("llama4.expert_count", 0):
        experts = gguf_experts(fields, "llama4", config.intermediate_size, gating=SIGMOID, normalised=False)
        step = fields.integer("llama4.interleave_moe_layer_step", 1)
        dense = _dense(config, step)
        experts = replace(
            experts,
            dense_layers=dense,
            routing=_ROUTING,
            shared_size=experts.intermediate_size,
            weighted_inputs=True,
        )
    (kind,) = config.attention_kinds
    turning = replace(kind, unweighted_qk_norm=count != _EXPERTS_WITHOUT_NORMS)
    if fields.given(window) and not fields.integer(window):
        return replace(config, attention_kinds=(turning,), interleaved_heads=True, experts=experts)
    growth = QueryGrowth(
        fields.integer("llama4.attention.temperature_length", _GROWTH_LENGTH),
        fields.number("llama4.attention.temperature_scale", _GROWTH_RATE),
        offset=1,
    )
    turning = replace(turning, section=fields.integer("llama4.attention.chunk_size", _SECTION))
    still = AttentionKind(None, None, query_growth=growth)
    turns = every_but_nth(_INTERVAL)
    config = config.with_layers(lambda index: turning if turns(index) else still)
    return replace(config, interleaved_heads=True, experts=experts)


def gguf_names(config: ModelConfig) -> dict[str, GgufName]:
    """Our tensor names to those of a GGUF."""
    return llama.gguf_names(config) | gguf_expert_names(config, NAMES)
