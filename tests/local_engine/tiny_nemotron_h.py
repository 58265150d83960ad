"""Nemotron-H as llama.cpp's converter writes it: widths and kv heads a layer, and all that a layer's `mixer` is."""

from collections.abc import Mapping
from typing import Any

import gguf
import torch

__all__ = ["NEMOTRON_H", "add_nemotron_h", "nemotron_h_architecture", "nemotron_h_widths", "with_gguf_nemotron_h"]

NEMOTRON_H = "nemotron_h"


def nemotron_h_architecture(config: Any) -> str:
    return "nemotron_h_moe" if "moe" in config.layer_types else "nemotron_h"


def nemotron_h_widths(config: Any) -> list[int]:
    """Of the feed-forward block of each layer; 0 is none."""
    widths = {"moe": config.moe_intermediate_size, "mlp": config.intermediate_size}
    return [widths.get(kind, 0) for kind in config.layer_types]


def add_nemotron_h(writer: gguf.GGUFWriter, config: Any) -> None:
    """Head sizes, norms, states and experts."""
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_layer_norm_rms_eps(config.layer_norm_epsilon)
    writer.add_ssm_conv_kernel(config.conv_kernel)
    writer.add_ssm_state_size(config.ssm_state_size)
    writer.add_ssm_group_count(config.n_groups)
    writer.add_ssm_time_step_rank(config.mamba_num_heads)
    writer.add_ssm_inner_size(config.mamba_num_heads * config.mamba_head_dim)
    if "moe" not in config.layer_types:
        return
    writer.add_expert_count(config.n_routed_experts)
    writer.add_expert_used_count(config.num_experts_per_tok)
    writer.add_expert_feed_forward_length(config.moe_intermediate_size)
    writer.add_expert_shared_feed_forward_length(config.moe_shared_expert_intermediate_size)
    writer.add_expert_shared_count(config.n_shared_experts)
    writer.add_expert_weights_norm(config.norm_topk_prob)
    writer.add_expert_weights_scale(config.routed_scaling_factor)
    writer.add_expert_group_count(config.n_group)
    if config.moe_latent_size is not None:
        writer.add_moe_latent_size(config.moe_latent_size)


def with_gguf_nemotron_h(tensors: Mapping[str, torch.Tensor], config: Any) -> dict[str, torch.Tensor]:
    """The tensors as the converter stores them, by names that the gguf package's tables know."""
    found: dict[str, torch.Tensor] = {}
    for name, tensor in tensors.items():
        if name.endswith("conv1d.weight"):
            tensor = tensor.squeeze(1)
        if name.endswith("A_log"):
            tensor = -tensor.exp()
        if name.endswith((".A_log", ".D")):
            tensor = tensor.unsqueeze(-1)
        if name.endswith("mixer.norm.weight"):
            tensor = tensor.view(config.n_groups, -1)
        name = name.replace(".dt_bias", ".dt.bias").replace("correction_bias", "correction.bias")
        if ".mixer.experts." in name:
            name = f"{name.replace('.mixer.', '.mlp.')}.weight"
        else:
            name = name.replace("model.", "backbone.", 1)
        found[name] = tensor
    return found
