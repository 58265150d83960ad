"""LFM2's layer without attention: a short convolution between two gates, all made of the layer's input."""

from torch import Tensor

from local_engine.config import ModelConfig
from local_engine.layers.ops import Ops
from local_engine.layers.recurrent_state import LayerState, StateRows, recur
from local_engine.layers.short_conv import short_conv
from local_engine.loading.weights import Weights
from local_engine.models.projection import projection
from local_engine.recurrent_config import ShortConvConfig

__all__ = ["ShortConvolution"]


class ShortConvolution:
    """That of layer `index`: from normalised hidden states to what is added to the residual."""

    def __init__(self, config: ModelConfig, conv: ShortConvConfig, index: int, weights: Weights, ops: Ops) -> None:
        name, channels = f"model.layers.{index}.conv", conv.channels
        self._input = projection(weights, ops, {f"{name}.in_proj": 3 * channels}, config.hidden_size, bias=conv.bias)
        self._weight = weights.taps(f"{name}.conv.weight", channels, conv.taps).float()
        self._bias = weights.joined([f"{name}.conv.bias"], [channels]).float() if conv.bias else None
        self._output = projection(weights, ops, {f"{name}.out_proj": config.hidden_size}, channels, bias=conv.bias)

    def __call__(self, x: Tensor, state: LayerState, rows: StateRows) -> Tensor:
        """x [T, hidden_size] -> [T, hidden_size]; writes the states behind the rows."""
        gate, out_gate, x = self._input(x).chunk(3, dim=-1)
        convolved = recur((gate * x,), state, rows, self._convolve)
        return self._output(out_gate * convolved.to(x.dtype))

    def _convolve(self, inputs: tuple[Tensor, ...], states: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        output, tail = short_conv(inputs[0], states[0], self._weight, self._bias)
        return output, (tail,)
