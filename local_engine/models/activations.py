"""The activations of feed-forward blocks, by the names that configurations give them."""

from collections.abc import Callable, Mapping

import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from local_engine.layer_config import Activation

__all__ = ["ACTIVATIONS"]


def _gelu_tanh(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")


def _relu_squared(x: Tensor) -> Tensor:
    return F.relu(x).square()


ACTIVATIONS: Mapping[Activation, Callable[[Tensor], Tensor]] = {
    "silu": F.silu,
    "gelu_tanh": _gelu_tanh,
    "relu_squared": _relu_squared,
}
