"""The norms of a decoder by the names of their weights, of the kind that its configuration says."""

from collections.abc import Callable
from functools import partial

import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from local_engine.config import ModelConfig
from local_engine.layers.ops import Ops
from local_engine.loading.weights import Weights

__all__ = ["Norm", "read_norm", "unchanged", "unweighted_norm"]

# Over the last dimension; shape and dtype of what it gets.
Norm = Callable[[Tensor], Tensor]


def read_norm(config: ModelConfig, name: str, width: int, weights: Weights, ops: Ops) -> Norm:
    """Over vectors of `width` numbers. Raises ModelLoadError."""
    weight = weights.joined([f"{name}.weight"], [width])
    if config.block.norm_offset:  # bfloat16 keeps little of a small weight beside 1
        weight = weight.float() + config.block.norm_offset
    if config.block.norm == "layer_bias":
        bias = weights.joined([f"{name}.bias"], [width]).to(weight.dtype)
        return partial(ops.layer_norm, weight=weight, eps=config.rms_norm_eps, bias=bias)
    if config.block.norm == "layer":
        return partial(ops.layer_norm, weight=weight, eps=config.rms_norm_eps)
    return partial(ops.rms_norm, weight=weight, eps=config.rms_norm_eps)


def unweighted_norm(config: ModelConfig, width: int) -> Norm:
    """By the root of the mean square alone, over vectors of `width` numbers."""
    return partial(F.rms_norm, normalized_shape=(width,), eps=config.rms_norm_eps)


def unchanged(x: Tensor) -> Tensor:
    """What stands where there is no norm."""
    return x
