"""How llama.cpp's converter describes recurrent layers: metadata, and tensors that it has in another form."""

from collections.abc import Mapping
from typing import Any

import gguf
import torch

__all__ = ["add_recurrent", "kv_heads", "with_gguf_states"]


def kv_heads(config: Any) -> int | list[int]:
    """One number, or one a layer where some have none."""
    if not config.model_type.startswith("lfm2"):
        count: int = config.num_key_value_heads
        return count
    return [config.num_key_value_heads if kind == "full_attention" else 0 for kind in config.layer_types]


def add_recurrent(writer: gguf.GGUFWriter, config: Any) -> None:
    """The shapes of states."""
    if config.model_type.startswith("lfm2"):
        writer.add_shortconv_l_cache(config.conv_L_cache)


def with_gguf_states(tensors: Mapping[str, torch.Tensor], config: Any) -> dict[str, torch.Tensor]:
    """The tensors as the converter stores them, by names that the gguf package's tables know."""
    found: dict[str, torch.Tensor] = {}
    for name, tensor in tensors.items():
        if name.endswith(("conv.conv.weight", "conv1d.weight")):
            tensor = tensor.squeeze(1)
        found[name] = tensor
    return found
