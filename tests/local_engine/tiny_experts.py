"""Experts as llama.cpp's converter writes them: stacked by kind, from transformers' fused tensors."""

from collections.abc import Mapping
from typing import Any

import gguf
import torch

__all__ = ["add_experts", "with_split_experts"]


def add_experts(writer: gguf.GGUFWriter, config: Any) -> None:
    """The metadata of a sparse model."""
    count = (
        getattr(config, "num_local_experts", None)
        or getattr(config, "num_experts", None)
        or getattr(config, "n_routed_experts", None)
    )
    if not count:
        return
    writer.add_expert_count(count)
    writer.add_expert_used_count(config.num_experts_per_tok)
    width = getattr(config, "moe_intermediate_size", None)
    if config.model_type in ("minimax_m2", "hunyuan_v1_moe", "llama4_text"):
        width = config.intermediate_size
    if config.model_type == "llama4_text":
        writer.add_interleave_moe_layer_step(config.interleave_moe_layer_step)
    if width is not None or config.model_type == "gpt_oss":
        writer.add_expert_feed_forward_length(width or config.intermediate_size)
    if config.model_type in ("qwen2_moe", "qwen3_next", "qwen3_5_moe_text"):
        writer.add_expert_shared_feed_forward_length(config.shared_expert_intermediate_size)
    if config.model_type == "granitemoehybrid":
        writer.add_expert_shared_feed_forward_length(config.shared_intermediate_size)
    if config.model_type == "lfm2_moe":
        writer.add_leading_dense_block_count(config.num_dense_layers)
        writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    if config.model_type == "hunyuan_v1_moe":
        writer.add_expert_shared_feed_forward_length(config.intermediate_size)
        writer.add_expert_shared_count(1)
    if config.model_type == "ernie4_5_moe":
        writer.add_interleave_moe_layer_step(config.moe_layer_interval)
        writer.add_leading_dense_block_count(config.moe_layer_start_index)
        writer.add_expert_shared_count(config.moe_num_shared_experts)
        # As converters have it, whatever the width is.
        writer.add_expert_shared_feed_forward_length(config.intermediate_size // config.num_key_value_heads)
    if config.model_type == "exaone_moe":
        writer.add_expert_shared_count(config.num_shared_experts)
        writer.add_expert_shared_feed_forward_length(config.num_shared_experts * config.moe_intermediate_size)
        writer.add_expert_weights_scale(config.routed_scaling_factor)
        writer.add_expert_weights_norm(config.norm_topk_prob)
        writer.add_leading_dense_block_count(config.first_k_dense_replace)
    if config.model_type in ("glm4_moe", "glm4_moe_lite", "deepseek_v2", "deepseek_v3", "dots1"):
        writer.add_expert_shared_count(config.n_shared_experts)
        writer.add_leading_dense_block_count(getattr(config, "first_k_dense_replace", 1))
        if config.model_type != "deepseek_v2":  # as converters wrote it at first
            writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
        writer.add_expert_weights_scale(config.routed_scaling_factor)
        writer.add_expert_weights_norm(config.norm_topk_prob)
        writer.add_expert_group_count(config.n_group)
        writer.add_expert_group_used_count(config.topk_group)


def _dense(name: str, tensor: torch.Tensor, block: str) -> dict[str, torch.Tensor]:
    """The block of a Granite as any other's, which is called `block`."""
    if "output_linear" in name:
        return {name.replace("shared_mlp.output_linear", f"{block}.down_proj"): tensor}
    parts = zip((f"{block}.gate_proj", f"{block}.up_proj"), tensor.chunk(2), strict=True)
    return {name.replace("shared_mlp.input_linear", part): matrix for part, matrix in parts}


def with_split_experts(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The same with a stack each of gate, up and down matrices, [experts, out, in], and of their biases."""
    found: dict[str, torch.Tensor] = {}
    sparse = any(".block_sparse_moe." in name for name in tensors)
    is_llama4 = any(".feed_forward.router." in name for name in tensors)
    for name, tensor in tensors.items():
        if name.endswith("put_linear.weight") and ".shared_mlp." in name:
            found |= _dense(name, tensor, "mlp.shared_expert" if sparse else "mlp")
            continue
        name = name.replace(".block_sparse_moe.experts.", ".mlp.experts.").replace("moe.router.", "moe.router.layer.")
        name = name.replace(".feed_forward.experts.", ".mlp.experts.").replace(".gate.moe_statics.", ".moe_statics.")
        prefix, fused, part = name.partition(".mlp.experts.")
        if name.endswith(".sinks"):
            found[f"{name}.weight"] = tensor
        elif name.endswith(".e_score_correction_bias"):
            found[f"{name.removesuffix('_bias')}.bias"] = tensor
        elif name.endswith(".expert_bias"):
            found[f"{name}.bias"] = tensor
        elif name.endswith(".shared_expert_gate.weight"):
            found[name] = tensor[0]
        elif not fused:
            found[name] = tensor
        else:
            is_gpt_oss = f"{prefix}.mlp.experts.down_proj_bias" in tensors
            base, kind = (part.removesuffix("_bias"), "bias") if part.endswith("_bias") else (part, "weight")
            if is_llama4 or (is_gpt_oss and kind == "weight"):
                tensor = tensor.transpose(1, 2)
            if base == "down_proj":
                found[f"{prefix}.mlp.experts.down_proj.{kind}"] = tensor
            else:
                gate, up = (tensor[:, 0::2], tensor[:, 1::2]) if is_gpt_oss else tensor.chunk(2, dim=1)
                found[f"{prefix}.mlp.experts.gate_proj.{kind}"] = gate
                found[f"{prefix}.mlp.experts.up_proj.{kind}"] = up
    return {name: tensor.contiguous() for name, tensor in found.items()}
