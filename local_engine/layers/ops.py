"""The table of operations that a model is built with."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from local_engine.layers.attention import PagedAttention, paged_attention
from local_engine.layers.layer_norm import layer_norm
from local_engine.layers.linear import DenseLinear, Linear
from local_engine.layers.packed_linear import PackedLinear
from local_engine.layers.rms_norm import rms_norm
from local_engine.layers.rope import apply_rope

__all__ = ["CPU_FLOAT32", "REFERENCE", "Ops", "best_ops"]


class NormOp(Protocol):
    """Over the last dimension; shape and dtype of x."""

    def __call__(self, x: Tensor, weight: Tensor, eps: float) -> Tensor: ...


class LayerNormOp(Protocol):
    """The same, with a bias that may be."""

    def __call__(self, x: Tensor, weight: Tensor, eps: float, bias: Tensor | None = None) -> Tensor: ...


@dataclass(frozen=True, slots=True)
class Ops:
    """One implementation of each operation. The reference row defines what the others must compute."""

    rms_norm: NormOp
    layer_norm: LayerNormOp
    apply_rope: Callable[[Tensor, Tensor, Tensor], Tensor]
    linear: Callable[[Tensor, Tensor | None], Linear]
    paged_attention: PagedAttention


REFERENCE = Ops(
    rms_norm=rms_norm,
    layer_norm=layer_norm,
    apply_rope=apply_rope,
    linear=DenseLinear,
    paged_attention=paged_attention,
)
CPU_FLOAT32 = replace(REFERENCE, linear=PackedLinear)


def best_ops(device: torch.device, dtype: torch.dtype) -> Ops:
    """The fastest row that runs here."""
    if device.type == "cpu" and dtype == torch.float32 and torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return CPU_FLOAT32
    return REFERENCE
