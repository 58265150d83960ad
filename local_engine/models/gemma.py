"""What Gemma 2 and 3 share (Gemma Team 2024, 2025); `gemma2` and `gemma3` say how files describe them.

The frame of a layer is not Llama's: a norm before and another after attention and feed-forward, norms that multiply by
1 + weight, a tanh GELU, embeddings scaled by sqrt(hidden_size), soft caps on scores and logits.
"""

from local_engine.attention_config import AttentionKind
from local_engine.config import ModelConfig
from local_engine.layer_config import BlockConfig
from local_engine.loading.fields import FieldReader

__all__ = ["block", "gguf_score_scale", "hf_shape"]

# A norm multiplies by 1 + weight. A GGUF stores that sum.
_NORM_OFFSET = 1.0


def block(hidden_size: int) -> BlockConfig:
    """The frame of its layers."""
    return BlockConfig(
        norms="around", norm_offset=_NORM_OFFSET, activation="gelu_tanh", embedding_scale=max(hidden_size, 1) ** 0.5
    )


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
    hidden = fields.integer("hidden_size")
    return ModelConfig(
        architecture=architecture,
        vocab_size=fields.integer("vocab_size"),
        hidden_size=hidden,
        intermediate_size=fields.integer("intermediate_size"),
        num_layers=fields.integer("num_hidden_layers"),
        num_heads=fields.integer("num_attention_heads"),
        num_kv_heads=fields.integer("num_key_value_heads"),
        head_dim=head_dim,
        max_context=fields.integer("max_position_embeddings"),
        rms_norm_eps=fields.number("rms_norm_eps", 1e-6),
        block=block(hidden),
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
