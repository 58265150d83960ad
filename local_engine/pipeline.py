"""Steps that overlap: the host plans one while the device computes the one before.

Owns the step that is under way. The host learns of a step's tokens one step late: what it launched meanwhile for a
sequence that has ended, was aborted or lost its blocks is dropped. Knows no requests, and no device but by `Ahead`.
"""

from dataclasses import dataclass

import torch

from local_engine.chunk import Chunk
from local_engine.errors import GenerationFailed
from local_engine.executor import Ahead, LaunchedStep
from local_engine.generation import TokenOutput
from local_engine.runner import StepResult
from local_engine.sampler import SamplerRow
from local_engine.scheduler import Scheduler

__all__ = ["Pipeline"]


@dataclass(frozen=True, slots=True)
class _Flight:
    """A launched step. epochs: those of the chunks' sequences then. drawn: the chunks after which a token is drawn."""

    step: LaunchedStep
    chunks: list[Chunk]
    epochs: list[int]
    drawn: frozenset[Chunk]


class Pipeline:
    """At most one step ahead of what the host knows. Not thread-safe: the engine's thread owns it."""

    def __init__(self, ahead: Ahead, scheduler: Scheduler) -> None:
        self._ahead = ahead
        self._scheduler = scheduler
        self._flight: _Flight | None = None

    @property
    def busy(self) -> bool:
        """A step is under way."""
        return self._flight is not None

    def advance(self, chunks: list[Chunk]) -> dict[Chunk, StepResult]:
        """Launches the chunks of the last plan and gives the results of the step before, empty if there is none.

        Raises whatever the device raises. Then no step is under way, and sequences are as they were before the first
        that was, save that what a failed launch left behind may have been computed.
        """
        before, self._flight = self._flight, None
        try:
            launched = self._launch(chunks) if chunks else None
        except Exception:
            if before is not None:
                self._take_back(before)
            self._scheduler.launched([])
            raise
        self._scheduler.launched(chunks)
        results: dict[Chunk, StepResult] = {}
        if before is not None:
            try:
                results = self._land(before)
            except Exception:
                for flight in (launched, before):
                    if flight is not None:
                        self._take_back(flight)
                self._scheduler.launched([])
                raise
        self._flight = launched
        return results

    @torch.inference_mode()
    def _launch(self, chunks: list[Chunk]) -> _Flight:
        ends = [chunk for chunk in chunks if chunk.reaches_end]
        draws = {chunk: SamplerRow(chunk.sequence, ahead=chunk.sequence.num_pending) for chunk in ends}
        epochs = [chunk.sequence.epoch for chunk in chunks]
        return _Flight(self._ahead.launch(chunks, draws), chunks, epochs, frozenset(draws))

    def _land(self, flight: _Flight) -> dict[Chunk, StepResult]:
        """Waits for a step. Its sequences no longer count what they hear of now as pending."""
        tokens = flight.step.fetch()
        results: dict[Chunk, StepResult] = {}
        for chunk, epoch in zip(flight.chunks, flight.epochs, strict=True):
            sequence = chunk.sequence
            if sequence.done or sequence.epoch != epoch:
                continue
            self._scheduler.settle(chunk)
            if chunk in flight.drawn:
                sequence.num_pending -= 1
                results[chunk] = _result(tokens[chunk])
        return results

    def _take_back(self, flight: _Flight) -> None:
        """As if the step had not been launched."""
        for chunk, epoch in zip(flight.chunks, flight.epochs, strict=True):
            sequence = chunk.sequence
            if not sequence.done and sequence.epoch == epoch:
                sequence.num_pending -= chunk in flight.drawn
                sequence.num_computed = chunk.start


def _result(outcome: TokenOutput | GenerationFailed) -> StepResult:
    if isinstance(outcome, GenerationFailed):
        return StepResult(failure=outcome)
    return StepResult(tokens=(outcome,))
