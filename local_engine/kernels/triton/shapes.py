"""What a launcher expects of its tensors. A kernel reads by address alone, so a wrong shape must not get that far."""

from collections.abc import Collection

import torch
from torch import Tensor

__all__ = ["FLOATS", "expect"]

# What the kernels compute from and to; inside they accumulate in float32.
FLOATS = (torch.float16, torch.bfloat16, torch.float32)


def expect(name: str, tensor: Tensor, shape: tuple[int, ...], dtypes: Collection[torch.dtype]) -> None:
    """Raises ValueError, which names the tensor, unless it is of this shape, of one of the types, and contiguous."""
    if tuple(tensor.shape) != shape:
        raise ValueError(f"{name}: expected the shape {shape}, got {tuple(tensor.shape)}")
    if tensor.dtype not in dtypes:
        raise ValueError(f"{name}: expected {' or '.join(map(str, dtypes))}, got {tensor.dtype}")
    if not tensor.is_contiguous():
        raise ValueError(f"{name}: expected a contiguous tensor, got the strides {tensor.stride()}")
