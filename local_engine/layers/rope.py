"""Rotary position embedding in the half-split order: dimension i of the R that turn does so together with i + R/2.

Frequencies and angles are computed in float32 whatever the model's dtype. Scaling: linear divides all frequencies;
llama3 divides the long wavelengths only, as in Meta's reference implementation of Llama 3.1; yarn does so on a ramp
over the dimensions, and its turned vectors are longer by a factor (Peng et al. 2023, section 3); longrope divides each
frequency by a factor of its own, by one list up to the trained window and by another beyond it (Ding et al. 2024);
proportional keeps a share of the frequencies and turns nothing by the others.
"""

import math

import torch
from torch import Tensor

from local_engine.attention_config import RopeConfig

__all__ = ["apply_rope", "frequency_axes", "inverse_frequencies", "rope_tables"]


def inverse_frequencies(rope: RopeConfig, head_dim: int, *, max_context: int) -> Tensor:
    """Radians a position for each pair of the R dimensions that turn: [R/2], float32.

    max_context: the window that is served, by which longrope chooses. Longrope without factors is not stretched.
    """
    head_dim = head_dim if rope.rotary_dim is None else rope.rotary_dim
    frequencies = 1.0 / (rope.theta ** (torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim))
    match rope.scaling:
        case "none":
            return frequencies
        case "linear":
            return frequencies / rope.factor
        case "proportional":
            turning = int(rope.turning_share * head_dim // 2)
            return torch.cat((frequencies[:turning], torch.zeros_like(frequencies[turning:]))) / rope.factor
        case "longrope":
            factors = rope.long_factors if max_context > rope.original_max_context else rope.short_factors
            return frequencies / torch.tensor(factors, dtype=torch.float32) if factors else frequencies
        case "llama3":
            wavelengths = 2 * math.pi / frequencies
            turns = rope.original_max_context / wavelengths
            smooth = (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
            smooth = smooth.clamp(0.0, 1.0)
            return (1 - smooth) * frequencies / rope.factor + smooth * frequencies
        case "yarn":
            low, high = (_yarn_dimension(rope, turns, head_dim) for turns in (rope.beta_fast, rope.beta_slow))
            if rope.truncate:
                low, high = math.floor(low), math.ceil(high)
            low, high = max(low, 0), min(high, head_dim - 1)
            # As transformers and llama.cpp do it: an empty ramp is a step.
            width = high - low if high != low else 0.001
            divided = ((torch.arange(head_dim // 2, dtype=torch.float32) - low) / width).clamp(0.0, 1.0)
            return divided * frequencies / rope.factor + (1 - divided) * frequencies


def frequency_axes(rope: RopeConfig) -> Tensor:
    """By which of the three axes of a position each frequency turns: [R/2] int64 (Wang et al. 2024, section 2.1)."""
    if not rope.mrope_interleaved:
        return torch.repeat_interleave(torch.arange(3), torch.tensor(rope.mrope_sections))
    index = torch.arange(sum(rope.mrope_sections))
    axis = index % 3
    # One of each axis in turn; an axis that is used up leaves its places to time.
    return torch.where(index < 3 * torch.tensor(rope.mrope_sections)[axis], axis, 0)


def _yarn_dimension(rope: RopeConfig, turns: float, head_dim: int) -> float:
    """The pair of dimensions, as a real number, that turns so often within the trained window."""
    return head_dim * math.log(rope.original_max_context / (turns * 2 * math.pi)) / (2 * math.log(rope.theta))


def rope_tables(
    positions: Tensor, frequencies: Tensor, dtype: torch.dtype, *, attention_factor: float = 1.0
) -> tuple[Tensor, Tensor]:
    """Cosines and signed sines for `apply_rope`: two [T, 1, R], shared by all heads and layers of a step.

    positions: [T], or [T, R/2] where each frequency has its own. attention_factor: what the length of a turned vector
    is multiplied with.
    """
    angles = (positions if positions.ndim == 2 else positions[:, None]).to(torch.float32) * frequencies
    cos, sin = angles.cos() * attention_factor, angles.sin() * attention_factor
    return (
        torch.cat((cos, cos), -1).to(dtype).unsqueeze(1),
        torch.cat((-sin, sin), -1).to(dtype).unsqueeze(1),
    )


def apply_rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x [T, heads, D] with its first R dimensions turned by the angles of `rope_tables`."""
    width = cos.shape[-1]
    if width < x.shape[-1]:
        return torch.cat((apply_rope(x[..., :width], cos, sin), x[..., width:]), -1)
    return torch.addcmul(x * cos, x.roll(width // 2, -1), sin)
