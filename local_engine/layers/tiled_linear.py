"""The linear layer in tiles of rows of one size: a row's result does not depend on the rows beside it.

A library chooses another algorithm for another number of rows, and so another order of sums. Every tile is a product
of the same shape, computed the same way; within it rows do not meet.
"""

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

__all__ = ["TILE_ROWS", "TiledLinear"]

# Reading the weights still takes longer than multiplying so many rows, on GPUs since 2020, so decoding loses little; a
# prompt of thousands of rows reads them again for each tile.
TILE_ROWS = 128


class TiledLinear:
    """Implements `Linear` over weight [out, in] and bias [out] in the compute dtype."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self.weight = weight
        self.bias = bias

    def __call__(self, x: Tensor) -> Tensor:
        num_rows = len(x)
        x = F.pad(x, (0, 0, 0, -num_rows % TILE_ROWS))
        out = torch.empty(len(x), len(self.weight), dtype=x.dtype, device=x.device)
        for start in range(0, len(x), TILE_ROWS):
            out[start : start + TILE_ROWS] = F.linear(x[start : start + TILE_ROWS], self.weight, self.bias)
        return out[:num_rows]
