"""The architectures that all fused decoders run: Llama, and in what others differ from it beyond `ModelConfig`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

__all__ = ["FAMILIES", "LLAMA", "Family"]


@dataclass(frozen=True, slots=True)
class Family:
    """activation: of the gate. norm_offset: added to the weights of norms. scaled_embedding: by sqrt(hidden_size).

    post_norms: what is added to the residual has norms of its own.
    """

    activation: Literal["silu", "gelu_tanh"] = "silu"
    norm_offset: float = 0.0
    scaled_embedding: bool = False
    post_norms: bool = False


LLAMA, _GEMMA = Family(), Family("gelu_tanh", 1.0, True, True)

FAMILIES: Mapping[str, Family] = {
    "llama": LLAMA,
    "mistral": LLAMA,
    "qwen2": LLAMA,
    "qwen3": LLAMA,
    "phi3": LLAMA,
    "smollm3": LLAMA,
    "gemma2": _GEMMA,
    "gemma3": _GEMMA,
}
"""By `ModelConfig.architecture`."""
