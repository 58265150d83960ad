"""Qwen's towers as llama.cpp's converter writes them (`mmproj`)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as FileType

__all__ = ["write_qwen_mmproj"]

_NAMES = gguf.get_tensor_name_map(gguf.MODEL_ARCH.MMPROJ, 4)

_TYPES: Mapping[str, gguf.VisionProjectorType] = {
    "qwen2_vl": gguf.VisionProjectorType.QWEN2VL,
    "qwen2_5_vl": gguf.VisionProjectorType.QWEN25VL,
    "qwen3_vl": gguf.VisionProjectorType.QWEN3VL,
    "qwen3_vl_moe": gguf.VisionProjectorType.QWEN3VL,
    "qwen3_5": gguf.VisionProjectorType.QWEN3VL,
    "qwen3_5_moe": gguf.VisionProjectorType.QWEN3VL,
}


def write_qwen_mmproj(
    model: Any, path: Path, *, matrix_type: FileType = FileType.F32, swapped: bool = False, **changes: Any
) -> Path:
    """swapped, changes: as in `write_mmproj`; there were older names in Qwen2-VL's time alone."""
    kind, vision = model.config.model_type, model.config.vision_config
    width = vision.embed_dim if kind == "qwen2_vl" else vision.hidden_size
    writer = gguf.GGUFWriter(path, "clip")
    writer.add_clip_has_vision_encoder(True)
    writer.add_clip_projector_type(_TYPES[kind])
    writer.add_vision_embedding_length(width)
    writer.add_vision_feed_forward_length(width * vision.mlp_ratio if kind == "qwen2_vl" else vision.intermediate_size)
    writer.add_vision_block_count(vision.depth)
    writer.add_vision_head_count(changes.get("head_count", vision.num_heads))
    writer.add_vision_patch_size(vision.patch_size)
    writer.add_vision_attention_layernorm_eps(1e-6)
    writer.add_vision_spatial_merge_size(vision.spatial_merge_size)
    writer.add_vision_image_mean(changes.get("image_mean", [0.5, 0.5, 0.5]))
    writer.add_vision_image_std(changes.get("image_std", [0.5, 0.5, 0.5]))
    for name, value in changes.get("pixels", {}).items():
        writer.add_uint32(f"clip.vision.{name}", value)
    positions = getattr(vision, "num_position_embeddings", None)
    writer.add_vision_image_size(560 if positions is None else int(positions**0.5) * vision.patch_size)
    if kind == "qwen2_5_vl":
        writer.add_vision_use_silu(True)
        writer.add_vision_n_wa_pattern(vision.fullatt_block_indexes[0] + 1)
        writer.add_vision_window_size(vision.window_size)
    stacked = getattr(vision, "deepstack_visual_indexes", ())
    if positions is not None:
        writer.add_vision_use_gelu(True)
        writer.add_vision_is_deepstack_layers([index in stacked for index in range(vision.depth)])
    for name, weight in model.state_dict().items():
        if ".visual." in name:
            values = weight.detach().to(torch.float32)
            for stored, part in _stored(name.partition(".visual.")[2], values, kind, list(stacked)).items():
                if stored == changes.get("leave_out"):
                    continue
                numbers = np.ascontiguousarray(part.numpy())
                called = _swapped(stored) if swapped and kind == "qwen2_vl" else stored
                if numbers.ndim == 2 and matrix_type is not FileType.F32:
                    writer.add_tensor(called, gguf.quants.quantize(numbers, matrix_type), raw_dtype=matrix_type)
                else:
                    writer.add_tensor(called, numbers)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _stored(name: str, values: torch.Tensor, kind: str, stacked: list[int]) -> dict[str, torch.Tensor]:
    """By the gguf package's own tables, with the frames of the patches apart, and Q, K and V of the older towers."""
    module, _, part = name.rpartition(".")
    if values.ndim == 5:
        first, second = values.unbind(2)
        return {"v.patch_embd.weight": first, "v.patch_embd.weight.1": second}
    if module.endswith("attn.qkv") and kind.startswith("qwen2"):
        stem = _NAMES.get_name(f"visual.{module}")
        assert stem is not None
        return {
            f"{stem.removesuffix('qkv')}{each}.{part}": piece
            for each, piece in zip("qkv", values.chunk(3), strict=True)
        }
    if module.startswith("deepstack_merger_list."):
        _, place, rest = module.split(".")
        module = f"deepstack_merger_list.{stacked[int(place)]}.{rest}"  # as the converter counts them
    module = {
        "merger.norm": "merger.ln_q",
        "merger.linear_fc1": "merger.mlp.0",
        "merger.linear_fc2": "merger.mlp.2",
    }.get(module, module)
    found = _NAMES.get_name(f"visual.{module}") or _NAMES.get_name(f"model.visual.{module}")
    assert found is not None, name
    return {f"{found}.{part}": values}


def _swapped(name: str) -> str:
    swap = {"ffn_up": "ffn_down", "ffn_down": "ffn_up"}
    return ".".join(swap.get(part, part) for part in name.split("."))
