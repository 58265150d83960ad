"""Recurrent layers as the kernels want them, beside the matrices that every layer has."""

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import assert_never

from torch import Tensor

from local_engine.config import ModelConfig
from local_engine.kernels.cpu.library import LayerStatesStruct, RecurrentStruct
from local_engine.loading.weights import Weights
from local_engine.recurrent_config import GatedDeltaConfig, Mamba2Config, RecurrentConfig, ShortConvConfig
from local_engine.state_pool import StatePool

__all__ = ["RecurrentParts", "layer_states", "recurrent_parts", "unsupported_recurrence"]

# By their numbers in recurrent.h.
_SHORT_CONVOLUTION = 0
_LANES = 32


def unsupported_recurrence(recurrent: RecurrentConfig) -> str | None:
    """Why the kernels cannot run layers of this shape, or None."""
    match recurrent:
        case ShortConvConfig():
            sizes = {"channels": recurrent.channels}
        case GatedDeltaConfig() | Mamba2Config():
            return "recurrent layers"
        case unreachable:
            assert_never(unreachable)
    for name, value in sizes.items():
        if value % _LANES:
            return f"{value} {name} of recurrent layers, which is no multiple of {_LANES}"
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
    match config.recurrent:
        case ShortConvConfig() as conv:
            name, channels = f"model.layers.{index}.conv", conv.channels
            struct = RecurrentStruct(
                kind=_SHORT_CONVOLUTION,
                taps=conv.taps,
                channels=channels,
                tap_weights=address(weights.taps(f"{name}.conv.weight", channels, conv.taps)),
                tap_bias=address(weights.joined([f"{name}.conv.bias"], [channels])) if conv.bias else None,
            )
            inputs = {f"{name}.in_proj": 3 * channels}
            return RecurrentParts(inputs, f"{name}.out_proj", channels, conv.bias, struct)
        case _:
            raise ValueError(f"layer {index} of {config.architecture} has no state")


def layer_states(config: ModelConfig, states: StatePool) -> "ctypes.Array[LayerStatesStruct] | None":
    """Where the states of each layer lie, None of a model without any."""
    if config.recurrent is None:
        return None
    structs = (LayerStatesStruct * config.num_layers)()
    for index, layer in zip(sorted(config.recurrent.layers), states.layers, strict=True):
        structs[index] = LayerStatesStruct(*(part.data_ptr() for part in layer.parts))
    return structs
