"""Feed-forward blocks: gated (Shazeer 2020), down(activation(gate x) * up x), gate and up as one matrix; and plain."""

from collections.abc import Callable

from torch import Tensor

from local_engine.config import ModelConfig
from local_engine.layers.ops import Ops
from local_engine.loading.weights import Weights
from local_engine.models.projection import projection

__all__ = ["GatedMlp", "PlainMlp"]


class GatedMlp:
    """The dense feed-forward block `name`, of this width inside: [T, hidden_size] -> [T, hidden_size]."""

    def __init__(
        self,
        config: ModelConfig,
        name: str,
        weights: Weights,
        ops: Ops,
        *,
        width: int,
        activation: Callable[[Tensor], Tensor],
    ) -> None:
        self._width = width
        self._activation = activation
        if config.fused_gate_up:
            parts = {f"{name}.gate_up_proj": 2 * width}
        else:
            parts = {f"{name}.gate_proj": width, f"{name}.up_proj": width}
        self._gate_up = projection(weights, ops, parts, config.hidden_size, bias=config.mlp_bias)
        self._down = projection(weights, ops, {f"{name}.down_proj": config.hidden_size}, width, bias=config.mlp_bias)

    def __call__(self, x: Tensor) -> Tensor:
        gate_up = self._gate_up(x)
        return self._down(self._activation(gate_up[:, : self._width]).mul_(gate_up[:, self._width :]))


class PlainMlp:
    """The dense feed-forward block `name`, of this width inside, without a gate: down(activation(up x))."""

    def __init__(
        self,
        config: ModelConfig,
        name: str,
        weights: Weights,
        ops: Ops,
        *,
        width: int,
        activation: Callable[[Tensor], Tensor],
    ) -> None:
        hidden, bias = config.hidden_size, config.mlp_bias
        self._activation = activation
        self._up = projection(weights, ops, {f"{name}.up_proj": width}, hidden, bias=bias)
        self._down = projection(weights, ops, {f"{name}.down_proj": hidden}, width, bias=bias)

    def __call__(self, x: Tensor) -> Tensor:
        return self._down(self._activation(self._up(x)))
