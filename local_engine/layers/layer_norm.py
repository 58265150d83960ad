"""Layer normalisation (Ba et al. 2016)."""

import torch.nn.functional as F  # noqa: N812
from torch import Tensor

__all__ = ["layer_norm"]


def layer_norm(x: Tensor, weight: Tensor, eps: float, bias: Tensor | None = None) -> Tensor:
    """(x - mean(x)) / sqrt(variance(x) + eps) * weight + bias over the last dimension, in the weight's type.

    Shape and dtype of x. bias: of the weight's type.
    """
    return F.layer_norm(x.to(weight.dtype), weight.shape, weight, bias, eps).to(x.dtype)
