"""Models that read images as llama.cpp's converter writes them: a decoder, and beside it a tower (`mmproj`)."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
import transformers
from gguf import GGMLQuantizationType as FileType

from tests.local_engine.models.tiny_qwen_mmproj import write_qwen_mmproj
from tests.local_engine.tiny_models import Oracle, write_gguf

__all__ = ["decoder_of", "write_mmproj", "write_pair"]

_PROJECTORS = {"gemma3": "gemma3", "idefics3": "idefics3", "smolvlm": "idefics3"}


def decoder_of(model: Any) -> Any:
    """The language model alone, with the same weights, as transformers has it."""
    config = model.config.text_config
    config.tie_word_embeddings = model.config.tie_word_embeddings
    if model.config.model_type.startswith("qwen"):  # transformers has no class for it alone
        return model
    decoder = transformers.AutoModelForCausalLM.from_config(config)
    inner = model.model.language_model if model.config.model_type == "gemma3" else model.model.text_model
    decoder.model.load_state_dict(inner.state_dict())
    decoder.lm_head.load_state_dict(model.lm_head.state_dict())
    return decoder.eval()


def write_pair(
    model: Any,
    folder: Path,
    add_vocabulary: Callable[[gguf.GGUFWriter], None],
    *,
    matrix_type: FileType = FileType.F32,
    **changes: Any,
) -> tuple[Path, Path]:
    """The decoder's file and the tower's. changes: as in `write_mmproj`."""
    folder.mkdir(exist_ok=True)
    decoder = write_gguf(
        Oracle(decoder_of(model)), folder / "model.gguf", matrix_type=matrix_type, add_vocabulary=add_vocabulary
    )
    return decoder, write_mmproj(model, folder / "mmproj.gguf", **changes)


def write_mmproj(
    model: Any,
    path: Path,
    *,
    matrix_type: FileType = FileType.F32,
    swapped: bool = False,
    leave_out: str | None = None,
    extra: str | None = None,
    **changes: Any,
) -> Path:
    """swapped: the names of what widens and what narrows, as older converters had them. changes: to keys, by what is
    behind their last dot."""
    if model.config.model_type.startswith("qwen"):
        return write_qwen_mmproj(model, path, matrix_type=matrix_type, swapped=swapped, **changes)
    vision, projector = model.config.vision_config, _PROJECTORS[model.config.model_type]
    patches = vision.image_size // vision.patch_size
    if model.config.model_type == "gemma3":
        square = patches // int(model.config.mm_tokens_per_image**0.5)
    else:
        square = model.config.scale_factor
    writer = gguf.GGUFWriter(path, changes.get("architecture", "clip"))
    writer.add_clip_has_vision_encoder(True)
    writer.add_clip_projector_type(changes.get("projector_type", projector))
    writer.add_vision_use_gelu(changes.get("use_gelu", True))
    writer.add_vision_image_size(changes.get("image_size", vision.image_size))
    writer.add_vision_patch_size(vision.patch_size)
    writer.add_vision_embedding_length(vision.hidden_size)
    writer.add_vision_feed_forward_length(vision.intermediate_size)
    writer.add_vision_block_count(vision.num_hidden_layers)
    writer.add_vision_head_count(changes.get("head_count", vision.num_attention_heads))
    writer.add_vision_attention_layernorm_eps(vision.layer_norm_eps)
    writer.add_vision_projector_scale_factor(changes.get("scale_factor", square))
    writer.add_vision_preproc_image_size(changes.get("preproc_image_size", 3 * vision.image_size))
    writer.add_vision_image_mean(changes.get("image_mean", [0.5, 0.5, 0.5]))
    writer.add_vision_image_std([0.5, 0.5, 0.5])
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.MMPROJ, vision.num_hidden_layers)
    for name, weight in model.state_dict().items():
        inner = name.removeprefix("model.").replace("_weight", ".weight")
        if inner.startswith(("vision_tower.head.", "language_model.", "text_model.", "lm_head.")):
            continue
        inner = inner.replace("vision_tower.", "vision_tower.vision_model.")
        stored = names.get_name(inner, (".weight", ".bias")) or names.get_name(f"model.{inner}", (".weight", ".bias"))
        assert stored is not None, name
        if stored == leave_out:
            continue
        if swapped:
            swap = {"ffn_up": "ffn_down", "ffn_down": "ffn_up"}
            stored = ".".join(swap.get(part, part) for part in stored.split("."))
        values = weight.detach().to(torch.float32).numpy()
        if "soft_emb_norm" in name:
            values = values + 1
        if values.ndim == 2 and matrix_type is not FileType.F32:
            writer.add_tensor(stored, gguf.quants.quantize(values, matrix_type), raw_dtype=matrix_type)
        else:
            writer.add_tensor(stored, np.ascontiguousarray(values))
    if extra is not None:
        writer.add_tensor(extra, np.zeros(4, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
