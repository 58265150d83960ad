"""The table of operations that a model is built with."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from local_engine.layers.attention import PagedAttention, paged_attention
from local_engine.layers.linear import DenseLinear, Linear
from local_engine.layers.rms_norm import rms_norm
from local_engine.layers.rope import apply_rope

__all__ = ["REFERENCE", "Ops"]


@dataclass(frozen=True, slots=True)
class Ops:
    """One implementation of each operation. The reference row defines what the others must compute."""

    rms_norm: Callable[[Tensor, Tensor, float], Tensor]
    apply_rope: Callable[[Tensor, Tensor, Tensor], Tensor]
    linear: Callable[[Tensor, Tensor | None], Linear]
    paged_attention: PagedAttention


REFERENCE = Ops(rms_norm=rms_norm, apply_rope=apply_rope, linear=DenseLinear, paged_attention=paged_attention)
