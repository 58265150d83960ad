"""Tiny random oracles of architectures with experts, as `tiny_oracles` has them."""

from collections.abc import Mapping
from typing import Any

__all__ = ["SPARSE_ORACLES"]

_EXPERTS: Mapping[str, Any] = {
    "num_hidden_layers": 3,
    "num_experts": 6,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
}
_GROUPED: Mapping[str, Any] = {
    "head_dim": 16,
    "num_hidden_layers": 3,
    "n_routed_experts": 6,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
    "n_shared_experts": 2,
    "first_k_dense_replace": 1,
    "routed_scaling_factor": 1.5,
}
_EXAONE: Mapping[str, Any] = {**_EXPERTS, "num_hidden_layers": 5, "sliding_window": 5, "head_dim": 16}

# Sections of five tokens, and queries that grow every five; as Scout is, and as Maverick with its tower.
_LLAMA4: Mapping[str, Any] = {
    "head_dim": 16,
    "num_hidden_layers": 5,
    "intermediate_size": 24,
    "intermediate_size_mlp": 40,
    "num_local_experts": 4,
    "attention_chunk_size": 5,
    "floor_scale": 5,
}

SPARSE_ORACLES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "OlmoeForCausalLM": ("olmoe", {"num_experts": 6, "num_experts_per_tok": 2}),
    "Dots1ForCausalLM": (
        "dots1",
        {**_GROUPED, "norm_topk_prob": True, "sliding_window": 5, "max_window_layers": 1},
    ),
    "MiniMaxM2ForCausalLM": (
        "minimax_m2",
        {"head_dim": 16, "rotary_dim": 8, "num_local_experts": 4, "num_experts_per_tok": 2},
    ),
    "Ernie4_5_MoeForCausalLM": (
        "ernie4_5_moe",
        {
            "num_hidden_layers": 4,
            "moe_num_experts": 6,
            "moe_k": 2,
            "moe_intermediate_size": 24,
            "moe_layer_interval": 2,
            "moe_layer_start_index": 1,
        },
    ),
    "HunYuanMoEV1ForCausalLM": (
        "hunyuan_v1_moe",
        {"head_dim": 16, "num_experts": 4, "moe_topk": 2},
    ),
    "Llama4ForCausalLM": ("llama4_text", _LLAMA4),
    "Llama4ForConditionalGeneration": ("llama4", {**_LLAMA4, "interleave_moe_layer_step": 2, "num_experts_per_tok": 2}),
    "ExaoneMoeForCausalLM": ("exaone_moe", _EXAONE),
    "ExaoneMoEForCausalLM": ("exaone_moe", _EXAONE),
}
