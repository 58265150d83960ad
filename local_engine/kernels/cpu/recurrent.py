"""Recurrent layers as the kernels want them, beside the matrices that every layer has."""

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import assert_never

from torch import Tensor

from local_engine.config import ModelConfig
from local_engine.kernels.cpu.structures import LayerStatesStruct, RecurrentStruct
from local_engine.loading.weights import Weights
from local_engine.models.gated_delta_net import delta_inputs
from local_engine.recurrent_config import GatedDeltaConfig, Mamba2Config, RecurrentConfig, ShortConvConfig
from local_engine.state_pool import StatePool

__all__ = ["RecurrentParts", "layer_states", "recurrent_parts", "unsupported_recurrence"]

# By their numbers in recurrent.h.
_SHORT_CONVOLUTION, _GATED_DELTA, _MAMBA2 = 0, 1, 2
_LANES, _TILE = 32, 16


def unsupported_recurrence(recurrent: RecurrentConfig) -> str | None:
    """Why the kernels cannot run layers of this shape, or None."""
    match recurrent:
        case ShortConvConfig():
            sizes = {"channels": (recurrent.channels, _LANES)}
        case GatedDeltaConfig():
            sizes = {
                "numbers of a key head": (recurrent.key_dim, _LANES),
                "numbers of a value head": (recurrent.value_dim, _LANES),
                "value heads": (recurrent.value_heads, _TILE),
            }
        case Mamba2Config():
            if recurrent.norm_eps is None:
                return "recurrent layers without a norm"
            sizes = {
                "heads": (recurrent.heads, _TILE),
                "numbers of a head": (recurrent.head_dim, _TILE),
                "numbers of a direction": (recurrent.state_size, _TILE),
            }
        case unreachable:
            assert_never(unreachable)
    for name, (value, multiple) in sizes.items():
        if value % multiple:
            return f"{value} {name} in recurrent layers, which is no multiple of {multiple}"
    return None


@dataclass(frozen=True, slots=True)
class RecurrentParts:
    """inputs: names and rows of the matrices that read the normed rows. output: the one that reads `columns` numbers.

    bias: each of these matrices has one.
    """

    inputs: Mapping[str, int]
    output: str
    columns: int
    bias: bool
    struct: RecurrentStruct


def recurrent_parts(
    config: ModelConfig, index: int, weights: Weights, address: Callable[[Tensor], int]
) -> RecurrentParts:
    """That of layer `index`. address: of a copy that is kept. Raises ModelLoadError."""
    prefix = f"model.layers.{index}"
    match config.recurrent:
        case ShortConvConfig() as conv:
            return _short_convolution(conv, f"{prefix}.conv", weights, address)
        case GatedDeltaConfig() as delta:
            return _gated_delta(delta, f"{prefix}.linear_attn", weights, address, eps=config.rms_norm_eps)
        case Mamba2Config() as mamba:
            return _mamba2(mamba, f"{prefix}.mamba", weights, address)
        case None:
            raise ValueError(f"layer {index} of {config.architecture} is not recurrent")
        case unreachable:
            assert_never(unreachable)


def _short_convolution(
    conv: ShortConvConfig, name: str, weights: Weights, address: Callable[[Tensor], int]
) -> RecurrentParts:
    channels = conv.channels
    struct = RecurrentStruct(
        kind=_SHORT_CONVOLUTION,
        taps=conv.taps,
        channels=channels,
        tap_weights=address(weights.taps(f"{name}.conv.weight", channels, conv.taps)),
        tap_bias=address(weights.joined([f"{name}.conv.bias"], [channels])) if conv.bias else None,
    )
    return RecurrentParts({f"{name}.in_proj": 3 * channels}, f"{name}.out_proj", channels, conv.bias, struct)


def _gated_delta(
    delta: GatedDeltaConfig, name: str, weights: Weights, address: Callable[[Tensor], int], *, eps: float
) -> RecurrentParts:
    for prefix in ("visual.", "mtp."):  # of what Qwen3.5 does beside reading text
        weights.skip_under(prefix)
    heads = delta.value_heads
    # A GGUF has what becomes of the number that safetensors have.
    stored = weights.has(f"{name}.A")
    rates = weights.joined([f"{name}.A"], [heads]) if stored else -weights.joined([f"{name}.A_log"], [heads]).exp()
    struct = RecurrentStruct(
        kind=_GATED_DELTA,
        taps=delta.taps,
        channels=delta.channels,
        tap_weights=address(weights.taps(f"{name}.conv1d.weight", delta.channels, delta.taps)),
        rates=address(rates),
        rate_bias=address(weights.joined([f"{name}.dt_bias"], [heads])),
        norm=address(weights.joined([f"{name}.norm.weight"], [delta.value_dim])),
        key_heads=delta.key_heads,
        value_heads=heads,
        key_dim=delta.key_dim,
        value_dim=delta.value_dim,
        tiled=delta.tiled,
        eps=eps,
    )
    inputs = delta_inputs(delta, name, weights)
    return RecurrentParts(inputs, f"{name}.out_proj", delta.values, False, struct)


def _mamba2(mamba: Mamba2Config, name: str, weights: Weights, address: Callable[[Tensor], int]) -> RecurrentParts:
    heads, channels = mamba.heads, mamba.channels
    # A GGUF has what becomes of the number that safetensors have.
    stored = weights.has(f"{name}.A")
    rates = weights.flat(f"{name}.A", heads) if stored else -weights.flat(f"{name}.A_log", heads).exp()
    struct = RecurrentStruct(
        kind=_MAMBA2,
        taps=mamba.taps,
        channels=channels,
        tap_weights=address(weights.taps(f"{name}.conv1d.weight", channels, mamba.taps)),
        tap_bias=address(weights.joined([f"{name}.conv1d.bias"], [channels])) if mamba.conv_bias else None,
        rates=address(rates),
        rate_bias=address(weights.joined([f"{name}.dt_bias"], [heads])),
        norm=address(weights.flat(f"{name}.norm.weight", mamba.width)),
        direct=address(weights.flat(f"{name}.D", heads)),
        key_heads=mamba.groups,
        value_heads=heads,
        key_dim=mamba.state_size,
        value_dim=mamba.head_dim,
        eps=mamba.norm_eps,
    )
    inputs = {f"{name}.in_proj": mamba.width + channels + heads}
    return RecurrentParts(inputs, f"{name}.out_proj", mamba.width, mamba.bias, struct)


def layer_states(config: ModelConfig, states: StatePool) -> "ctypes.Array[LayerStatesStruct] | None":
    """Where the states of each layer lie, None of a model without any."""
    if config.recurrent is None:
        return None
    structs = (LayerStatesStruct * config.num_layers)()
    for index, layer in zip(sorted(config.recurrent.layers), states.layers, strict=True):
        structs[index] = LayerStatesStruct(*(part.data_ptr() for part in layer.parts))
    return structs
