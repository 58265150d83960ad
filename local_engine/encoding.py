"""What goes into an encoder of whole texts and what comes out, and the protocol that one satisfies.

Plain frozen data and numpy, no torch. An encoder turns token ids into one row of numbers: a vector that stands for the
text (an embedding), or a score of a pair of texts (a cross-encoder).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

__all__ = ["Encoder", "EncoderInfo", "EncoderInput", "EncoderStats", "ModelKind", "Rows"]

ModelKind = Literal["generation", "embedding", "scoring"]

Rows = npt.NDArray[np.float32]
"""[N, size], one row an input."""


@dataclass(frozen=True, slots=True)
class EncoderInput:
    """type_ids: which of two texts each token belongs to, for models that tell them apart; None is all the first."""

    token_ids: tuple[int, ...]
    type_ids: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class EncoderInfo:
    """What a model's files say about it.

    kind: what its rows are. max_tokens: of one input. size: numbers of a row.
    normalized: embeddings have length 1. dimensions: sizes that an embedding may be cut to; empty is none, and one
    entry of 0 is any.
    """

    kind: ModelKind
    vocab_size: int
    max_tokens: int
    size: int
    normalized: bool = True
    dimensions: tuple[int, ...] = ()

    def can_cut_to(self, dimensions: int) -> bool:
        """Whether embeddings of so many numbers are what the model was trained for."""
        if dimensions == self.size:
            return True
        return 1 <= dimensions < self.size and (dimensions in self.dimensions or self.dimensions == (0,))


@dataclass(frozen=True, slots=True)
class EncoderStats:
    """A moment of an encoder: requests and inputs that are not done yet, and totals since the start."""

    requests: int
    inputs: int
    tokens: int
    finished: int
    failed: int
    aborted: int


class Encoder(Protocol):
    """Satisfied by EncoderEngine, and by scripted ones in tests of other packages."""

    @property
    def info(self) -> EncoderInfo: ...

    async def encode(self, inputs: Sequence[EncoderInput], *, dimensions: int | None = None) -> Rows:
        """A row for each input, in their order, cut to `dimensions`.

        Raises InvalidInput, ContextOverflow, QueueFull or EngineClosed before anything is computed, GenerationFailed
        where the model's numbers are none. Cancelling it takes the inputs out that are not computed yet.
        """

    def stats(self) -> EncoderStats:
        """The present state; cheap, from any thread."""

    async def aclose(self, *, drain: bool = False) -> None:
        """Takes no more requests and ends the running ones with EngineClosed, or lets them end, with `drain`."""
