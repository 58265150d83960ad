"""The recurrent layers of a decoder, by what its configuration says that they are."""

from collections.abc import Callable

from torch import Tensor

from local_engine.config import ModelConfig
from local_engine.layers.ops import Ops
from local_engine.layers.recurrent_state import LayerState, StateRows
from local_engine.loading.weights import Weights
from local_engine.models.short_convolution import ShortConvolution

__all__ = ["Recurrent", "build_recurrent"]

# From normalised hidden states [T, hidden_size] to what is added to the residual; writes the states behind the rows.
Recurrent = Callable[[Tensor, LayerState, StateRows], Tensor]


def build_recurrent(config: ModelConfig, index: int, weights: Weights, ops: Ops) -> Recurrent:
    """That of layer `index`. Raises ModelLoadError naming a missing or misshapen tensor."""
    assert config.recurrent is not None
    return ShortConvolution(config, config.recurrent, index, weights, ops)
