"""How llama.cpp's converter describes recurrent layers: metadata, and tensors that it has in another form."""

from collections.abc import Mapping
from typing import Any

import gguf
import torch

__all__ = ["add_recurrent", "is_granite_hybrid", "kv_heads", "with_gguf_states"]

FALCON_H1 = "falcon_h1"
DELTA = ("qwen3_next", "qwen3_5")
"""What model types begin with whose layers without attention have gated delta rules."""


def kv_heads(config: Any) -> int | list[int]:
    """One number, or one a layer where some have none."""
    if not config.model_type.startswith(("lfm2", "nemotron_h")) and not is_granite_hybrid(config):
        count: int = config.num_key_value_heads
        return count
    return [config.num_key_value_heads if kind == "full_attention" else 0 for kind in config.layer_types]


def is_granite_hybrid(config: Any) -> bool:
    """Some layers of a Granite 4 are Mamba's."""
    return config.model_type == "granitemoehybrid" and "linear_attention" in config.layer_types


def add_recurrent(writer: gguf.GGUFWriter, config: Any) -> None:
    """The shapes of states."""
    if config.model_type.startswith("lfm2"):
        writer.add_shortconv_l_cache(config.conv_L_cache)
    if config.model_type.startswith(DELTA):
        writer.add_ssm_conv_kernel(config.linear_conv_kernel_dim)
        writer.add_ssm_state_size(config.linear_key_head_dim)
        writer.add_ssm_group_count(config.linear_num_key_heads)
        writer.add_ssm_time_step_rank(config.linear_num_value_heads)
        writer.add_ssm_inner_size(config.linear_value_head_dim * config.linear_num_value_heads)
        writer.add_full_attention_interval(config.layer_types.index("full_attention") + 1)
    if is_granite_hybrid(config) or config.model_type == FALCON_H1:
        writer.add_ssm_conv_kernel(config.mamba_d_conv)
        writer.add_ssm_state_size(config.mamba_d_state)
        writer.add_ssm_group_count(config.mamba_n_groups)
        writer.add_ssm_time_step_rank(config.mamba_n_heads)
        writer.add_ssm_inner_size(config.mamba_n_heads * config.mamba_d_head)
    if is_granite_hybrid(config):
        writer.add_rope_scaling_finetuned(config.position_embedding_type == "rope")


def with_gguf_states(tensors: Mapping[str, torch.Tensor], config: Any) -> dict[str, torch.Tensor]:
    """The tensors as the converter stores them, by names that the gguf package's tables know."""
    found: dict[str, torch.Tensor] = {}
    for name, tensor in tensors.items():
        if name.endswith(("conv.conv.weight", "conv1d.weight")):
            tensor = tensor.squeeze(1)
        if ".mamba." in name:
            if name.endswith((".A_log", ".D")):
                tensor = (-tensor.exp() if name.endswith(".A_log") else tensor).unsqueeze(-1)
            if name.endswith(".norm.weight"):
                tensor = tensor.view(config.mamba_n_groups, -1)
            name = name.replace(".dt_bias", ".dt_proj.bias").replace(".mamba.D", ".D")
        if config.model_type == FALCON_H1:
            tensor = _multiplied(name, tensor, config)
        if not config.model_type.startswith(DELTA):
            found[name] = tensor
            continue
        if name.endswith("norm.weight") and not name.endswith("linear_attn.norm.weight"):
            tensor = tensor + 1
        if ".linear_attn." in name:
            tensor = _tiled(name, tensor, config)
        if name.endswith(".A_log"):
            tensor = -tensor.exp()
        if name.endswith(".in_proj_qkvz.weight"):
            found |= _ungrouped(name, tensor, config)
        else:
            found[name.replace(".dt_bias", ".dt_proj.bias")] = tensor
    return found


def _multiplied(name: str, tensor: torch.Tensor, config: Any) -> torch.Tensor:
    """Of Falcon-H1, the weights with all factors in them."""
    if name.endswith("in_proj.weight"):
        width, directions = config.mamba_d_ssm, config.mamba_n_groups * config.mamba_d_state
        sizes = [width, width, directions, directions, config.mamba_n_heads]
        parts = zip(torch.split(tensor, sizes), config.ssm_multipliers, strict=True)
        return torch.cat([part * factor * config.ssm_in_multiplier for part, factor in parts])
    factors: dict[str, float] = {
        "gate_proj": config.mlp_multipliers[0],
        "down_proj": config.mlp_multipliers[1],
        "q_proj": config.attention_in_multiplier,
        "k_proj": config.attention_in_multiplier * config.key_multiplier,
        "v_proj": config.attention_in_multiplier,
        "o_proj": config.attention_out_multiplier,
        "out_proj": config.ssm_out_multiplier,
        "lm_head": config.lm_head_multiplier,
        "embed_tokens": config.embedding_multiplier,
    }
    return tensor * factors.get(name.split(".")[-2], 1.0)


def _ungrouped(name: str, tensor: torch.Tensor, config: Any) -> dict[str, torch.Tensor]:
    """Queries, keys and values of all heads one after the other, and gates by themselves."""
    share = config.linear_num_value_heads // config.linear_num_key_heads * config.linear_value_head_dim
    sizes = [config.linear_key_head_dim] * 2 + [share] * 2
    q, k, v, z = torch.split(torch.unflatten(tensor, 0, (config.linear_num_key_heads, -1)), sizes, 1)
    qkv = torch.cat([part.flatten(0, 1) for part in (q, k, v)])
    return {name.replace("qkvz", "qkv"): qkv, name.replace("qkvz", "z"): z.flatten(0, 1)}


def _tiled(name: str, tensor: torch.Tensor, config: Any) -> torch.Tensor:
    """Of Qwen3.5, value heads in the order in which each key head has one of them, and then each another."""
    part = name.partition(".linear_attn.")[2]
    if not config.model_type.startswith("qwen3_5") or part == "norm.weight":
        return tensor
    dim, first = (1, 0) if part == "out_proj.weight" else (0, 0)
    if part in ("in_proj_qkv.weight", "conv1d.weight"):
        first = 2 * config.linear_num_key_heads * config.linear_key_head_dim
    before, values = torch.split(tensor, [first, tensor.shape[dim] - first], dim)
    share = config.linear_num_value_heads // config.linear_num_key_heads
    heads = torch.unflatten(values, dim, (config.linear_num_key_heads, share, -1))
    return torch.cat((before, heads.transpose(dim, dim + 1).flatten(dim, dim + 2)), dim)
