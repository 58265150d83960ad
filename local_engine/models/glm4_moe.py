"""GLM-4.5 and 4.6, Air too (Zhipu 2025): experts chosen by sigmoids, and blocks beside them for all tokens.

The first layers have none. Heads turn in their first half. What lies behind the last layer guesses further tokens.
"""

from collections.abc import Mapping
from dataclasses import replace

from local_engine.attention_config import AttentionKind
from local_engine.config import ModelConfig
from local_engine.loading.fields import FieldReader
from local_engine.loading.rope import hf_partial_rope
from local_engine.loading.weights import GgufName
from local_engine.models import llama
from local_engine.models.sparse_mlp import SIGMOID, ExpertNames, gguf_expert_names, gguf_experts, hf_grouped_experts

__all__ = ["NAMES", "gguf_config", "gguf_names", "hf_config"]

NAMES = ExpertNames("mlp.gate", "mlp.experts", shared="mlp.shared_experts")
_SHARE = 0.5
# What absent keys mean to transformers.
_EXPERTS = {
    "n_routed_experts": 128,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 1408,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
    "n_group": 1,
    "topk_group": 1,
    "routed_scaling_factor": 1.0,
}


def hf_config(fields: FieldReader) -> ModelConfig:
    """config.json of Glm4MoeForCausalLM. Raises ModelLoadError."""
    config = llama.hf_config(fields)
    return replace(
        config,
        architecture="glm4_moe",
        rms_norm_eps=fields.number("rms_norm_eps", 1e-5),
        attention_kinds=(AttentionKind(rope=hf_partial_rope(fields, config, share=_SHARE)),),
        output_bias=False,
        mlp_bias=False,
        qk_norm="heads" if fields.boolean("use_qk_norm", False) else None,
        predicting_layers=fields.integer("num_nextn_predict_layers", fields.integer("num_mtp_layers", 1)),
        experts=hf_grouped_experts(fields.with_defaults(_EXPERTS)),
    )


def gguf_config(fields: FieldReader, tensor_shapes: Mapping[str, tuple[int, ...]]) -> ModelConfig:
    """Metadata of a GGUF whose general.architecture is glm4moe."""
    config = llama.gguf_shape(fields, tensor_shapes, architecture="glm4moe")
    experts = gguf_experts(fields, "glm4moe", config.intermediate_size, gating=SIGMOID)
    predicting = fields.integer("glm4moe.nextn_predict_layers", 0)
    return replace(
        config,
        num_layers=config.num_layers - predicting,
        predicting_layers=predicting,
        qk_norm="heads" if "blk.0.attn_q_norm.weight" in tensor_shapes else None,
        experts=replace(experts, routing=replace(experts.routing, corrected=True)),
    )


def gguf_names(config: ModelConfig) -> dict[str, GgufName]:
    """Our tensor names to those of a GGUF."""
    names = llama.gguf_names(config, interleaved=False, mlp_norm="post_attention_norm")
    return names | gguf_expert_names(config, NAMES)
