"""The decoder of Gemma 2 and 3 (Gemma Team 2024, 2025); `gemma2` and `gemma3` say how files describe them.

Its block is not Llama's: a norm before and another after attention and feed-forward, norms that multiply by 1 + weight,
a tanh GELU, embeddings scaled by sqrt(hidden_size), soft caps on scores and logits.
"""

from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from local_engine.config import AttentionKind, ModelConfig
from local_engine.layers.attention import AttentionPlans, LayerCache
from local_engine.layers.ops import Ops
from local_engine.loading.fields import FieldReader
from local_engine.loading.weights import GgufName, Weights
from local_engine.models import llama
from local_engine.models.gated_mlp import GatedMlp
from local_engine.models.self_attention import Rotary, SelfAttention

__all__ = ["Gemma", "gguf_names", "gguf_score_scale", "hf_shape"]

# A norm multiplies by 1 + weight. A GGUF stores that sum.
_NORM_OFFSET = 1.0


@dataclass(frozen=True, slots=True)
class _Layer:
    kind: int
    attention_norm: Tensor
    attention: SelfAttention
    attended_norm: Tensor
    mlp_norm: Tensor
    mlp: GatedMlp
    output_norm: Tensor


class Gemma:
    """Implements `Model`. Weights are shared and never written, so any number of engines may hold one."""

    def __init__(self, config: ModelConfig, weights: Weights, ops: Ops) -> None:
        self._config = config
        self._ops = ops
        hidden = config.hidden_size

        def norm(name: str) -> Tensor:
            return weights.joined([f"{name}.weight"], [hidden]) + _NORM_OFFSET

        self._vocabulary = weights.vocabulary(config.vocab_size)
        self._embedding = weights.stacked(["model.embed_tokens.weight"], [self._vocabulary.rows], hidden)
        # Rounded to the model's type, as it was trained.
        self._embedding_scale = float(torch.tensor(hidden**0.5, dtype=self._embedding.dtype))
        self._layers: list[_Layer] = []
        for index in range(config.num_layers):
            layer = f"model.layers.{index}"
            self._layers.append(
                _Layer(
                    kind=config.kind_of(index),
                    attention_norm=norm(f"{layer}.input_layernorm"),
                    attention=SelfAttention(config, index, weights, ops, norm_offset=_NORM_OFFSET),
                    attended_norm=norm(f"{layer}.post_attention_layernorm"),
                    mlp_norm=norm(f"{layer}.pre_feedforward_layernorm"),
                    mlp=GatedMlp(config, index, weights, ops, activation=partial(F.gelu, approximate="tanh")),
                    output_norm=norm(f"{layer}.post_feedforward_layernorm"),
                )
            )
        self._norm = norm("model.norm")
        if config.tie_embeddings:
            weights.skip("lm_head.weight")
            self._head = ops.linear(self._embedding, None)
        else:
            self._head = ops.linear(weights.stacked(["lm_head.weight"], [self._vocabulary.rows], hidden), None)
        self._rotary = Rotary(config, weights, self._embedding.device)

    @property
    def config(self) -> ModelConfig:
        return self._config

    def embed(self, token_ids: Tensor) -> Tensor:
        """See `Model.embed`."""
        return self._vocabulary.embed(token_ids, self._embedding) * self._embedding_scale

    def forward(self, hidden: Tensor, positions: Tensor, caches: list[LayerCache], plans: AttentionPlans) -> Tensor:
        """See `Model.forward`."""
        rms_norm, eps = self._ops.rms_norm, self._config.rms_norm_eps
        steps = self._rotary.steps(positions, hidden.dtype, plans)
        for layer, cache in zip(self._layers, caches, strict=True):
            attended = layer.attention(rms_norm(hidden, layer.attention_norm, eps), cache, steps[layer.kind])
            hidden += rms_norm(attended, layer.attended_norm, eps)
            hidden += rms_norm(layer.mlp(rms_norm(hidden, layer.mlp_norm, eps)), layer.output_norm, eps)
        return hidden

    def normed(self, hidden: Tensor) -> Tensor:
        """See `Model.normed`."""
        return self._ops.rms_norm(hidden, self._norm, self._config.rms_norm_eps)

    def logits(self, hidden: Tensor) -> Tensor:
        """See `Model.logits`."""
        logits = self._vocabulary.joined(self._head(self.normed(hidden))).float()
        cap = self._config.logits_soft_cap
        return logits if cap is None else torch.tanh(logits / cap) * cap


def hf_shape(fields: FieldReader, architecture: str) -> ModelConfig:
    """What config.json says of both versions, soft caps apart, with one kind of attention. Raises ModelLoadError."""
    activation = fields.text("hidden_activation", "gelu_pytorch_tanh")
    if activation != "gelu_pytorch_tanh":
        fields.refuse(f"hidden_activation {activation!r}, expected 'gelu_pytorch_tanh'")
    if fields.boolean("use_bidirectional_attention", False):
        fields.refuse("use_bidirectional_attention is true; attention here is causal")
    bias = fields.boolean("attention_bias", False)
    head_dim = fields.integer("head_dim", 256)
    divisor = fields.number("query_pre_attn_scalar", 256.0)
    if divisor <= 0:
        fields.refuse(f"query_pre_attn_scalar is {divisor}, expected a positive number")
    return ModelConfig(
        architecture=architecture,
        vocab_size=fields.integer("vocab_size"),
        hidden_size=fields.integer("hidden_size"),
        intermediate_size=fields.integer("intermediate_size"),
        num_layers=fields.integer("num_hidden_layers"),
        num_heads=fields.integer("num_attention_heads"),
        num_kv_heads=fields.integer("num_key_value_heads"),
        head_dim=head_dim,
        max_context=fields.integer("max_position_embeddings"),
        rms_norm_eps=fields.number("rms_norm_eps", 1e-6),
        attention_kinds=(AttentionKind(),),
        attention_scale=divisor**-0.5,
        attention_soft_cap=fields.optional_number("attn_logit_softcapping"),
        logits_soft_cap=fields.optional_number("final_logit_softcapping"),
        tie_embeddings=fields.boolean("tie_word_embeddings", True),
        qkv_bias=bias,
        output_bias=bias,
    )


def gguf_score_scale(fields: FieldReader, config: ModelConfig, *, layers_of_27b: int) -> float:
    """What scores are multiplied with. The model of so many layers divides by the root of hidden_size / heads, and
    llama.cpp knows it by that number, since it writes no key.
    """
    divisor = config.hidden_size / config.num_heads if config.num_layers == layers_of_27b else config.head_dim
    return fields.number(f"{config.architecture}.attention.scale", max(divisor, 1) ** -0.5)


def gguf_names(config: ModelConfig) -> dict[str, GgufName]:
    """Our tensor names to those of a GGUF."""
    parts = {
        "input_layernorm": GgufName("attn_norm", added=_NORM_OFFSET),
        "self_attn.q_proj": GgufName("attn_q"),
        "self_attn.k_proj": GgufName("attn_k"),
        "self_attn.v_proj": GgufName("attn_v"),
        "self_attn.q_norm": GgufName("attn_q_norm", added=_NORM_OFFSET),
        "self_attn.k_norm": GgufName("attn_k_norm", added=_NORM_OFFSET),
        "self_attn.o_proj": GgufName("attn_output"),
        "post_attention_layernorm": GgufName("post_attention_norm", added=_NORM_OFFSET),
        "pre_feedforward_layernorm": GgufName("ffn_norm", added=_NORM_OFFSET),
        "mlp.gate_proj": GgufName("ffn_gate"),
        "mlp.up_proj": GgufName("ffn_up"),
        "mlp.down_proj": GgufName("ffn_down"),
        "post_feedforward_layernorm": GgufName("post_ffw_norm", added=_NORM_OFFSET),
    }
    final = {"model.norm.weight": GgufName("output_norm.weight", added=_NORM_OFFSET)}
    return llama.gguf_names_of(config, parts) | final
