"""The Llama decoder (Touvron et al. 2023; Llama 3.1 rope scaling), and how both file formats describe it.

SmolLM2, Llama 2 and 3 and TinyLlama are this architecture; the files beside this one say where theirs differ.
Q, K and V run as one matrix, gate and up as another.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from local_engine.config import ModelConfig
from local_engine.layers.attention import AttentionPlan, LayerCache
from local_engine.layers.linear import Linear
from local_engine.layers.ops import Ops
from local_engine.layers.rope import inverse_frequencies, rope_tables
from local_engine.loading.fields import FieldReader
from local_engine.loading.rope import gguf_rope, hf_rope, stretched_context
from local_engine.loading.weights import GgufName, Weights

__all__ = ["Llama", "build_llama", "gguf_config", "gguf_names", "hf_config"]

ROPE_FACTORS = "rope_factors"


@dataclass(frozen=True, slots=True)
class _Layer:
    attention_norm: Tensor
    qkv: Linear
    query_norm: Tensor | None
    key_norm: Tensor | None
    output: Linear
    mlp_norm: Tensor
    gate_up: Linear
    down: Linear


class Llama:
    """Implements `Model`. Weights are shared and never written, so any number of engines may hold one."""

    def __init__(self, config: ModelConfig, weights: Weights, ops: Ops) -> None:
        self._config = config
        self._ops = ops
        hidden, heads, kv_heads, head_dim = config.hidden_size, config.num_heads, config.num_kv_heads, config.head_dim
        query_rows, kv_rows = heads * head_dim, kv_heads * head_dim

        def linear(parts: Mapping[str, int], inputs: int, *, bias: bool) -> Linear:
            weight = weights.stacked([f"{name}.weight" for name in parts], list(parts.values()), inputs)
            offsets = weights.joined([f"{name}.bias" for name in parts], list(parts.values())) if bias else None
            return ops.linear(weight, offsets)

        def head_norm(name: str) -> Tensor | None:
            return weights.joined([f"{name}.weight"], [head_dim]) if config.qk_norm else None

        self._embedding = weights.stacked(["model.embed_tokens.weight"], [config.vocab_size], hidden)
        self._layers: list[_Layer] = []
        for index in range(config.num_layers):
            layer, attention, mlp = (f"model.layers.{index}{part}" for part in ("", ".self_attn", ".mlp"))
            qkv = {f"{attention}.q_proj": query_rows, f"{attention}.k_proj": kv_rows, f"{attention}.v_proj": kv_rows}
            weights.skip(f"{attention}.rotary_emb.inv_freq")
            gate_up = {f"{mlp}.gate_proj": config.intermediate_size, f"{mlp}.up_proj": config.intermediate_size}
            self._layers.append(
                _Layer(
                    attention_norm=weights.joined([f"{layer}.input_layernorm.weight"], [hidden]),
                    qkv=linear(qkv, hidden, bias=config.qkv_bias),
                    query_norm=head_norm(f"{attention}.q_norm"),
                    key_norm=head_norm(f"{attention}.k_norm"),
                    output=linear({f"{attention}.o_proj": hidden}, query_rows, bias=config.output_bias),
                    mlp_norm=weights.joined([f"{layer}.post_attention_layernorm.weight"], [hidden]),
                    gate_up=linear(gate_up, hidden, bias=config.mlp_bias),
                    down=linear({f"{mlp}.down_proj": hidden}, config.intermediate_size, bias=config.mlp_bias),
                )
            )
        self._norm = weights.joined(["model.norm.weight"], [hidden])
        if config.tie_embeddings:
            weights.skip("lm_head.weight")
            self._head = ops.linear(self._embedding, None)
        else:
            self._head = ops.linear(weights.stacked(["lm_head.weight"], [config.vocab_size], hidden), None)
        frequencies = inverse_frequencies(config.rope, head_dim)
        if weights.has(ROPE_FACTORS):
            frequencies = frequencies / weights.joined([ROPE_FACTORS], [head_dim // 2]).to("cpu", torch.float32)
        self._frequencies = frequencies.to(self._embedding.device)

    @property
    def config(self) -> ModelConfig:
        return self._config

    def forward(self, token_ids: Tensor, positions: Tensor, caches: list[LayerCache], plan: AttentionPlan) -> Tensor:
        """See `Model.forward`. Residuals are added in place: two fewer copies of [T, hidden] a layer."""
        config, ops = self._config, self._ops
        num_rows, head_dim, eps = token_ids.shape[0], config.head_dim, config.rms_norm_eps
        rotated_heads, width = config.num_heads + config.num_kv_heads, config.intermediate_size
        queries_at, keys_at = slice(config.num_heads), slice(config.num_heads, rotated_heads)
        hidden = F.embedding(token_ids, self._embedding)
        cos, sin = rope_tables(
            positions, self._frequencies, hidden.dtype, attention_factor=config.rope.attention_factor
        )
        for layer, cache in zip(self._layers, caches, strict=True):
            normed = ops.rms_norm(hidden, layer.attention_norm, eps)
            qkv = layer.qkv(normed).view(num_rows, -1, head_dim)
            for heads, weight in ((queries_at, layer.query_norm), (keys_at, layer.key_norm)):
                if weight is not None:
                    qkv[:, heads] = ops.rms_norm(qkv[:, heads], weight, eps)
            rotated = ops.apply_rope(qkv[:, :rotated_heads], cos, sin)
            attended = ops.paged_attention(
                rotated[:, queries_at], rotated[:, keys_at], qkv[:, rotated_heads:], cache, plan
            )
            hidden += layer.output(attended)
            gate_up = layer.gate_up(ops.rms_norm(hidden, layer.mlp_norm, eps))
            hidden += layer.down(F.silu(gate_up[:, :width]).mul_(gate_up[:, width:]))
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        """See `Model.logits`."""
        return self._head(self._ops.rms_norm(hidden, self._norm, self._config.rms_norm_eps)).float()


def build_llama(config: ModelConfig, weights: Weights, ops: Ops) -> Llama:
    """A model with all its weights read. Raises ModelLoadError naming a missing or misshapen tensor."""
    return Llama(config, weights, ops)


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
        rope=rope,
        tie_embeddings=fields.boolean("tie_word_embeddings", False),
        qkv_bias=attention_bias,
        output_bias=attention_bias,
        mlp_bias=fields.boolean("mlp_bias", False),
    )


def gguf_config(
    fields: FieldReader, tensor_shapes: Mapping[str, tuple[int, ...]], *, architecture: str = "llama"
) -> ModelConfig:
    """Metadata of a GGUF, its keys under the architecture's name. The vocabulary's size is the embedding's."""
    heads = fields.integer(f"{architecture}.attention.head_count")
    hidden = fields.integer(f"{architecture}.embedding_length")
    head_dim = fields.integer(f"{architecture}.attention.key_length", hidden // max(heads, 1))
    rotated = fields.integer(f"{architecture}.rope.dimension_count", head_dim)
    if rotated != head_dim:
        fields.refuse(f"{architecture}.rope.dimension_count {rotated}, expected the head size, {head_dim}")
    if fields.integer(f"{architecture}.attention.value_length", head_dim) != head_dim:
        fields.refuse(f"{architecture}.attention.value_length differs from key_length")
    if fields.integer(f"{architecture}.expert_count", 0):
        fields.refuse(f"{architecture}.expert_count: mixtures of experts are not this architecture")
    if fields.given(f"{architecture}.attention.sliding_window_pattern"):
        fields.refuse(f"{architecture}.attention.sliding_window_pattern: a window on some layers is not supported")
    max_context = fields.integer(f"{architecture}.context_length")
    rope = gguf_rope(fields, architecture, max_context)
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
        rms_norm_eps=fields.number(f"{architecture}.attention.layer_norm_rms_epsilon"),
        rope=rope,
        tie_embeddings="output.weight" not in tensor_shapes,
        qkv_bias="blk.0.attn_q.bias" in tensor_shapes,
        output_bias="blk.0.attn_output.bias" in tensor_shapes,
        mlp_bias="blk.0.ffn_gate.bias" in tensor_shapes,
        sliding_window=fields.integer(f"{architecture}.attention.sliding_window", 0) or None,
    )


def gguf_names(config: ModelConfig, *, interleaved: bool = True) -> dict[str, GgufName]:
    """Our tensor names to those of a GGUF. interleaved: Q and K rows are stored pair by pair, as Llama's are."""
    query_heads, key_heads = (config.num_heads, config.num_kv_heads) if interleaved else (0, 0)
    names = {
        "model.embed_tokens.weight": GgufName("token_embd.weight"),
        "model.norm.weight": GgufName("output_norm.weight"),
        "lm_head.weight": GgufName("output.weight"),
        ROPE_FACTORS: GgufName("rope_freqs.weight"),
    }
    parts = {
        "input_layernorm": ("attn_norm", 0),
        "self_attn.q_proj": ("attn_q", query_heads),
        "self_attn.k_proj": ("attn_k", key_heads),
        "self_attn.v_proj": ("attn_v", 0),
        "self_attn.o_proj": ("attn_output", 0),
        "post_attention_layernorm": ("ffn_norm", 0),
        "mlp.gate_proj": ("ffn_gate", 0),
        "mlp.up_proj": ("ffn_up", 0),
        "mlp.down_proj": ("ffn_down", 0),
    }
    if config.qk_norm:
        parts |= {"self_attn.q_norm": ("attn_q_norm", 0), "self_attn.k_norm": ("attn_k_norm", 0)}
    for index in range(config.num_layers):
        for ours, (theirs, heads) in parts.items():
            for kind in ("weight", "bias"):
                names[f"model.layers.{index}.{ours}.{kind}"] = GgufName(f"blk.{index}.{theirs}.{kind}", heads)
    return names
