"""How both file formats describe Llama (Touvron et al. 2023; Llama 3.1 rope scaling), and what most others share.

SmolLM2, Llama 2 and 3 and TinyLlama are this architecture; files beside this one say where theirs differ.
"""

from collections.abc import Mapping
from dataclasses import replace

from local_engine.attention_config import AttentionKind
from local_engine.config import ModelConfig
from local_engine.loading.fields import FieldReader
from local_engine.loading.interleaved import interleaved_heads, turning_rows
from local_engine.loading.plain_source import HfRows
from local_engine.loading.rope import gguf_rope, hf_rope, stretched_context
from local_engine.loading.weights import GgufName
from local_engine.models.self_attention import ROPE_FACTORS

__all__ = ["gguf_config", "gguf_names", "gguf_shape", "hf_config", "hf_places"]


def hf_config(fields: FieldReader) -> ModelConfig:
    """config.json of LlamaForCausalLM. Raises ModelLoadError for a missing key or a rope scaling it does not know."""
    heads = fields.integer("num_attention_heads")
    hidden = fields.integer("hidden_size")
    max_context = fields.integer("max_position_embeddings", 2048)
    rope = hf_rope(fields, max_context)
    attention_bias = fields.boolean("attention_bias", False)
    activation = fields.text("hidden_act", "silu")
    if activation not in ("silu", "swish"):
        fields.refuse(f"hidden_act {activation!r}, expected 'silu'")
    return ModelConfig(
        architecture="llama",
        vocab_size=fields.integer("vocab_size"),
        hidden_size=hidden,
        intermediate_size=fields.integer("intermediate_size"),
        num_layers=fields.integer("num_hidden_layers"),
        num_heads=heads,
        num_kv_heads=fields.integer("num_key_value_heads", heads),
        head_dim=fields.integer("head_dim", hidden // max(heads, 1)),
        max_context=stretched_context(rope, max_context),
        rms_norm_eps=fields.number("rms_norm_eps", 1e-6),
        attention_kinds=(AttentionKind(rope=rope),),
        tie_embeddings=fields.boolean("tie_word_embeddings", False),
        qkv_bias=attention_bias,
        output_bias=attention_bias,
        mlp_bias=fields.boolean("mlp_bias", False),
    )


def gguf_config(
    fields: FieldReader, tensor_shapes: Mapping[str, tuple[int, ...]], *, architecture: str = "llama"
) -> ModelConfig:
    """Metadata of a GGUF, its keys under the architecture's name, with one kind of attention for all layers."""
    config = gguf_shape(fields, tensor_shapes, architecture=architecture)
    if fields.integer(f"{architecture}.expert_count", 0):
        fields.refuse(f"{architecture}.expert_count: mixtures of experts are not this architecture")
    turning = fields.integer(f"{architecture}.rope.dimension_count", config.head_dim)
    if turning != config.head_dim:
        fields.refuse(f"{architecture}.rope.dimension_count {turning}, expected the head size, {config.head_dim}")
    if fields.given(f"{architecture}.attention.sliding_window_pattern"):
        fields.refuse(f"{architecture}.attention.sliding_window_pattern: a window on some layers is not supported")
    return config


def gguf_shape(fields: FieldReader, tensor_shapes: Mapping[str, tuple[int, ...]], *, architecture: str) -> ModelConfig:
    """What the keys of most architectures say. The vocabulary's size is the embedding's."""
    heads = fields.integer(f"{architecture}.attention.head_count")
    hidden = fields.integer(f"{architecture}.embedding_length")
    head_dim = fields.integer(f"{architecture}.attention.key_length", hidden // max(heads, 1))
    turning = fields.integer(f"{architecture}.rope.dimension_count", head_dim)
    if fields.integer(f"{architecture}.attention.value_length", head_dim) != head_dim:
        fields.refuse(f"{architecture}.attention.value_length differs from key_length")
    max_context = fields.integer(f"{architecture}.context_length")
    rope = gguf_rope(fields, architecture, max_context)
    rope = replace(rope, rotary_dim=None if turning == head_dim else turning)
    window = fields.integer(f"{architecture}.attention.sliding_window", 0) or None
    shape = tensor_shapes.get("token_embd.weight", (0,))
    return ModelConfig(
        architecture=architecture,
        vocab_size=shape[0],
        hidden_size=hidden,
        intermediate_size=fields.integer(f"{architecture}.feed_forward_length"),
        num_layers=fields.integer(f"{architecture}.block_count"),
        num_heads=heads,
        num_kv_heads=fields.integer(f"{architecture}.attention.head_count_kv", heads),
        head_dim=head_dim,
        max_context=stretched_context(rope, max_context),
        rms_norm_eps=_gguf_epsilon(fields, architecture),
        attention_kinds=(AttentionKind(window, rope),),
        tie_embeddings="output.weight" not in tensor_shapes,
        qkv_bias="blk.0.attn_q.bias" in tensor_shapes,
        output_bias="blk.0.attn_output.bias" in tensor_shapes,
        mlp_bias="blk.0.ffn_up.bias" in tensor_shapes,
    )


def _gguf_epsilon(fields: FieldReader, architecture: str) -> float:
    """Of the norms: the key tells those with a mean from those without."""
    centred = f"{architecture}.attention.layer_norm_epsilon"
    return fields.number(centred if fields.given(centred) else f"{architecture}.attention.layer_norm_rms_epsilon")


def gguf_names(config: ModelConfig, *, interleaved: bool = True, mlp_norm: str = "ffn_norm") -> dict[str, GgufName]:
    """Our tensor names to those of a GGUF. interleaved: Q and K rows are stored pair by pair, as Llama's are.

    mlp_norm: what it calls the norm of what the feed-forward block reads.
    """
    offset = config.block.norm_offset
    query_heads, key_heads = (config.num_heads, config.num_kv_heads) if interleaved else (0, 0)
    parts = {
        "self_attn.q_proj": GgufName("attn_q", query_heads, turning=turning_rows(config)),
        "self_attn.k_proj": GgufName("attn_k", key_heads, turning=turning_rows(config)),
        "self_attn.v_proj": GgufName("attn_v"),
        "self_attn.o_proj": GgufName("attn_output"),
        "self_attn.qkv_proj": GgufName("attn_qkv"),
        "mlp.gate_proj": GgufName("ffn_gate"),
        "mlp.gate_up_proj" if config.fused_gate_up else "mlp.up_proj": GgufName("ffn_up"),
        "mlp.down_proj": GgufName("ffn_down"),
    }
    if config.qk_norm is not None:
        parts["self_attn.q_norm"] = GgufName("attn_q_norm", added=offset)
        parts["self_attn.k_norm"] = GgufName("attn_k_norm", added=offset)
    norms = ("attn_norm", "post_attention_norm", mlp_norm, "post_ffw_norm")
    for norm, name in zip(config.block.layer_norms, norms, strict=True):
        if norm is not None:
            parts[norm] = GgufName(name, added=offset)
    names = {
        "model.embed_tokens.weight": GgufName("token_embd.weight"),
        "model.norm.weight": GgufName("output_norm.weight", added=offset),
        "model.norm.bias": GgufName("output_norm.bias"),
        "lm_head.weight": GgufName("output.weight"),
        ROPE_FACTORS: GgufName("rope_freqs.weight"),
    }
    for index in range(config.num_layers):
        for ours, theirs in parts.items():
            for kind in ("weight", "bias"):
                added = theirs.added if kind == "weight" else 0.0
                at = theirs._replace(name=f"blk.{index}.{theirs.name}.{kind}", added=added)
                names[f"model.layers.{index}.{ours}.{kind}"] = at
    return names


def hf_places(config: ModelConfig) -> dict[str, HfRows]:
    """Of tensors that transformers keeps otherwise: rows of Q and K that lie pair by pair."""
    names = [
        f"model.layers.{index}.self_attn.{part}.{kind}"
        for index in range(config.num_layers)
        for part in ("q_proj", "k_proj")
        for kind in ("weight", "bias")
    ]
    heads = {name: interleaved_heads(config, name) for name in names}
    return {name: HfRows(name, heads=count, turning=turning_rows(config)) for name, count in heads.items() if count}
