"""How llama.cpp's converter describes the layers of transformers' architectures: names and metadata."""

import math
from collections.abc import Mapping
from typing import Any

import gguf
import numpy as np
import torch

from tests.local_engine.tiny_gemma4 import GEMMA4, add_gemma4
from tests.local_engine.tiny_nemotron_h import NEMOTRON_H, add_nemotron_h, nemotron_h_architecture
from tests.local_engine.tiny_recurrent import add_recurrent, is_granite_hybrid

__all__ = [
    "INTERLEAVED",
    "NORMS_FROM_ONE",
    "add_layer_keys",
    "gguf_architecture",
    "with_split_latent",
]

# What a GGUF calls the architectures of transformers.
_ARCHITECTURES = {
    "llama": "llama",
    "mistral": "llama",
    "starcoder2": "starcoder2",
    "arcee": "arcee",
    "ministral3": "mistral3",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "gemma2": "gemma2",
    "gemma3_text": "gemma3",
    "gemma4_text": "gemma4",
    "phi3": "phi3",
    "smollm3": "smollm3",
    "mixtral": "llama",
    "qwen3_moe": "qwen3moe",
    "gpt_oss": "gpt-oss",
    "qwen2_moe": "qwen2moe",
    "glm4_moe": "glm4moe",
    "deepseek_v2": "deepseek2",
    "deepseek_v3": "deepseek2",
    "glm4_moe_lite": "deepseek2",
    "granite": "granite",
    "granitemoehybrid": "granite",
    "granitemoe": "granitemoe",
    "olmo2": "olmo2",
    "olmo3": "olmo2",
    "glm4": "glm4",
    "cohere": "command-r",
    "cohere2": "cohere2",
    "seed_oss": "seed_oss",
    "ernie4_5": "ernie4_5",
    "hunyuan_v1_dense": "hunyuan-dense",
    "exaone4": "exaone4",
    "lfm2": "lfm2",
    "qwen3_next": "qwen3next",
    "qwen3_5_text": "qwen35",
    "qwen3_5_moe_text": "qwen35moe",
    "lfm2_moe": "lfm2moe",
    "olmoe": "olmoe",
    "dots1": "dots1",
    "minimax_m2": "minimax-m2",
    "ernie4_5_moe": "ernie4_5-moe",
    "hunyuan_v1_moe": "hunyuan-moe",
    "exaone_moe": "exaone-moe",
    "llama4_text": "llama4",
    "qwen2_vl_text": "qwen2vl",
    "qwen2_5_vl_text": "qwen2vl",
    "qwen3_vl_text": "qwen3vl",
    "qwen3_vl_moe_text": "qwen3vlmoe",
    "falcon_h1": "falcon-h1",
    "apertus": "apertus",
    "nemotron": "nemotron",
    "stablelm": "stablelm",
}
INTERLEAVED = ("llama", "arcee", "mistral3", "smollm3", "granite", "granitemoe", "granitehybrid", "nemotron_h")
"""Whose rows of Q and K the converter moves."""
NORMS_FROM_ONE = ("gemma2", "gemma3", "nemotron")
SPLIT_LATENT = ("deepseek_v3", "glm4_moe_lite")
LATENT = ("deepseek_v2", *SPLIT_LATENT)
_PATTERNED = ("qwen2", "qwen3", "qwen3_moe", "olmo3", "exaone4", "dots1", "exaone_moe")


def gguf_architecture(config: Any) -> str:
    """What a GGUF calls the architecture of a model."""
    if config.model_type == NEMOTRON_H:
        return nemotron_h_architecture(config)
    return "granitehybrid" if is_granite_hybrid(config) else _ARCHITECTURES[config.model_type]


def add_layer_keys(writer: gguf.GGUFWriter, config: Any) -> dict[str, np.ndarray]:
    """Head sizes, norms, rope, windows, caps and scales. Returns what of them is a tensor."""
    if config.model_type == GEMMA4:
        return add_gemma4(writer, config)
    if config.model_type == NEMOTRON_H:
        add_nemotron_h(writer, config)
        return {}
    head_dim = getattr(config, "head_dim", None)
    if config.model_type in LATENT:
        _add_latent(writer, config)
    elif head_dim is not None:
        writer.add_key_length(head_dim)
        writer.add_value_length(head_dim)
    if config.model_type in ("cohere", "cohere2"):
        writer.add_layer_norm_eps(config.layer_norm_eps)
        writer.add_logit_scale(config.logit_scale)
    elif config.model_type == "starcoder2":
        writer.add_layer_norm_eps(config.norm_epsilon)
    elif config.model_type == "stablelm":
        writer.add_layer_norm_eps(config.layer_norm_eps)
        writer.add_parallel_residual(config.use_parallel_residual)
    elif config.model_type == "nemotron":
        writer.add_layer_norm_eps(config.norm_eps)
    elif config.model_type.startswith("lfm2"):
        writer.add_layer_norm_rms_eps(config.norm_eps)
    else:
        writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    if config.model_type.startswith("granite"):
        writer.add_attention_scale(config.attention_multiplier)
        writer.add_embedding_scale(config.embedding_multiplier)
        writer.add_residual_scale(config.residual_multiplier)
        writer.add_logit_scale(config.logits_scaling)
    if config.model_type == "ministral3":
        writer.add_rope_scaling_yarn_log_mul(config.rope_parameters["mscale_all_dim"])
        writer.add_attn_temperature_scale(config.rope_parameters["llama_4_scaling_beta"])
    if config.model_type == "llama4_text":
        writer.add_uint32("llama4.attention.chunk_size", config.attention_chunk_size)
        writer.add_attn_temperature_length(config.floor_scale)
        writer.add_attn_temperature_scale(config.attn_scale)
    _add_windows(writer, config)
    add_recurrent(writer, config)
    if getattr(config, "attn_logit_softcapping", None) is not None:
        writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
    if getattr(config, "final_logit_softcapping", None) is not None:
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
    return _add_rope(writer, config)


def _add_latent(writer: gguf.GGUFWriter, config: Any) -> None:
    """Version 3 as converters write it now, version 2 as they did at first."""
    key_length = config.qk_nope_head_dim + config.qk_rope_head_dim
    if config.model_type in SPLIT_LATENT:
        writer.add_q_lora_rank(config.q_lora_rank)
        writer.add_key_length(config.kv_lora_rank + config.qk_rope_head_dim)
        writer.add_value_length(config.kv_lora_rank)
        writer.add_key_length_mla(key_length)
        writer.add_value_length_mla(config.v_head_dim)
    else:
        writer.add_q_lora_rank(config.q_lora_rank or 0)
        writer.add_key_length(key_length)
        writer.add_value_length(config.v_head_dim)
    writer.add_kv_lora_rank(config.kv_lora_rank)
    writer.add_rope_dimension_count(config.qk_rope_head_dim)
    if "mscale_all_dim" in config.rope_parameters:
        writer.add_rope_scaling_yarn_log_mul(0.1 * config.rope_parameters["mscale_all_dim"])


def with_split_latent(tensors: Mapping[str, torch.Tensor], config: Any) -> dict[str, torch.Tensor]:
    """With what makes keys and values apart, head by head, where the converter has it so."""
    found = dict(tensors)
    for name in tensors if config.model_type in SPLIT_LATENT else ():
        if name.endswith(".kv_b_proj.weight"):
            both = found.pop(name).view(config.num_attention_heads, -1, config.kv_lora_rank)
            keys, values = both[:, : config.qk_nope_head_dim], both[:, config.qk_nope_head_dim :]
            found[name.replace("kv_b_proj", "k_b_proj")] = keys.transpose(1, 2).contiguous()
            found[name.replace("kv_b_proj", "v_b_proj")] = values.contiguous()
    return found


def _add_windows(writer: gguf.GGUFWriter, config: Any) -> None:
    window = getattr(config, "sliding_window", None)
    if config.model_type == "phi3" or window is not None:
        writer.add_sliding_window(window or 0)
    if config.model_type in _PATTERNED and window is not None:
        writer.add_sliding_window_pattern([kind == "sliding_attention" for kind in config.layer_types])


def _add_rope(writer: gguf.GGUFWriter, config: Any) -> dict[str, np.ndarray]:
    rope = config.rope_parameters
    rope = rope.get("full_attention", rope)
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    stretched = rope.get("alpha", 1.0) ** (head_dim / (head_dim - 2))
    writer.add_rope_freq_base(rope["rope_theta"] * stretched)
    if "mrope_section" in rope:
        writer.add_rope_dimension_sections([*rope["mrope_section"], 0])
    if "partial_rotary_factor" in rope:
        writer.add_rope_dimension_count(int(rope["partial_rotary_factor"] * head_dim))
    if rope["rope_type"] in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(rope["rope_type"]))
        writer.add_rope_scaling_factor(rope["factor"])
    if rope["rope_type"] == "yarn":
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        if "attention_factor" in rope:
            writer.add_rope_scaling_yarn_attn_factor(rope["attention_factor"])
    if config.model_type == "phi3":
        writer.add_rope_scaling_orig_ctx_len(config.original_max_position_embeddings)
    if rope["rope_type"] != "longrope":
        return {}
    original = config.original_max_position_embeddings
    scale = config.max_position_embeddings / original
    writer.add_rope_scaling_attn_factors(math.sqrt(1 + math.log(scale) / math.log(original)) if scale > 1 else 1.0)
    return {
        f"rope_factors_{kind}.weight": np.asarray(rope[f"{kind}_factor"], dtype=np.float32)
        for kind in ("short", "long")
    }
