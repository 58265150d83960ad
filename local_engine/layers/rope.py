"""Rotary position embedding in the half-split order: dimension i turns together with i + D/2.

Frequencies and angles are computed in float32 whatever the model's dtype. Scaling: linear divides all frequencies;
llama3 divides the long wavelengths only, as in Meta's reference implementation of Llama 3.1.
"""

import math

import torch
from torch import Tensor

from local_engine.config import RopeConfig

__all__ = ["apply_rope", "inverse_frequencies", "rope_tables"]


def inverse_frequencies(rope: RopeConfig, head_dim: int) -> Tensor:
    """Radians a position for each pair of dimensions: [D/2], float32."""
    frequencies = 1.0 / (rope.theta ** (torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim))
    match rope.scaling:
        case "none":
            return frequencies
        case "linear":
            return frequencies / rope.factor
        case "llama3":
            wavelengths = 2 * math.pi / frequencies
            turns = rope.original_max_context / wavelengths
            smooth = (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
            smooth = smooth.clamp(0.0, 1.0)
            return (1 - smooth) * frequencies / rope.factor + smooth * frequencies


def rope_tables(positions: Tensor, frequencies: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosines and signed sines for `apply_rope`: two [T, 1, D], shared by all heads and layers of a step."""
    angles = torch.outer(positions.to(torch.float32), frequencies)
    cos, sin = angles.cos(), angles.sin()
    return (
        torch.cat((cos, cos), -1).to(dtype).unsqueeze(1),
        torch.cat((-sin, sin), -1).to(dtype).unsqueeze(1),
    )


def apply_rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x [T, heads, D] turned by the angles of `rope_tables`."""
    return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, -1), sin)
