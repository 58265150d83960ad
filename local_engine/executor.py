"""What computes a step: the seam between the engine and a device.

An executor owns one KV pool and the way through a model's weights. It knows token ids and blocks; what is done with the
logits (masks, scoring) is the runner's business. `torch_executor` is the reference and the twin of every other.
"""

from collections.abc import Mapping
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from local_engine.chunk import Chunk
from local_engine.errors import GenerationFailed
from local_engine.generation import TokenOutput
from local_engine.sampler import SamplerRow

__all__ = ["Ahead", "Executor", "LaunchedStep", "StepRows"]


@dataclass(frozen=True, slots=True)
class StepRows:
    """The hidden states of one step: [T, hidden_size], before the last norm.

    Rows that nobody asks for may hold anything: those of a chunk but its last known token and its draft, save where
    the request asks for log-probabilities or logits of its prompt.
    chunks: those of the step in the order of their rows, which is the executor's choice. first_row: the first of each.
    """

    hidden: Tensor
    chunks: tuple[Chunk, ...]
    first_row: tuple[int, ...]


class LaunchedStep(Protocol):
    """A step on its way."""

    def fetch(self) -> Mapping[Chunk, TokenOutput | GenerationFailed]:
        """The drawn tokens, as `Executor.sample` gives them. Waits. Raises what the device raises."""


class Ahead(Protocol):
    """Steps that are launched before the tokens of the one before are known to the host."""

    def launch(self, chunks: SequenceOf[Chunk], draws: Mapping[Chunk, SamplerRow]) -> LaunchedStep:
        """Starts computing the chunks, as `Executor.forward` does, and drawing the tokens after those in `draws`.

        Where a chunk's token is PENDING, it is the one that the launch before draws for the chunk's sequence. Reads
        sequences before it returns, and does not wait for the device.
        """


class Executor(Protocol):
    """Not thread-safe: the engine's thread owns it. Raises whatever its device raises."""

    @property
    def num_blocks(self) -> int:
        """KV blocks beside the padding block: ids 1 to this."""

    @property
    def num_states(self) -> int:
        """Slots for states of recurrent layers beside the one of zeros: ids 1 to this; 0 for a model without."""

    @property
    def ahead(self) -> Ahead | None:
        """Its way to compute steps ahead; None where a step's results are known when it returns."""

    def forward(self, chunks: SequenceOf[Chunk]) -> StepRows:
        """Computes the chunks in one pass and writes their keys and values to their sequences' blocks.

        Recurrent layers read each sequence's `state` and write its `next_state`; a step may be computed again.
        """

    def copy_blocks(self, pairs: SequenceOf[tuple[int, int]]) -> None:
        """Copies whole KV blocks in every layer, keys and values: (from, to) each. Called between two forwards.

        As if all were read before any is written; no block is written twice. Sequences that continue one another share
        blocks, and this gives each its own before it writes. A device with a stream of commands may return early.
        """

    def logits(self, hidden: Tensor) -> Tensor:
        """Of rows of `StepRows.hidden`: [R, hidden_size] -> [R, V] float32, the caller's to overwrite."""

    def sample(self, logits: Tensor, rows: SequenceOf[SamplerRow]) -> list[TokenOutput | GenerationFailed]:
        """The next token of each row of logits [B, V] float32, which may be overwritten: see `sampler.sample`."""

    def prepare(self) -> bool:
        """Does some milliseconds of what later steps would have to wait for; False where nothing of it is left.

        Called while no step is under way and none is to come yet.
        """

    def close(self) -> None:
        """Gives the KV pool and the threads back, though others still hold the executor. Nothing is called after it."""
