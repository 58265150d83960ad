"""A causal convolution of a few taps, each channel by itself."""

import torch
from torch import Tensor

__all__ = ["short_conv"]


def short_conv(x: Tensor, tail: Tensor, weight: Tensor, bias: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """x [B, T, C] behind tail [B, K - 1, C], its last inputs; weight [K, C], bias [C] -> [B, T, C] and the next tail.

    All but x is float32, and so is what is computed. Each output adds its K products in the order of their positions,
    so it does not depend on how x is cut.
    """
    length = x.shape[1]
    read = torch.cat((tail, x.float()), 1)
    output = read[:, :length] * weight[0]
    for tap in range(1, len(weight)):
        output = torch.addcmul(output, read[:, tap : tap + length], weight[tap])
    return output if bias is None else output + bias, read[:, length:]
