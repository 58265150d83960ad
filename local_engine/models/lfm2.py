"""LFM2, dense and with experts (Liquid AI 2025): layers of short convolutions, and some with attention."""

from collections.abc import Mapping
from dataclasses import replace

from local_engine.attention_config import AttentionKind
from local_engine.config import MAX_LAYERS, ModelConfig
from local_engine.layer_config import ExpertsConfig, RoutingConfig
from local_engine.loading.fields import FieldReader
from local_engine.loading.plain_source import HfName, HfRows
from local_engine.loading.recurrent_layers import gguf_recurrent_layers
from local_engine.loading.rope import hf_rope
from local_engine.loading.weights import GgufName
from local_engine.models import llama
from local_engine.models.sparse_mlp import SIGMOID, ExpertNames, gguf_expert_names, gguf_experts, leading_layers
from local_engine.recurrent_config import ShortConvConfig

__all__ = [
    "NAMES",
    "gguf_config",
    "gguf_config_of_moe",
    "gguf_names",
    "hf_config",
    "hf_config_of_moe",
    "hf_places",
]

NAMES = ExpertNames("mlp.gate", "mlp.experts")

# What its own files call a layer's parts, and the matrices of feed-forward blocks and of experts.
_HF_PARTS = {
    "self_attn.o_proj": "self_attn.out_proj",
    "self_attn.q_norm": "self_attn.q_layernorm",
    "self_attn.k_norm": "self_attn.k_layernorm",
    "input_layernorm": "operator_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate": "feed_forward.gate",
}
_HF_MATRICES = {"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}


def hf_config(fields: FieldReader) -> ModelConfig:
    """config.json of Lfm2ForCausalLM. Raises ModelLoadError."""
    config = _hf_shape(fields)
    # Older files call the width so.
    width = fields.integer("block_ff_dim", fields.integer("intermediate_size", 12288))
    if fields.boolean("block_auto_adjust_ff_dim", True):
        multiple, factor = fields.integer("block_multiple_of", 256), fields.number("block_ffn_dim_multiplier", 1.0)
        if multiple < 1 or not 0 < factor < 1 << 10:
            fields.refuse(
                f"block_multiple_of is {multiple}, block_ffn_dim_multiplier {factor}: expected positive numbers"
            )
        width = int(factor * (2 * width // 3))
        width = -(-width // multiple) * multiple
    return replace(config, intermediate_size=width)


def hf_config_of_moe(fields: FieldReader) -> ModelConfig:
    """config.json of Lfm2MoeForCausalLM. Raises ModelLoadError."""
    experts = ExpertsConfig(
        count=fields.integer("num_experts", 32),
        per_token=fields.integer("num_experts_per_tok", 4),
        intermediate_size=fields.integer("moe_intermediate_size", 1792),
        normalised=fields.boolean("norm_topk_prob", True),
        dense_layers=leading_layers(fields.integer("num_dense_layers", 2)),
        routing=RoutingConfig(
            scores="sigmoid",
            corrected=fields.boolean("use_expert_bias", True),
            scale=fields.number("routed_scaling_factor", 1.0),
        ),
    )
    return replace(_hf_shape(fields), architecture="lfm2moe", experts=experts)


def _hf_shape(fields: FieldReader) -> ModelConfig:
    defaults = {"num_key_value_heads": 8, "max_position_embeddings": 128_000, "intermediate_size": 12288}
    config = llama.hf_config(fields.with_defaults(defaults))
    kinds, attending = fields.texts("layer_types"), fields.integers("full_attn_idxs")
    if kinds and len(kinds) != config.num_layers:
        fields.refuse(f"layer_types has {len(kinds)} items for {config.num_layers} layers")
    if other := set(kinds) - {"conv", "full_attention"}:
        fields.refuse(f"layer_types has {min(other)!r}, supported are conv and full_attention")
    layers = range(min(config.num_layers, MAX_LAYERS))
    convolving = [kinds[index] == "conv" if kinds else index not in attending for index in layers]
    return replace(
        config,
        architecture="lfm2",
        rms_norm_eps=fields.number("norm_eps", 1e-5),
        attention_kinds=(AttentionKind(rope=hf_rope(fields, config.max_context, theta=1e6)),),
        tie_embeddings=fields.boolean("tie_embedding", fields.boolean("tie_word_embeddings", True)),
        qk_norm="heads",
        recurrent=ShortConvConfig(
            layers=frozenset(index for index in layers if convolving[index]),
            channels=config.hidden_size,
            taps=fields.integer("conv_L_cache", 3),
            bias=fields.boolean("conv_bias", False),
        ),
    )


def hf_places(config: ModelConfig) -> dict[str, HfName | HfRows]:
    """Its own names of what others call otherwise."""
    places: dict[str, HfName | HfRows] = {"model.norm.weight": HfRows("model.embedding_norm.weight")}
    blocks = [("mlp", "feed_forward")]
    if config.experts is not None:
        names = [f"experts.{index}" for index in range(config.experts.count)]
        blocks += [(f"mlp.{name}", f"feed_forward.{name}") for name in names]
    for index in range(config.num_layers):
        prefix = f"model.layers.{index}"
        places[f"{prefix}.mlp.gate.e_score_correction_bias"] = HfRows(f"{prefix}.feed_forward.expert_bias")
        for ours, theirs in _HF_PARTS.items():
            places[f"{prefix}.{ours}.weight"] = HfRows(f"{prefix}.{theirs}.weight")
        for block, theirs in blocks:
            for ours, matrix in _HF_MATRICES.items():
                places[f"{prefix}.{block}.{ours}.weight"] = HfRows(f"{prefix}.{theirs}.{matrix}.weight")
    return places


def gguf_config(
    fields: FieldReader, tensor_shapes: Mapping[str, tuple[int, ...]], *, architecture: str = "lfm2"
) -> ModelConfig:
    """Metadata of a GGUF: layers without kv heads have a convolution."""
    fields, layers = gguf_recurrent_layers(fields, architecture)
    config = llama.gguf_shape(fields, tensor_shapes, architecture=architecture)
    return replace(
        config,
        qk_norm="heads",
        recurrent=ShortConvConfig(
            layers=layers,
            channels=config.hidden_size,
            taps=fields.integer(f"{architecture}.shortconv.l_cache"),
            bias=any(shape.endswith("shortconv.conv.bias") for shape in tensor_shapes),
        ),
    )


def gguf_config_of_moe(fields: FieldReader, tensor_shapes: Mapping[str, tuple[int, ...]]) -> ModelConfig:
    """Metadata of a GGUF whose general.architecture is lfm2moe."""
    config = gguf_config(fields, tensor_shapes, architecture="lfm2moe")
    experts = gguf_experts(fields, "lfm2moe", config.intermediate_size, gating=SIGMOID)
    corrected = any(name.endswith("exp_probs_b.bias") for name in tensor_shapes)
    return replace(config, experts=replace(experts, routing=replace(experts.routing, corrected=corrected)))


def gguf_names(config: ModelConfig) -> dict[str, GgufName]:
    """Our tensor names to those of a GGUF."""
    names = llama.gguf_names(config, interleaved=False)
    names["model.norm.weight"] = GgufName("token_embd_norm.weight")
    for index in range(config.num_layers):
        for part in ("in_proj", "conv", "out_proj"):
            for kind in ("weight", "bias"):
                ours = f"model.layers.{index}.conv.{part}.{kind}"
                names[ours] = GgufName(f"blk.{index}.shortconv.{part}.{kind}")
    return names | gguf_expert_names(config, NAMES)
