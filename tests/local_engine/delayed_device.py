"""A device that delays its results: what is launched is computed no earlier than its results are fetched.

It computes as the torch reference does and draws as the sampler does, from what a sequence was when its step was
launched, so an engine that looks ahead of what it may know, or hands over what changes later, gets other answers.
"""

from collections.abc import Mapping
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, field, replace

import torch

from local_engine.chunk import PENDING, Chunk
from local_engine.errors import GenerationFailed
from local_engine.executor import Executor, StepRows
from local_engine.generation import TokenOutput
from local_engine.loading.load import LoadedModel
from local_engine.sampler import SamplerRow, sample
from local_engine.sequence import Sequence

__all__ = ["DelayedDevice", "delayed"]


@dataclass(eq=False)
class _Step:
    """Implements `LaunchedStep`. copies: of the chunks, by the chunk that was handed in."""

    device: "DelayedDevice"
    copies: dict[Chunk, Chunk]
    draws: Mapping[Chunk, SamplerRow]
    places: Mapping[Chunk, int]
    """Where in the answer the engine thinks that each drawn token stands."""
    tokens: dict[Chunk, TokenOutput | GenerationFailed] | None = None

    def fetch(self) -> Mapping[Chunk, TokenOutput | GenerationFailed]:
        self.device.compute_up_to(self)
        assert self.tokens is not None
        return self.tokens


@dataclass
class DelayedDevice:
    """Implements `Executor` and `Ahead` over another.

    raise_at: numbers of the steps that raise when they are fetched. refuse_at: of those that raise when launched.
    """

    executor: Executor
    raise_at: frozenset[int] = frozenset()
    refuse_at: frozenset[int] = frozenset()
    launches: int = 0
    blind_launches: int = 0
    """Launches with a token that the host did not know."""
    _queue: list[_Step] = field(default_factory=list)
    _last: dict[Sequence, TokenOutput | GenerationFailed] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.num_blocks, self.num_states = self.executor.num_blocks, self.executor.num_states
        self.logits, self.sample = self.executor.logits, self.executor.sample

    @property
    def ahead(self) -> "DelayedDevice":
        return self

    def launch(self, chunks: SequenceOf[Chunk], draws: Mapping[Chunk, SamplerRow]) -> _Step:
        assert len(self._queue) <= 1  # one step may be under way when the next is launched, and no more
        self.launches += 1
        if self.launches in self.refuse_at:
            raise RuntimeError("the device takes no more")
        self.blind_launches += any(PENDING in chunk.tokens for chunk in chunks)
        copies = {chunk: _copied(chunk) for chunk in chunks}
        places = {chunk: row.position for chunk, row in draws.items()}
        step = _Step(self, copies, {chunk: SamplerRow(copies[chunk].sequence) for chunk in draws}, places)
        self._queue.append(step)
        return step

    def compute_up_to(self, step: _Step) -> None:
        while step in self._queue:
            self._compute(self._queue.pop(0))

    def forward(self, chunks: SequenceOf[Chunk]) -> StepRows:
        self._finish()
        return self.executor.forward(chunks)

    def copy_blocks(self, pairs: SequenceOf[tuple[int, int]]) -> None:
        self._finish()
        self.executor.copy_blocks(pairs)

    def prepare(self) -> bool:
        return self.executor.prepare()

    def close(self) -> None:
        self._queue.clear()
        self.executor.close()

    def _finish(self) -> None:
        for step in list(self._queue):
            self.compute_up_to(step)

    @torch.inference_mode()
    def _compute(self, step: _Step) -> None:
        if self.launches - len(self._queue) in self.raise_at:
            self._queue.clear()
            raise RuntimeError("the device was lost for a moment")
        for chunk, copy in step.copies.items():
            if PENDING in copy.tokens:
                known = self._last[chunk.sequence]
                copy.sequence.append(known.token_id if isinstance(known, TokenOutput) else 0)
        rows = self.executor.forward(list(step.copies.values()))
        firsts = zip(rows.chunks, rows.first_row, strict=True)
        last_rows = {chunk: row + chunk.stop - chunk.start - 1 for chunk, row in firsts}
        logits = self.executor.logits(rows.hidden[[last_rows[step.copies[chunk]] for chunk in step.draws]])
        for chunk, row in step.draws.items():
            assert step.places[chunk] == row.position
        drawn = sample(logits, list(step.draws.values())) if step.draws else []
        step.tokens = dict(zip(step.draws, drawn, strict=True))
        self._last = {chunk.sequence: token for chunk, token in step.tokens.items()}


def _copied(chunk: Chunk) -> Chunk:
    """The chunk of a sequence that stays as it is."""
    copy = chunk.sequence.fork(member=0, seed=chunk.sequence.seed)
    copy.blocks = list(chunk.sequence.blocks)
    copy.num_computed = chunk.start
    return replace(chunk, sequence=copy)


def delayed(
    loaded: LoadedModel, *, raise_at: frozenset[int] = frozenset(), refuse_at: frozenset[int] = frozenset()
) -> tuple[LoadedModel, list[DelayedDevice]]:
    """The model on such a device, and the devices that engines have opened."""
    opened: list[DelayedDevice] = []

    def open_executor(config: object) -> DelayedDevice:
        opened.append(DelayedDevice(loaded.open_executor(config), raise_at, refuse_at))  # type: ignore[arg-type]
        return opened[-1]

    return replace(loaded, open_executor=open_executor), opened
