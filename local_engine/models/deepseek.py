"""DeepSeek V2 and V3, R1 (DeepSeek-AI 2024) and others of their shape: Kimi K2, GLM-4.7 Flash.

Latent attention, experts in groups beside a shared block, and a stretched rope that makes scores larger too.
"""

from collections.abc import Mapping
from dataclasses import replace

from local_engine.attention_config import AttentionKind, RopeConfig
from local_engine.config import ModelConfig
from local_engine.layer_config import ExpertsConfig, LatentConfig, RoutingConfig
from local_engine.loading.fields import FieldReader
from local_engine.loading.rope import yarn_temperature
from local_engine.loading.weights import GgufName
from local_engine.models import llama
from local_engine.models.sparse_mlp import (
    SIGMOID,
    SOFTMAX,
    ExpertNames,
    gguf_expert_names,
    gguf_experts,
    hf_grouped_experts,
    hf_named_dense_layers,
    leading_layers,
)

__all__ = ["NAMES", "gguf_config", "gguf_names", "hf_config_of_2", "hf_config_of_3", "hf_config_of_glm"]

NAMES = ExpertNames("mlp.gate", "mlp.experts", shared="mlp.shared_experts")
# What absent keys of version 3 mean to transformers.
_EXPERTS_OF_3 = {
    "n_routed_experts": 256,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 2048,
    "n_shared_experts": 1,
    "first_k_dense_replace": 3,
    "n_group": 8,
    "topk_group": 4,
    "routed_scaling_factor": 2.5,
}
# What they mean in GLM-4.7 Flash.
_OF_GLM = {
    "n_routed_experts": 64,
    "num_experts_per_tok": 4,
    "moe_intermediate_size": 1536,
    "first_k_dense_replace": 1,
    "n_group": 1,
    "topk_group": 1,
    "routed_scaling_factor": 1.8,
    "qk_nope_head_dim": 192,
    "v_head_dim": 256,
    "max_position_embeddings": 202752,
    "rms_norm_eps": 1e-5,
}
# What a GGUF multiplies the exponent of yarn's correction with.
_LOG_SHARE = 0.1


def hf_config_of_2(fields: FieldReader) -> ModelConfig:
    """config.json of DeepseekV2ForCausalLM. Raises ModelLoadError."""
    method = fields.text("topk_method", "greedy")
    if method not in ("greedy", "group_limited_greedy"):
        fields.refuse(f"topk_method is {method!r}, supported are greedy and group_limited_greedy")
    grouped = method != "greedy"
    routing = RoutingConfig(
        groups=fields.integer("n_group") if grouped else 1,
        used_groups=fields.integer("topk_group") if grouped else 1,
        scale=fields.number("routed_scaling_factor", 1.0),
    )
    width = fields.integer("moe_intermediate_size", 1407)
    experts = ExpertsConfig(
        count=fields.integer("n_routed_experts", 64),
        per_token=fields.integer("num_experts_per_tok"),
        intermediate_size=width,
        normalised=False,
        dense_layers=leading_layers(fields.integer("first_k_dense_replace", 0)),
        routing=routing,
        shared_size=fields.integer("n_shared_experts", 2) * width,
    )
    return _hf_config(fields, "deepseek_v2", experts)


def hf_config_of_3(fields: FieldReader) -> ModelConfig:
    """config.json of DeepseekV3ForCausalLM. Raises ModelLoadError."""
    if not fields.boolean("rope_interleave", True):
        fields.refuse("rope_interleave is false: heads that lie otherwise are not supported")
    experts = hf_grouped_experts(fields.with_defaults(_EXPERTS_OF_3))
    config = _hf_config(fields, "deepseek_v3", experts)
    return replace(config, predicting_layers=fields.integer("num_nextn_predict_layers", 1))


def hf_config_of_glm(fields: FieldReader) -> ModelConfig:
    """config.json of Glm4MoeLiteForCausalLM. Raises ModelLoadError."""
    rank = {} if fields.given("q_lora_rank") else {"q_lora_rank": 768}
    config = replace(hf_config_of_3(fields.with_defaults({**_OF_GLM, **rank})), architecture="glm4_moe_lite")
    dense = hf_named_dense_layers(fields, config.num_layers)
    if dense is None or config.experts is None:
        return config
    return replace(config, experts=replace(config.experts, dense_layers=dense))


def _hf_config(fields: FieldReader, architecture: str, experts: ExpertsConfig) -> ModelConfig:
    if fields.boolean("attention_bias", False):
        fields.refuse("attention_bias is true: biases of latent attention are not supported")
    if fields.integer("moe_layer_freq", 1) != 1:
        fields.refuse("moe_layer_freq is not 1: layers without experts are the first ones alone")
    latent = LatentConfig(
        rank=fields.integer("kv_lora_rank", 512),
        query_rank=(fields.optional_integer("q_lora_rank") or 0) if fields.given("q_lora_rank") else 1536,
        plain_dim=fields.integer("qk_nope_head_dim", 128),
        turning_dim=fields.integer("qk_rope_head_dim", 64),
        value_dim=fields.integer("v_head_dim", 128),
    )
    scaling = fields.table("rope_parameters") or fields.table("rope_scaling")
    all_dim = scaling.number("mscale_all_dim", 0.0) if scaling is not None else 0.0
    return _latent(replace(llama.hf_config(fields), architecture=architecture, experts=experts), latent, all_dim)


def gguf_config(fields: FieldReader, tensor_shapes: Mapping[str, tuple[int, ...]]) -> ModelConfig:
    """Metadata of a GGUF whose general.architecture is deepseek2."""
    correction = "deepseek2.rope.scaling.yarn_log_multiplier"
    key, value = "deepseek2.attention.key_length", "deepseek2.attention.value_length"
    config = llama.gguf_shape(fields.without(correction, key, value), tensor_shapes, architecture="deepseek2")
    turning = fields.integer("deepseek2.rope.dimension_count")
    latent = LatentConfig(
        rank=fields.integer("deepseek2.attention.kv_lora_rank"),
        query_rank=fields.integer("deepseek2.attention.q_lora_rank", 0),
        plain_dim=fields.integer(f"{key}_mla", fields.integer(key)) - turning,
        turning_dim=turning,
        value_dim=fields.integer(f"{value}_mla", fields.integer(value)),
    )
    corrected = any("exp_probs_b" in name for name in tensor_shapes)
    gating = SIGMOID if corrected else SOFTMAX
    experts = gguf_experts(fields, "deepseek2", config.intermediate_size, gating=gating, normalised=False)
    predicting = fields.integer("deepseek2.nextn_predict_layers", 0)
    (kind,) = config.attention_kinds
    all_dim = fields.number(correction, 0.0) / _LOG_SHARE
    if all_dim and kind.rope is not None:
        kind = replace(kind, rope=replace(kind.rope, attention_factor=1.0))
    config = replace(
        config,
        num_layers=config.num_layers - predicting,
        predicting_layers=predicting,
        attention_kinds=(kind,),
        experts=replace(experts, routing=replace(experts.routing, corrected=corrected)),
    )
    return _latent(config, latent, all_dim)


def _latent(config: ModelConfig, latent: LatentConfig, all_dim: float) -> ModelConfig:
    """With one kv head for all, and scores that a stretched rope makes larger. all_dim: how much, 0 for not."""
    (kind,) = config.attention_kinds
    rope = kind.rope or RopeConfig()
    stretched = yarn_temperature(rope.factor, all_dim) if rope.scaling == "yarn" and all_dim else 1.0
    key_dim = max(latent.plain_dim + latent.turning_dim, 1)
    return replace(
        config,
        num_kv_heads=1,
        head_dim=latent.rank + latent.turning_dim,
        attention_scale=key_dim**-0.5 * stretched**2,
        attention_kinds=(AttentionKind(rope=replace(rope, rotary_dim=latent.turning_dim)),),
        latent=latent,
    )


def gguf_names(config: ModelConfig) -> dict[str, GgufName]:
    """Our tensor names to those of a GGUF."""
    parts = {
        "q_a_proj": "attn_q_a",
        "q_a_layernorm": "attn_q_a_norm",
        "q_b_proj": "attn_q_b",
        "kv_a_proj_with_mqa": "attn_kv_a_mqa",
        "kv_a_layernorm": "attn_kv_a_norm",
        "kv_b_proj": "attn_kv_b",
        "k_b_proj": "attn_k_b",
        "v_b_proj": "attn_v_b",
    }
    latent = {
        f"model.layers.{index}.self_attn.{ours}.weight": GgufName(f"blk.{index}.{theirs}.weight")
        for index in range(config.num_layers)
        for ours, theirs in parts.items()
    }
    return llama.gguf_names(config, interleaved=False) | gguf_expert_names(config, NAMES) | latent
