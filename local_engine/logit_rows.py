"""Some rows of a step's logits, as memory of their own.

On a CPU numpy copies them: torch would share so little work over its threads, and waking those beside the threads of
the kernels costs 5 to 30 ms where cores are scarce, which every sequence of the step would wait for.
"""

from collections.abc import Sequence as SequenceOf

import numpy as np
import torch
from torch import Tensor

__all__ = ["copied_rows", "joined_rows"]


def copied_rows(logits: Tensor, rows: SequenceOf[int]) -> Tensor:
    """[B, V] -> [len(rows), V], in the order of `rows`. logits: float32."""
    if logits.device.type == "cpu":
        return torch.from_numpy(logits.numpy()[list(rows)])
    return logits[list(rows)]


def joined_rows(parts: SequenceOf[Tensor]) -> Tensor:
    """Tensors [n, V] one under the other."""
    if parts[0].device.type == "cpu":
        return torch.from_numpy(np.concatenate([part.numpy() for part in parts]))
    return torch.cat(list(parts))
