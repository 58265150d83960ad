"""What the runner asks of a model: hidden states from tokens, and logits from hidden states."""

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

from local_engine.config import ModelConfig
from local_engine.layers.attention import AttentionPlans, LayerCache
from local_engine.layers.recurrent_state import StepStates

__all__ = ["Model"]


class Model(Protocol):
    """A decoder over a paged KV cache, and over states where it has recurrent layers.

    Rows of one step may belong to any sequences; plans and states say which to which.
    """

    @property
    def config(self) -> ModelConfig:
        """The shape, which also sizes the KV cache."""

    def embed(self, token_ids: Tensor) -> Tensor:
        """token_ids [T] int64 -> [T, hidden_size]: what the first layer gets, the caller's to overwrite.

        Behind it, where layers have inputs of their own: what these have of the tokens, or of images.
        """

    def forward(
        self,
        hidden: Tensor,
        positions: Tensor,
        caches: Sequence[LayerCache],
        plans: AttentionPlans,
        states: StepStates,
    ) -> Tensor:
        """Of `embed`'s rows, which it may overwrite: [T, hidden_size], before the last norm. positions: as in `Batch`.

        caches: of the layers with attention. states: of the recurrent ones.
        """

    def normed(self, hidden: Tensor) -> Tensor:
        """[R, hidden_size] after the last norm: what stands for a text in an embedding model."""

    def logits(self, hidden: Tensor) -> Tensor:
        """[R, hidden_size] -> [R, V] float32."""
