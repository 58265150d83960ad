"""The linear layer over a weight that oneDNN has reordered once: what runs on a CPU in float32.

torch's own float32 product reads a weight of few rows at 11 GB/s and computes 16 rows at 66 GFLOP/s; over the
reordered weight the same is 28 GB/s and 150 GFLOP/s (2 cores of an AMD EPYC Zen 5, torch 2.13, 2026-11). Equal to
DenseLinear within 1e-5 of the sum of absolute products.
"""

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

__all__ = ["PackedLinear", "computed_rows"]

# The number of rows that the layout is chosen for; measured from 1 to 256, this one is good for all.
_LAYOUT_ROWS = 16
# oneDNN multiplies 1 or 2 rows by another kernel, which reads 540 MB of weights in 23 ms; 4 rows take 17 ms.
_LEAST_ROWS = 4


def computed_rows(rows: int) -> int:
    """With how many rows so many are computed: one of eight numbers between two powers of two.

    oneDNN generates code for each number of rows that it meets and never frees it: 0.5 MB a shape of weight, which came
    to 937 MB after 1,200 prompts of up to 512 tokens, and comes to 138 MB so (135 million weights, 2026-11).
    """
    step = 1 << max(rows.bit_length() - 4, 0)
    return max(rows + -rows % step, _LEAST_ROWS)


class PackedLinear:
    """Implements `Linear`. Keeps a reordered copy of the weight, so the caller should drop the one it passed."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight, _LAYOUT_ROWS)
        self._bias = bias

    def __call__(self, x: Tensor) -> Tensor:
        rows = x.shape[0]
        missing = computed_rows(rows) - rows
        if missing:
            x = F.pad(x, (0, 0, 0, missing))
        y: Tensor = torch.ops.mkldnn._linear_pointwise(x, self._weight, self._bias, "none", [], "")
        return y[:rows]
