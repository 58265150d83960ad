"""A tiny random oracle of every architecture in the registry, by the name that config.json calls it."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from local_engine.config import ModelConfig
from local_engine.loading.fields import FieldReader
from local_engine.models.registry import ARCHITECTURES, by_hf_name
from tests.local_engine.models.tiny_sparse_oracles import SPARSE_ORACLES
from tests.local_engine.tiny_models import Oracle, tiny_oracle

__all__ = ["TEXT_ARCHITECTURES", "TINY_ORACLES", "oracle_of", "shape_of"]

TEXT_ARCHITECTURES = [name for row in ARCHITECTURES if row.build_tower is None for name in row.hf_names]
"""What config.json calls the rows that read text alone."""

LONG_ROPE = {
    "rope_type": "longrope",
    "rope_theta": 1e4,
    "short_factor": [1.0, 1.5],
    "long_factor": [2.0, 5.0],
    "partial_rotary_factor": 0.5,
}

_LATENT = {
    "num_hidden_layers": 3,
    "num_key_value_heads": 4,
    "kv_lora_rank": 20,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 12,
    "n_routed_experts": 6,
    "num_experts_per_tok": 2,
    "n_shared_experts": 1,
    "moe_intermediate_size": 24,
    "first_k_dense_replace": 1,
    "n_group": 3,
    "topk_group": 2,
    "routed_scaling_factor": 1.5,
    "rope_parameters": {
        "rope_type": "yarn",
        "rope_theta": 1e4,
        "factor": 4.0,
        "original_max_position_embeddings": 16,
        "mscale": 0.7,
        "mscale_all_dim": 0.7,
    },
}

_GRANITE = {
    "embedding_multiplier": 1.5,
    "attention_multiplier": 0.3,
    "residual_multiplier": 0.22,
    "logits_scaling": 1.5,
}

_GEMMA4 = {
    "num_hidden_layers": 6,
    "layer_types": ["sliding_attention", "full_attention"] * 3,
    "sliding_window": 5,
    "head_dim": 16,
    "global_head_dim": 32,
    "final_logit_softcapping": 5.0,
    "tie_word_embeddings": True,
    "pad_token_id": 0,
    "vocab_size_per_layer_input": 128,
    "rope_parameters": {
        "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e4},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e3},
    },
}
_DELTA = {
    "head_dim": 16,
    "num_hidden_layers": 4,
    "full_attention_interval": 2,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 4,
    "linear_value_head_dim": 6,
}
_DELTA_EXPERTS = {
    "num_experts": 6,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
    "shared_expert_intermediate_size": 40,
}

_MINISTRAL3 = {
    "head_dim": 16,
    "max_position_embeddings": 128,
    "rope_parameters": {
        "rope_type": "yarn",
        "rope_theta": 1e4,
        "factor": 2.0,
        "original_max_position_embeddings": 64,
        "mscale": 1.0,
        "mscale_all_dim": 0.5,
        "llama_4_scaling_beta": 0.1,
    },
}

# transformers' model_type, and in what the model is not the smallest Llama.
TINY_ORACLES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    **SPARSE_ORACLES,
    "LlamaForCausalLM": ("llama", {}),
    "MistralForCausalLM": ("mistral", {"sliding_window": 7}),
    "Ministral3ForCausalLM": ("ministral3", _MINISTRAL3),
    "Mistral3ForConditionalGeneration": ("mistral3", {**_MINISTRAL3, "model_type": "ministral3"}),
    "Starcoder2ForCausalLM": ("starcoder2", {"sliding_window": 7}),
    "ArceeForCausalLM": ("arcee", {"mlp_bias": True}),
    "Qwen2ForCausalLM": (
        "qwen2",
        {"num_hidden_layers": 3, "use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1},
    ),
    "Qwen3ForCausalLM": (
        "qwen3",
        {
            "head_dim": 16,
            "num_hidden_layers": 3,
            "use_sliding_window": True,
            "sliding_window": 5,
            "max_window_layers": 2,
        },
    ),
    "Gemma2ForCausalLM": (
        "gemma2",
        {
            "head_dim": 16,
            "query_pre_attn_scalar": 16,
            "num_hidden_layers": 3,
            "sliding_window": 5,
            "attn_logit_softcapping": 2.0,
            "final_logit_softcapping": 5.0,
            "tie_word_embeddings": True,
        },
    ),
    "Gemma3ForCausalLM": (
        "gemma3_text",
        {
            "head_dim": 16,
            "query_pre_attn_scalar": 16,
            "num_hidden_layers": 7,
            "sliding_window": 5,
            "tie_word_embeddings": True,
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
                "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
            },
        },
    ),
    # As the small ones of the family are, and as the sparse one is, with the traits of the large dense one.
    "Gemma4ForCausalLM": (
        "gemma4_text",
        {**_GEMMA4, "hidden_size_per_layer_input": 8, "num_kv_shared_layers": 2, "use_double_wide_mlp": True},
    ),
    "Gemma4ForConditionalGeneration": (
        "gemma4",
        {
            **_GEMMA4,
            "hidden_size_per_layer_input": 0,
            "attention_k_eq_v": True,
            "num_global_key_value_heads": 1,
            "enable_moe_block": True,
            "num_experts": 4,
            "top_k_experts": 2,
            "moe_intermediate_size": 24,
        },
    ),
    "Phi3ForCausalLM": (
        "phi3",
        {
            "rope_parameters": LONG_ROPE | {"original_max_position_embeddings": 64},
            "original_max_position_embeddings": 64,
            "pad_token_id": 0,
        },
    ),
    "MixtralForCausalLM": ("mixtral", {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 7}),
    "Qwen3MoeForCausalLM": (
        "qwen3_moe",
        {
            "head_dim": 16,
            "num_hidden_layers": 3,
            "num_experts": 6,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 24,
            "norm_topk_prob": True,
        },
    ),
    "Qwen2MoeForCausalLM": (
        "qwen2_moe",
        {
            "num_hidden_layers": 3,
            "num_experts": 6,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 24,
            "shared_expert_intermediate_size": 40,
        },
    ),
    "Glm4MoeForCausalLM": (
        "glm4_moe",
        {
            "head_dim": 16,
            "num_hidden_layers": 3,
            "n_routed_experts": 6,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 24,
            "first_k_dense_replace": 1,
            "routed_scaling_factor": 1.5,
            "use_qk_norm": True,
            "attention_bias": True,
        },
    ),
    "DeepseekV2ForCausalLM": (
        "deepseek_v2",
        {**_LATENT, "q_lora_rank": None, "topk_method": "group_limited_greedy", "v_head_dim": 16},
    ),
    "Glm4MoeLiteForCausalLM": (
        "glm4_moe_lite",
        {**_LATENT, "q_lora_rank": 24, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}},
    ),
    "DeepseekV3ForCausalLM": ("deepseek_v3", {**_LATENT, "q_lora_rank": 24}),
    "GptOssForCausalLM": (
        "gpt_oss",
        {
            "head_dim": 16,
            "num_hidden_layers": 3,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "sliding_window": 5,
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 150000.0,
                "factor": 4.0,
                "original_max_position_embeddings": 16,
                "beta_fast": 32.0,
                "beta_slow": 1.0,
                "truncate": False,
            },
        },
    ),
    "GraniteForCausalLM": ("granite", _GRANITE),
    "GraniteMoeForCausalLM": ("granitemoe", {**_GRANITE, "num_local_experts": 4, "num_experts_per_tok": 2}),
    "GraniteMoeHybridForCausalLM": (
        "granitemoehybrid",
        {
            **_GRANITE,
            "num_local_experts": 0,
            "shared_intermediate_size": 64,
            "layer_types": ["full_attention"] * 2,
            "position_embedding_type": "rope",
            "mamba_n_heads": 4,
        },
    ),
    "Olmo2ForCausalLM": ("olmo2", {}),
    "Olmo3ForCausalLM": (
        "olmo3",
        {
            "num_hidden_layers": 5,
            "sliding_window": 5,
            "rope_parameters": {
                "full_attention": {
                    "rope_type": "yarn",
                    "rope_theta": 1e4,
                    "factor": 4.0,
                    "original_max_position_embeddings": 16,
                    "attention_factor": 1.2,
                },
                "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
            },
        },
    ),
    "Glm4ForCausalLM": ("glm4", {"head_dim": 16, "pad_token_id": 0}),
    "CohereForCausalLM": ("cohere", {"logit_scale": 0.5, "tie_word_embeddings": True}),
    "Cohere2ForCausalLM": (
        "cohere2",
        {"logit_scale": 0.5, "num_hidden_layers": 5, "sliding_window": 5, "tie_word_embeddings": True},
    ),
    "SeedOssForCausalLM": ("seed_oss", {"head_dim": 16}),
    "Ernie4_5ForCausalLM": ("ernie4_5", {"head_dim": 16}),
    "HunYuanDenseV1ForCausalLM": (
        "hunyuan_v1_dense",
        {"head_dim": 16, "rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "alpha": 50.0, "factor": 1.0}},
    ),
    "Exaone4ForCausalLM": ("exaone4", {"num_hidden_layers": 5, "sliding_window": 5}),
    "Lfm2ForCausalLM": (
        "lfm2",
        {
            "num_hidden_layers": 5,
            "layer_types": ["conv", "full_attention", "conv", "conv", "full_attention"],
            "block_auto_adjust_ff_dim": False,
            "conv_bias": True,
            "tie_word_embeddings": True,
        },
    ),
    "Lfm2MoeForCausalLM": (
        "lfm2_moe",
        {
            "num_hidden_layers": 4,
            "layer_types": ["conv", "conv", "full_attention", "conv"],
            "num_dense_layers": 1,
            "num_experts": 6,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 24,
            "tie_word_embeddings": True,
        },
    ),
    "Qwen3NextForCausalLM": ("qwen3_next", {**_DELTA, **_DELTA_EXPERTS}),
    "Qwen3_5ForCausalLM": ("qwen3_5_text", {**_DELTA, "tie_word_embeddings": True}),
    "Qwen3_5MoeForCausalLM": ("qwen3_5_moe_text", {**_DELTA, **_DELTA_EXPERTS}),
    "ApertusForCausalLM": ("apertus", {"head_dim": 16, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}),
    "NemotronForCausalLM": ("nemotron", {"head_dim": 16}),
    "StableLmForCausalLM": ("stablelm", {"use_qkv_bias": True, "partial_rotary_factor": 0.5}),
    "FalconH1ForCausalLM": (
        "falcon_h1",
        {
            "head_dim": 16,
            "num_hidden_layers": 3,
            "mamba_d_ssm": 24,
            "mamba_n_heads": 4,
            "mamba_n_groups": 2,
            "mamba_d_state": 4,
            "mamba_d_conv": 3,
            "mamba_chunk_size": 8,
            "embedding_multiplier": 1.5,
            "lm_head_multiplier": 0.6,
            "key_multiplier": 0.7,
            "attention_in_multiplier": 1.2,
            "attention_out_multiplier": 0.9,
            "ssm_in_multiplier": 1.3,
            "ssm_out_multiplier": 0.8,
            "mlp_multipliers": [0.9, 1.1],
            "ssm_multipliers": [0.9, 1.1, 0.8, 1.2, 0.7],
        },
    ),
    "NemotronHForCausalLM": (
        "nemotron_h",
        {
            "head_dim": 16,
            "layers_block_type": ["linear_attention", "moe", "full_attention", "moe", "linear_attention"],
            "mamba_num_heads": 4,
            "mamba_head_dim": 6,
            "ssm_state_size": 4,
            "n_groups": 2,
            "conv_kernel": 3,
            "chunk_size": 8,
            "time_step_min": 1e-9,
            "n_routed_experts": 6,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 24,
            "moe_shared_expert_intermediate_size": 40,
            "routed_scaling_factor": 1.5,
        },
    ),
    "SmolLM3ForCausalLM": ("smollm3", {"num_hidden_layers": 5, "pad_token_id": 0}),
}


def oracle_of(hf_name: str, seed: int = 21, **overrides: Any) -> Oracle:
    """The tiny model of an architecture. overrides: keys of its config."""
    kind, values = TINY_ORACLES[hf_name]
    return tiny_oracle(seed, kind=kind, **{**values, **overrides})


def shape_of(hf_name: str) -> ModelConfig:
    """What we read from the config.json of that model, with the window that it has by default."""
    architecture = by_hf_name(hf_name)
    assert architecture is not None
    shape = architecture.hf_config(FieldReader(Path("config.json"), oracle_of(hf_name).model.config.to_dict()))
    return replace(shape, max_context=shape.default_context or shape.max_context)
