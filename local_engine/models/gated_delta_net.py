"""The layers without attention of Qwen3-Next and Qwen3.5: a short convolution, a gated delta rule, a gated norm."""

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from local_engine.config import ModelConfig
from local_engine.layers.gated_delta import gated_delta
from local_engine.layers.ops import Ops
from local_engine.layers.recurrent_state import LayerState, StateRows, recur
from local_engine.layers.short_conv import short_conv
from local_engine.loading.weights import Weights
from local_engine.models.projection import projection
from local_engine.recurrent_config import GatedDeltaConfig

__all__ = ["GatedDeltaNet", "delta_inputs"]

_EPSILON = 1e-6


def delta_inputs(delta: GatedDeltaConfig, name: str, weights: Weights) -> dict[str, int]:
    """The matrices of layer `name` that read hidden states, and their rows: queries, keys and values side by side, then
    gates, strengths and rates.
    """
    heads = delta.value_heads
    parts = {"qkv": delta.channels, "z": delta.values}
    if weights.has(f"{name}.in_proj_qkvz.weight"):
        parts = {"qkvz": delta.channels + delta.values}
    rates = {"ba": 2 * heads} if weights.has(f"{name}.in_proj_ba.weight") else {"b": heads, "a": heads}
    return {f"{name}.in_proj_{part}": rows for part, rows in (parts | rates).items()}


class GatedDeltaNet:
    """That of layer `index`: from normalised hidden states to what is added to the residual.

    Files have a matrix for each kind of its inputs, or one for all; strengths and decays likewise.
    """

    def __init__(self, config: ModelConfig, delta: GatedDeltaConfig, index: int, weights: Weights, ops: Ops) -> None:
        self._delta = delta
        self._ops, self._eps = ops, config.rms_norm_eps
        name, heads = f"model.layers.{index}.linear_attn", delta.value_heads
        self._input = projection(weights, ops, delta_inputs(delta, name, weights), config.hidden_size)
        self._conv = weights.taps(f"{name}.conv1d.weight", delta.channels, delta.taps).float()
        self._rate_bias = weights.joined([f"{name}.dt_bias"], [heads]).float()
        # A GGUF has what becomes of the number that safetensors have.
        if weights.has(f"{name}.A"):
            self._decay = weights.joined([f"{name}.A"], [heads]).float()
        else:
            self._decay = -weights.joined([f"{name}.A_log"], [heads]).float().exp()
        self._norm = weights.joined([f"{name}.norm.weight"], [delta.value_dim])
        self._output = projection(weights, ops, {f"{name}.out_proj": config.hidden_size}, delta.values)

    def __call__(self, x: Tensor, state: LayerState, rows: StateRows) -> Tensor:
        """x [T, hidden_size] -> [T, hidden_size]; writes the states behind the rows."""
        delta = self._delta
        sizes = [delta.channels, delta.values, delta.value_heads, delta.value_heads]
        mixed, gate, strength, rate = torch.split(self._input(x), sizes, -1)
        log_decay = self._decay * F.softplus(rate.float() + self._rate_bias)
        values = recur((mixed, log_decay, strength.float().sigmoid()), state, rows, self._recurrence)
        values = self._ops.rms_norm(values.to(x.dtype), self._norm, self._eps)
        gated = values.float() * F.silu(gate.float().view_as(values))
        return self._output(gated.flatten(1).to(x.dtype))

    def _recurrence(self, inputs: tuple[Tensor, ...], states: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        mixed, log_decay, strength = inputs
        tail, matrix = states
        delta = self._delta
        mixed, tail = short_conv(mixed, tail, self._conv)
        keys = delta.key_heads * delta.key_dim
        q, k, v = torch.split(F.silu(mixed), [keys, keys, delta.values], -1)
        q, k = (
            self._of_value_heads(_unit(part.reshape(*part.shape[:2], delta.key_heads, delta.key_dim)))
            for part in (q, k)
        )
        v = v.reshape(*v.shape[:2], delta.value_heads, delta.value_dim)
        output, matrix = gated_delta(q * delta.key_dim**-0.5, k, v, log_decay, strength, state=matrix)
        return output, (tail, matrix)

    def _of_value_heads(self, x: Tensor) -> Tensor:
        """[..., key heads, D] -> [..., value heads, D]: each reads its key head's."""
        share = self._delta.value_heads // self._delta.key_heads
        if share == 1:
            return x
        return x.repeat(1, 1, share, 1) if self._delta.tiled else x.repeat_interleave(share, 2)


def _unit(x: Tensor) -> Tensor:
    """Vectors of length one, over the last dimension."""
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + _EPSILON)
