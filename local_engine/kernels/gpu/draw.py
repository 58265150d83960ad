"""Tokens from logits on the device, without a wait for it: what a step that runs ahead draws with.

The rules and the noise are those of `sampler`, for rows that ask for no more than `Draw` says.
"""

import math
from collections.abc import Sequence as SequenceOf

import numpy as np
import torch
from torch import Tensor

from local_engine.executor import Draw
from local_engine.kernels.gpu.step_rows import to_device
from local_engine.philox import uniforms

__all__ = ["draw_tokens"]


def draw_tokens(logits: Tensor, draws: SequenceOf[Draw]) -> Tensor:
    """A token for each row of logits [R, V] float32: [R] int64; -1 where they are not finite numbers."""
    largest, tokens = logits.max(-1)
    if any(draw.temperature > 0 for draw in draws):
        drawn = _draw(logits - largest[:, None], draws)
        greedy = to_device(np.array([draw.temperature == 0 for draw in draws]), logits.device)
        tokens = torch.where(greedy, tokens, drawn)
    return torch.where(largest.isfinite(), tokens, -1)


def _draw(logits: Tensor, draws: SequenceOf[Draw]) -> Tensor:
    """logits: less their largest."""

    def column(values: list[float], dtype: type = np.float32) -> Tensor:
        return to_device(np.array(values, dtype=dtype), logits.device)[:, None]

    vocab_size = logits.shape[1]
    scaled = logits / column([draw.temperature or 1.0 for draw in draws])
    if any(0 < draw.top_k < vocab_size or draw.top_p < 1 or draw.min_p > 0 for draw in draws):
        ordered, _ = scaled.sort(-1, descending=True)
        counts = [min(draw.top_k or vocab_size, vocab_size) for draw in draws]
        floor = ordered.gather(1, column([count - 1 for count in counts], np.int64))
        weights = ordered.exp().masked_fill(ordered < floor, 0.0)
        reached = weights.cumsum(-1, dtype=torch.float64)
        needed = column([draw.top_p for draw in draws], np.float64) * reached[:, -1:]
        # A token is kept while those before it have not reached the mass: the likeliest one always is.
        kept = (reached - weights < needed).sum(-1, keepdim=True).clamp(min=1)
        floor = torch.maximum(floor, ordered.gather(1, kept - 1))
        shares = [math.log(draw.min_p) if draw.min_p > 0 else -math.inf for draw in draws]
        scaled = scaled.masked_fill(scaled < torch.maximum(floor, column(shares)), -torch.inf)
    cumulative = scaled.exp().cumsum(-1, dtype=torch.float64)
    noise = uniforms([draw.seed for draw in draws], [draw.position for draw in draws])
    targets = to_device(noise, logits.device)[:, None] * cumulative[:, -1:]
    # The first id whose cumulative weight exceeds the target: one of weight 0 cannot be it.
    return torch.searchsorted(cumulative, targets, right=True)[:, 0].clamp(max=vocab_size - 1)
