"""Root-mean-square layer normalisation (Zhang and Sennrich 2019)."""

import torch.nn.functional as F  # noqa: N812
from torch import Tensor

__all__ = ["rms_norm"]


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x / sqrt(mean(x^2) + eps) * weight over the last dimension, in the weight's type; shape and dtype of x."""
    return F.rms_norm(x.to(weight.dtype), weight.shape, weight, eps).to(x.dtype)
