"""How llama.cpp's converter describes Gemma 4: what differs from layer to layer, and tensors of other names."""

from collections.abc import Mapping
from typing import Any

import gguf
import numpy as np
import torch

__all__ = ["GEMMA4", "add_gemma4", "gemma4_kv_heads", "gemma4_widths", "with_gguf_gemma4"]

GEMMA4 = "gemma4_text"


def add_gemma4(writer: gguf.GGUFWriter, config: Any) -> dict[str, np.ndarray]:
    """Its metadata. Returns the divisors of the frequencies of layers that see all."""
    full, sliding = (config.per_layer_config[kind].head_dim for kind in ("full_attention", "sliding_attention"))
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_key_length(full)
    writer.add_value_length(full)
    writer.add_key_length_swa(sliding)
    writer.add_value_length_swa(sliding)
    writer.add_rope_dimension_count(full)
    writer.add_rope_dimension_count_swa(sliding)
    rope = config.rope_parameters["full_attention"]
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_rope_freq_base_swa(config.rope_parameters["sliding_attention"]["rope_theta"])
    writer.add_sliding_window(config.sliding_window)
    writer.add_sliding_window_pattern([kind == "sliding_attention" for kind in config.layer_types])
    writer.add_shared_kv_layers(config.num_kv_shared_layers)
    writer.add_embedding_length_per_layer_input(config.hidden_size_per_layer_input)
    if config.final_logit_softcapping is not None:
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
    if config.enable_moe_block:
        writer.add_expert_count(config.num_experts)
        writer.add_expert_used_count(config.top_k_experts)
        writer.add_expert_feed_forward_length(config.moe_intermediate_size)
    turning = int(full * rope["partial_rotary_factor"] / 2)
    divisors = [1.0] * turning + [1e30] * (full // 2 - turning)
    return {"rope_freqs.weight": np.asarray(divisors, dtype=np.float32)}


def gemma4_kv_heads(config: Any) -> list[int]:
    """One number a layer."""
    return [config.per_layer_config[index].num_key_value_heads for index in range(config.num_hidden_layers)]


def gemma4_widths(config: Any) -> int | list[int]:
    """One number, or one a layer where those without keys and values are wider."""
    width: int = config.intermediate_size
    if not config.use_double_wide_mlp:
        return width
    own = config.num_hidden_layers - config.num_kv_shared_layers
    return [width if index < own else 2 * width for index in range(config.num_hidden_layers)]


def with_gguf_gemma4(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """By names that the gguf package's tables know."""
    found: dict[str, torch.Tensor] = {}
    for name, tensor in tensors.items():
        if name.endswith((".layer_scalar", ".experts.gate_up_proj", ".experts.down_proj")):
            name += ".weight"
        if name.endswith(".router.scale"):
            name = name.replace("model.layers", "blk").replace("router.scale", "ffn_gate_inp.scale")
        if name.endswith(".router.per_expert_scale"):
            name = name.replace("model.layers", "blk").replace("router.per_expert_scale", "ffn_down_exps.scale")
        found[name] = tensor
    return found
