"""Gemma 4, text (Gemma Team 2026): layers of a window and such that see all, each kind with heads of its own.

The small models give each layer an input of its own, and their upper layers read the keys and values of lower ones.
The sparse one has experts beside the dense block of every layer; both read the residual, each by a norm of its own.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from torch import Tensor

from local_engine.attention_config import AttentionKind, RopeConfig
from local_engine.config import MAX_LAYERS, ModelConfig
from local_engine.layer_config import BlockConfig, ExpertsConfig
from local_engine.layers.ops import Ops
from local_engine.loading.fields import FieldReader
from local_engine.loading.plain_source import HfName
from local_engine.loading.rope import hf_rope_of
from local_engine.loading.sliding_layers import every_but_nth, gguf_sliding_layers, hf_sliding_layers
from local_engine.loading.weights import GgufName, Weights
from local_engine.models import gemma, llama
from local_engine.models.activations import ACTIVATIONS
from local_engine.models.decoder import Mlp, dense_mlp
from local_engine.models.norm import read_norm
from local_engine.models.sparse_mlp import ExpertNames, gguf_expert_names, gguf_experts, sparse_experts

__all__ = ["PREFIXES", "TOWERS", "build_mlp", "gguf_config", "gguf_names", "hf_config", "hf_places"]

PREFIXES = {"model.language_model.": "model."}
"""What tensors' names begin with in files of the model with its towers, and here."""
TOWERS = ("model.vision_tower.", "model.embed_vision.", "model.audio_tower.", "model.embed_audio.")

NAMES = ExpertNames("router.proj", "experts", gate="gate_up_proj", up="", scales="router.per_expert_scale")

# What an absent key means to transformers.
_WINDOW, _PERIOD, _THETA, _LOCAL_THETA, _GLOBAL_HEAD_DIM, _PER_LAYER = 512, 6, 1_000_000.0, 10_000.0, 512, 256
_TEXT = {
    "vocab_size": 262_144,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 30,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "max_position_embeddings": 131_072,
}
_FULL_ROPE = RopeConfig(theta=_THETA, scaling="proportional", turning_share=0.25)


def hf_config(fields: FieldReader) -> ModelConfig:
    """config.json of Gemma4ForCausalLM, or of Gemma4ForConditionalGeneration without its towers.

    Raises ModelLoadError.
    """
    fields = (fields.table("text_config") or fields).with_defaults(_TEXT)
    if fields.given("use_bidirectional_attention") and fields.text("use_bidirectional_attention", "vision") == "all":
        fields.refuse("use_bidirectional_attention is 'all'; attention here is causal")
    config = gemma.hf_shape(fields.without("use_bidirectional_attention"), "gemma4")
    size = _PER_LAYER
    if fields.given("hidden_size_per_layer_input"):
        size = fields.optional_integer("hidden_size_per_layer_input") or 0
    if size and fields.integer("vocab_size_per_layer_input", config.vocab_size) != config.vocab_size:
        fields.refuse("vocab_size_per_layer_input differs from vocab_size")
    config = _framed(config, size, fields.optional_number("final_logit_softcapping"))
    if fields.boolean("enable_moe_block", False):
        experts = ExpertsConfig(
            count=fields.integer("num_experts"),
            per_token=fields.integer("top_k_experts"),
            intermediate_size=fields.integer("moe_intermediate_size"),
        )
        config = _with_experts(config, experts)
    borrowing = fields.integer("num_kv_shared_layers", 0)
    if borrowing and fields.boolean("use_double_wide_mlp", False):
        config = replace(config, borrowing_width=2 * config.intermediate_size)
    return _hf_layers(fields, replace(config, borrowing_layers=borrowing))


def _hf_layers(fields: FieldReader, config: ModelConfig) -> ModelConfig:
    """With the kinds of its layers."""
    window = fields.integer("sliding_window", _WINDOW)
    sliding = hf_sliding_layers(fields, config.num_layers, window, every_but_nth(_PERIOD))
    ropes = fields.table("rope_parameters")
    full_rope, local_rope = _FULL_ROPE, RopeConfig(theta=_LOCAL_THETA)
    if ropes is not None:
        full_rope = hf_rope_of(fields, ropes.table("full_attention"), config.max_context, theta=_THETA)
        local_rope = hf_rope_of(fields, ropes.table("sliding_attention"), config.max_context, theta=_LOCAL_THETA)
    same = fields.boolean("attention_k_eq_v", False)
    # transformers 5 writes what is a layer's own layer by layer; published files have keys for all that see all.
    layers = fields.tables("per_layer_config")
    head_dim = config.head_dim if layers else fields.integer("global_head_dim", _GLOBAL_HEAD_DIM)
    kv_heads = fields.optional_integer("num_global_key_value_heads") if same else None

    def kind(index: int) -> AttentionKind:
        own = layers.get(str(index))
        if sliding(index) and index + 1 < config.num_layers:
            dim = config.head_dim if own is None else own.integer("head_dim", config.head_dim)
            return AttentionKind(window, replace(local_rope, rotary_dim=dim), dim)
        dim, count = head_dim, kv_heads or config.num_kv_heads
        if own is not None:
            dim, count = own.integer("head_dim", dim), own.integer("num_key_value_heads", count)
        return AttentionKind(None, replace(full_rope, rotary_dim=dim), dim, count, same)

    return config.with_layers(kind)


def gguf_config(fields: FieldReader, tensor_shapes: Mapping[str, tuple[int, ...]]) -> ModelConfig:
    """Metadata of a GGUF whose general.architecture is gemma4."""
    counts, widths = "gemma4.attention.head_count_kv", "gemma4.feed_forward_length"
    kv_heads, width = fields.integers(counts) or (0,), fields.integers(widths) or (0,)
    one = {counts: kv_heads[0], widths: width[0]}
    config = llama.gguf_shape(fields.without(counts, widths).with_defaults(one), tensor_shapes, architecture="gemma4")
    for name, found in ((counts, kv_heads), (widths, width)):
        if len(found) not in (1, config.num_layers):
            fields.refuse(f"{name} has {len(found)} items for {config.num_layers} layers")
    borrowing = fields.integer("gemma4.attention.shared_kv_layers", 0)
    own = max(config.num_layers - borrowing, 0)
    if len(set(width[:own])) > 1 or len(set(width[own:])) > 1:
        fields.refuse(f"{widths} differs within the layers that have keys and values, or within the others")
    sliding = gguf_sliding_layers(fields, "gemma4", config.num_layers, every_but_nth(_PERIOD))
    (shape,) = config.attention_kinds
    full_rope = replace(shape.rope or RopeConfig(), scaling="proportional", rotary_dim=config.head_dim)
    local_dim = fields.integer("gemma4.attention.key_length_swa", config.head_dim)
    local_rope = RopeConfig(fields.number("gemma4.rope.freq_base_swa", _LOCAL_THETA), rotary_dim=local_dim)
    first = next((index for index in range(min(config.num_layers, MAX_LAYERS)) if not sliding(index)), 0)
    same = f"blk.{first}.attn_v.weight" not in tensor_shapes

    def kind(index: int) -> AttentionKind:
        count = kv_heads[index % len(kv_heads)]
        if sliding(index):
            return AttentionKind(shape.window, local_rope, local_dim, count)
        return AttentionKind(None, full_rope, config.head_dim, count, same)

    size = fields.integer("gemma4.embedding_length_per_layer_input", 0)
    framed = _framed(config, size, fields.optional_number("gemma4.final_logit_softcapping"))
    if fields.integer("gemma4.expert_count", 0):
        framed = _with_experts(framed, gguf_experts(fields, "gemma4", config.intermediate_size))
    wide = width[-1] if width[-1] != width[0] else None
    return replace(framed, borrowing_layers=borrowing, borrowing_width=wide).with_layers(kind)


def _framed(config: ModelConfig, per_layer_size: int, logits_soft_cap: float | None) -> ModelConfig:
    return replace(
        config,
        block=BlockConfig(
            norms="around",
            activation="gelu_tanh",
            embedding_scale=max(config.hidden_size, 1) ** 0.5,
            layer_scales=True,
            per_layer_size=per_layer_size,
        ),
        attention_scale=1.0,
        attention_soft_cap=None,
        logits_soft_cap=logits_soft_cap,
        qk_norm="heads",
        value_norm=True,
    )


def _with_experts(config: ModelConfig, experts: ExpertsConfig) -> ModelConfig:
    return replace(config, experts=experts, block=replace(config.block, norms="around_attention"))


def gguf_names(config: ModelConfig) -> dict[str, GgufName]:
    """Our tensor names to those of a GGUF."""
    names = llama.gguf_names(config, interleaved=False) | gguf_expert_names(config, NAMES)
    names["model.embed_tokens_per_layer.weight"] = GgufName("per_layer_token_embd.weight")
    names["model.per_layer_model_projection.weight"] = GgufName("per_layer_model_proj.weight")
    names["model.per_layer_projection_norm.weight"] = GgufName("per_layer_proj_norm.weight")
    parts = {
        "pre_feedforward_layernorm.weight": "ffn_norm.weight",
        "pre_feedforward_layernorm_2.weight": "pre_ffw_norm_2.weight",
        "post_feedforward_layernorm_1.weight": "post_ffw_norm_1.weight",
        "post_feedforward_layernorm_2.weight": "post_ffw_norm_2.weight",
        "router.scale": "ffn_gate_inp.scale",
        NAMES.scales: "ffn_down_exps.scale",
        "per_layer_input_gate.weight": "inp_gate.weight",
        "per_layer_projection.weight": "proj.weight",
        "post_per_layer_input_norm.weight": "post_norm.weight",
        "layer_scalar": "layer_output_scale.weight",
    }
    for index in range(config.num_layers):
        for ours, theirs in parts.items():
            names[f"model.layers.{index}.{ours}"] = GgufName(f"blk.{index}.{theirs}")
    return names


def hf_places(config: ModelConfig) -> dict[str, HfName]:
    """Experts in stacks, [experts, out, in]."""
    places: dict[str, HfName] = {}
    for layer in range(config.num_layers if config.experts is not None else 0):
        prefix = NAMES.of_layer(layer).experts
        for index in range(config.experts.count if config.experts is not None else 0):
            for part in (NAMES.gate, NAMES.down):
                places[f"{prefix}.{index}.{part}.weight"] = HfName(f"{prefix}.{part}", index, rows_first=True)
    return places


def build_mlp(config: ModelConfig, index: int, weights: Weights, ops: Ops) -> Mlp:
    """The feed-forward block of layer `index`, with experts beside it where the model has some."""
    build = dense_mlp if config.experts is None else _DenseAndSparse
    return build(config, index, weights, ops)


class _DenseAndSparse:
    """The dense block of layer `index` and its experts: the residual [T, hidden_size] to the sum of what both make."""

    def __init__(self, config: ModelConfig, index: int, weights: Weights, ops: Ops) -> None:
        assert config.experts is not None
        prefix, hidden = f"model.layers.{index}", config.hidden_size
        norm = partial(read_norm, config, width=hidden, weights=weights, ops=ops)
        self._dense_input = norm(name=f"{prefix}.pre_feedforward_layernorm")
        self._dense: Mlp = dense_mlp(config, index, weights, ops)
        self._dense_output = norm(name=f"{prefix}.post_feedforward_layernorm_1")
        self._experts_input = norm(name=f"{prefix}.pre_feedforward_layernorm_2")
        activation = ACTIVATIONS[config.block.activation]
        self._experts = sparse_experts(
            weights,
            ops,
            NAMES.of_layer(index),
            config,
            config.experts,
            activation=lambda gate, up: activation(gate).mul_(up),
        )
        self._experts_output = norm(name=f"{prefix}.post_feedforward_layernorm_2")
        # The router sees the residual by a norm of its own.
        scale = weights.joined([f"{prefix}.router.scale"], [hidden]) * hidden**-0.5
        self._judged = partial(ops.rms_norm, weight=scale, eps=config.rms_norm_eps)

    def __call__(self, x: Tensor) -> Tensor:
        dense = self._dense_output(self._dense(self._dense_input(x)))
        return dense.add_(self._experts_output(self._experts(self._experts_input(x), self._judged(x))))
