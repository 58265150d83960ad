"""StableLM (Stability AI 2023, 2024): Llama with means and biases in its norms, and heads that turn in part.

Some of its models have attention and feed-forward blocks side by side.
"""

from collections.abc import Mapping
from dataclasses import replace

from local_engine.attention_config import AttentionKind
from local_engine.config import ModelConfig
from local_engine.layer_config import BlockConfig
from local_engine.loading.fields import FieldReader
from local_engine.loading.rope import hf_partial_rope
from local_engine.models import llama

__all__ = ["gguf_config", "hf_config"]

_SHARE = 0.25
_NORMS = "norms of each head with weights of its own are not supported"


def hf_config(fields: FieldReader) -> ModelConfig:
    """config.json of StableLmForCausalLM. Raises ModelLoadError."""
    if fields.boolean("qk_layernorm", False):
        fields.refuse(f"qk_layernorm is true: {_NORMS}")
    config = llama.hf_config(fields.with_defaults({"max_position_embeddings": 4096}))
    return replace(
        config,
        architecture="stablelm",
        rms_norm_eps=fields.number("layer_norm_eps", 1e-5),
        block=_block(parallel=fields.boolean("use_parallel_residual", False)),
        attention_kinds=(AttentionKind(rope=hf_partial_rope(fields, config, share=_SHARE)),),
        qkv_bias=fields.boolean("use_qkv_bias", False),
        output_bias=False,
        mlp_bias=False,
    )


def gguf_config(fields: FieldReader, tensor_shapes: Mapping[str, tuple[int, ...]]) -> ModelConfig:
    """Metadata of a GGUF whose general.architecture is stablelm."""
    if "blk.0.attn_q_norm.weight" in tensor_shapes:
        fields.refuse(f"blk.0.attn_q_norm.weight: {_NORMS}")
    config = llama.gguf_shape(fields, tensor_shapes, architecture="stablelm")
    return replace(config, block=_block(parallel="blk.0.ffn_norm.weight" not in tensor_shapes))


def _block(*, parallel: bool) -> BlockConfig:
    return BlockConfig(norms="parallel" if parallel else "before", norm="layer_bias")
