"""Logits of the rows that need them: of each sequence's last token, or of those whose log-probabilities are wanted.

A prompt of 8,192 tokens has 8,192 rows and needs one: all of them would be 2 GB of logits for a vocabulary of 128,256,
and twice the work of a layer. Gathering is torch's, and the product is cuBLAS's, or `quantized_matmul` in few bits.
"""

import torch.nn.functional as F  # noqa: N812
from torch import Tensor, int64

from local_engine.kernels.triton.quantized_matmul import quantized_matmul, quantized_matmul_twin
from local_engine.kernels.triton.shapes import FLOATS, expect
from local_engine.layers.quantized_matrix import QuantizedMatrix

__all__ = ["selected_logits", "selected_logits_twin"]


def selected_logits(
    hidden: Tensor,
    rows: Tensor | None,
    head: Tensor | QuantizedMatrix,
    *,
    soft_cap: float | None = None,
    splits: int = 1,
) -> Tensor:
    """hidden [T, W], normed, and rows [R] int64 -> [R, V] in its type. Differs from the twin by one rounding of that.

    rows: None is all, in order. head: [V, W] in the dtype of hidden, or in few bits. soft_cap: as Gemma 2 has it, and
    the logits are float32 then.
    splits: as `quantized_matmul`. Raises ValueError for wrong shapes and types; rows must be of the T.
    """
    if hidden.ndim != 2:
        raise ValueError(f"hidden: expected [T, W], got {tuple(hidden.shape)}")
    expect("hidden", hidden, tuple(hidden.shape), FLOATS)
    if rows is not None:
        expect("rows", rows, (rows.numel(),), (int64,))
        hidden = hidden.index_select(0, rows)
    if isinstance(head, QuantizedMatrix):
        logits = quantized_matmul(hidden, head, splits=splits)
    else:
        expect("head", head, (len(head), hidden.shape[1]), (hidden.dtype,))
        logits = F.linear(hidden, head)
    return _capped(logits, soft_cap)


def selected_logits_twin(
    hidden: Tensor,
    rows: Tensor | None,
    head: Tensor | QuantizedMatrix,
    *,
    soft_cap: float | None = None,
    splits: int = 1,
) -> Tensor:
    """See `selected_logits`: all rows in float32, of which some are taken."""
    dtype, hidden = hidden.dtype, hidden.float()
    if isinstance(head, QuantizedMatrix):
        logits = quantized_matmul_twin(hidden, head)
    else:
        logits = hidden @ head.float().T
    logits = logits if rows is None else logits[rows]
    return logits.to(dtype) if soft_cap is None else _capped(logits, soft_cap)


def _capped(logits: Tensor, soft_cap: float | None) -> Tensor:
    return logits if soft_cap is None else (logits.float() / soft_cap).tanh_().mul_(soft_cap)
