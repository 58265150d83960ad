"""Layer normalisation (Ba et al. 2016)."""

import torch.nn.functional as F  # noqa: N812
from torch import Tensor

__all__ = ["layer_norm"]


def layer_norm(x: Tensor, weight: Tensor, eps: float, bias: Tensor | None = None) -> Tensor:
    """(x - mean(x)) / sqrt(variance(x) + eps) * weight + bias over the last dimension; shape and dtype of x."""
    return F.layer_norm(x, weight.shape, weight, bias, eps)
