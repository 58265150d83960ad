"""From the hidden states of a text to one vector: mean, first or last token."""

from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

__all__ = ["Pooling", "normalized", "pooled"]

Pooling = Literal["mean", "cls", "last"]


def pooled(hidden: Tensor, lengths: Sequence[int], pooling: Pooling) -> Tensor:
    """hidden [T, H], the texts one after the other, each of its length -> [N, H] float32.

    Each text by itself, so that a row is the same in any batch.
    """
    texts = torch.split(hidden, list(lengths))
    match pooling:
        case "mean":
            return torch.stack([text.float().mean(0) for text in texts])
        case "cls":
            return torch.stack([text[0].float() for text in texts])
        case "last":
            return torch.stack([text[-1].float() for text in texts])


def normalized(rows: Tensor) -> Tensor:
    """Of length 1; zeros stay zeros."""
    return F.normalize(rows, dim=-1)
