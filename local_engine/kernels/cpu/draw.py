"""Tokens from logits on the CPU kernels: the hot part of sampling, a row after the other in one call of C++.

The rules are the sampler's; rows with others than these are its business.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from local_engine.kernels.cpu.library import DRAW_RULE, Library, best_library

__all__ = ["DrawRules", "TopLogits", "draw", "library_for", "likeliest", "top_logits"]

DrawRules = npt.NDArray[np.void]
"""Of `DRAW_RULE`, one a row."""


def library_for(logits: Tensor) -> Library | None:
    """The kernels that can work on these logits: float32 on a CPU, rows one after the other."""
    if logits.device.type != "cpu" or logits.dtype != torch.float32 or not logits.is_contiguous():
        return None
    return best_library()


def likeliest(library: Library, logits: Tensor) -> tuple[Tensor, Tensor]:
    """The largest logit of each row and its first token, as torch.max: 9 us for 49,152 (AMD EPYC Zen 4, 2026-11)."""
    count, vocab_size = logits.shape
    largest = torch.empty(count)
    tokens = torch.empty(count, dtype=torch.int64)
    library.likeliest(logits.data_ptr(), count, vocab_size, largest.data_ptr(), tokens.data_ptr())
    return largest, tokens


class TopLogits(NamedTuple):
    """Of rows of logits: what makes log-probabilities of them, logit - largest - log_sum, and the likeliest tokens.

    largest, log_sum: [B, 1] float32. values, tokens: [B, top], the largest logits first, then by token.
    """

    largest: npt.NDArray[np.float32]
    log_sum: npt.NDArray[np.float32]
    values: npt.NDArray[np.float32]
    tokens: npt.NDArray[np.int64]


def top_logits(library: Library, logits: Tensor, top: int) -> TopLogits:
    """One pass over each row of [B, V]. top: at most V. Gives no numbers where a row has others than numbers."""
    normalisers = np.empty((len(logits), 2), dtype=np.float32)
    values = np.empty((len(logits), top), dtype=np.float32)
    tokens = np.empty((len(logits), top), dtype=np.int64)
    library.top_logits(logits.data_ptr(), logits.shape[1], normalisers, values, tokens)
    return TopLogits(normalisers[:, :1], normalisers[:, 1:], values, tokens)


def draw(library: Library, logits: Tensor, rules: DrawRules) -> Tensor:
    """A token for each row of [B, V]: [B] int64. The largest logit of each row must be a finite number."""
    if rules.dtype != DRAW_RULE or len(rules) != len(logits):
        raise ValueError(f"{len(logits)} rows of logits need as many rules")
    tokens = torch.empty(len(logits), dtype=torch.int64)
    library.draw(logits.data_ptr(), logits.shape[1], rules, tokens.data_ptr())
    return tokens
