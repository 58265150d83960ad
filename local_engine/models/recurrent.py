"""The recurrent layers of a decoder, by what its configuration says that they are."""

from collections.abc import Callable
from typing import assert_never

from torch import Tensor

from local_engine.config import ModelConfig
from local_engine.layers.ops import Ops
from local_engine.layers.recurrent_state import LayerState, StateRows
from local_engine.loading.weights import Weights
from local_engine.models.gated_delta_net import GatedDeltaNet
from local_engine.models.mamba2 import Mamba2
from local_engine.models.short_convolution import ShortConvolution
from local_engine.recurrent_config import GatedDeltaConfig, Mamba2Config, ShortConvConfig

__all__ = ["Recurrent", "build_recurrent"]

# From normalised hidden states [T, hidden_size] to what is added to the residual; writes the states behind the rows.
Recurrent = Callable[[Tensor, LayerState, StateRows], Tensor]


def build_recurrent(config: ModelConfig, index: int, weights: Weights, ops: Ops) -> Recurrent:
    """That of layer `index`. Raises ModelLoadError naming a missing or misshapen tensor."""
    match config.recurrent:
        case ShortConvConfig() as conv:
            return ShortConvolution(config, conv, index, weights, ops)
        case GatedDeltaConfig() as delta:
            return GatedDeltaNet(config, delta, index, weights, ops)
        case Mamba2Config() as mamba:
            return Mamba2(config, mamba, index, weights, ops)
        case None:
            raise ValueError(f"layer {index} of {config.architecture} is not recurrent")
        case unreachable:
            assert_never(unreachable)
