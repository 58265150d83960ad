"""Mamba-2's layer as Granite 4 has it: a short convolution, a state space, maybe a norm of what a gate leaves."""

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from local_engine.config import ModelConfig
from local_engine.layers.mamba2 import mamba2
from local_engine.layers.ops import Ops
from local_engine.layers.recurrent_state import LayerState, StateRows, recur
from local_engine.layers.short_conv import short_conv
from local_engine.loading.weights import Weights
from local_engine.models.projection import projection
from local_engine.recurrent_config import Mamba2Config

__all__ = ["Mamba2"]


class Mamba2:
    """That of layer `index`: from normalised hidden states to what is added to the residual."""

    def __init__(self, config: ModelConfig, mamba: Mamba2Config, index: int, weights: Weights, ops: Ops) -> None:
        self._mamba, self._ops = mamba, ops
        name, heads = f"model.layers.{index}.mamba", mamba.heads
        rows = mamba.width + mamba.channels + heads
        self._input = projection(weights, ops, {f"{name}.in_proj": rows}, config.hidden_size, bias=mamba.bias)
        self._conv = weights.taps(f"{name}.conv1d.weight", mamba.channels, mamba.taps).float()
        self._conv_bias = None
        if mamba.conv_bias:
            self._conv_bias = weights.joined([f"{name}.conv1d.bias"], [mamba.channels]).float()
        self._step_bias = weights.joined([f"{name}.dt_bias"], [heads]).float()
        # A GGUF has what becomes of the number that safetensors have.
        if weights.has(f"{name}.A"):
            self._rate = weights.flat(f"{name}.A", heads).float()
        else:
            self._rate = -weights.flat(f"{name}.A_log", heads).float().exp()
        self._direct = weights.flat(f"{name}.D", heads).float().unsqueeze(-1)
        self._norm = None if mamba.norm_eps is None else weights.flat(f"{name}.norm.weight", mamba.width)
        self._output = projection(weights, ops, {f"{name}.out_proj": config.hidden_size}, mamba.width, bias=mamba.bias)

    def __call__(self, x: Tensor, state: LayerState, rows: StateRows) -> Tensor:
        """x [T, hidden_size] -> [T, hidden_size]; writes the states behind the rows."""
        mamba = self._mamba
        gate, mixed, step = torch.split(self._input(x), [mamba.width, mamba.channels, mamba.heads], -1)
        step = F.softplus(step.float() + self._step_bias)
        output = recur((mixed, step), state, rows, self._recurrence).flatten(1)
        gated = output * F.silu(gate.float())
        if self._norm is None:
            return self._output(gated.to(x.dtype))
        # Each group of heads has a norm of its own.
        groups = gated.view(len(gated), mamba.groups, -1)
        normed = F.rms_norm(groups, groups.shape[-1:], eps=mamba.norm_eps).view_as(gated)
        return self._output(normed.to(x.dtype) * self._norm)

    def _recurrence(self, inputs: tuple[Tensor, ...], states: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        mixed, step = inputs
        tail, matrix = states
        mamba = self._mamba
        mixed, tail = short_conv(mixed, tail, self._conv, self._conv_bias)
        directions = mamba.groups * mamba.state_size
        x, b, c = torch.split(F.silu(mixed), [mamba.width, directions, directions], -1)
        x = x.reshape(*x.shape[:2], mamba.heads, mamba.head_dim)
        b, c = (self._of_heads(part.reshape(*part.shape[:2], mamba.groups, mamba.state_size)) for part in (b, c))
        output, matrix = mamba2(x * step.unsqueeze(-1), step * self._rate, b, c, state=matrix)
        return torch.addcmul(output, x, self._direct), (tail, matrix)

    def _of_heads(self, x: Tensor) -> Tensor:
        """[..., groups, N] -> [..., heads, N]."""
        return x.repeat_interleave(self._mamba.heads // self._mamba.groups, 2)
