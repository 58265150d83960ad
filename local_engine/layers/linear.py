"""The linear layer: y = x W^T + b over all rows of a step at once."""

from dataclasses import dataclass
from typing import Protocol

import torch.nn.functional as F  # noqa: N812
from torch import Tensor

__all__ = ["DenseLinear", "Linear"]


class Linear(Protocol):
    """A weight matrix in whatever storage, applied to rows."""

    def __call__(self, x: Tensor) -> Tensor:
        """[T, in] -> [T, out], dtype of x."""


@dataclass(frozen=True, slots=True)
class DenseLinear:
    """weight [out, in] and bias [out] in the compute dtype."""

    weight: Tensor
    bias: Tensor | None = None

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)
