"""The executor over a fused decoder. Owns the KV pool, the recorded decode steps and what was drawn last."""

from collections.abc import Callable, Mapping
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from local_engine.chunk import Chunk
from local_engine.config import EngineConfig
from local_engine.errors import GenerationFailed
from local_engine.executor import StepRows
from local_engine.generation import TokenOutput
from local_engine.gpu_memory import kv_pool_bytes
from local_engine.kernels.dispatch import DeviceFacts
from local_engine.kernels.gpu.adapter_slots import AdapterSlots
from local_engine.kernels.gpu.decoder import FusedDecoder, StepTensors
from local_engine.kernels.gpu.graphs import DecodeGraphs, ladder
from local_engine.kernels.gpu.splits import SplitChoice
from local_engine.kernels.gpu.step_rows import HostStep, host_step, step_tensors, table_width
from local_engine.kernels.gpu.step_sampler import (
    DrawnRows,
    KernelSampler,
    ReferenceSampler,
    StepSampler,
    compile_sampler,
)
from local_engine.kernels.gpu.warm_up import step_bytes
from local_engine.kernels.tuning import Tuning
from local_engine.kv_pool import KvPool
from local_engine.layers.lora import LoraSites
from local_engine.sampler import SamplerRow
from local_engine.sequence import Sequence
from local_engine.transfers import to_device

__all__ = ["GpuExecutor"]

# Larger batches are computed without a graph: their kernels run long enough to hide how they are launched.
_LARGEST_GRAPH = 512


@dataclass(frozen=True, slots=True)
class _Launched:
    """Implements `LaunchedStep`. drawn: after each of the chunks; None where none reaches its end."""

    chunks: list[Chunk]
    drawn: DrawnRows | None

    def fetch(self) -> Mapping[Chunk, TokenOutput | GenerationFailed]:
        return {} if self.drawn is None else dict(zip(self.chunks, self.drawn.fetch(), strict=True))


class GpuExecutor:
    """Implements `Executor` and `Ahead`. Raises InvalidInput where the KV pool is too small or does not fit.

    recording: called with decode steps recorded and in all, while they are.
    """

    def __init__(
        self,
        model: FusedDecoder,
        config: EngineConfig,
        *,
        lora_sites: LoraSites,
        facts: DeviceFacts,
        recording: Callable[[int, int], None] | None = None,
    ) -> None:
        self._model = model
        self._lora_sites = lora_sites
        self._device = torch.device(config.device)
        self._block_size = config.block_size
        self._deterministic = config.deterministic
        self._sampler = _sampler_for(model, config)
        self._drawn = torch.zeros(1, dtype=torch.int64, device=self._device)
        self._drawn_rows: dict[Sequence, int] = {}
        self._pool = KvPool(model.config, config, kv_pool_bytes(config, reserved_bytes=step_bytes(model, config)))
        self.num_blocks = self._pool.num_blocks
        self.num_states = 0
        folder = config.cache_folder
        tuning = Tuning(None if folder is None else Path(folder) / "gpu-tuning.json", facts.tuning_key)
        if self._device.type == "cuda" and model.kernels.fused_sampler:
            compile_sampler(model.config.vocab_size, self._device, {torch.float32, model.dtype})
        self._splits = SplitChoice(model, self._pool.caches[0], config, facts=facts, tuning=tuning)
        self._adapters = AdapterSlots(
            model.kernels,
            device=self._device,
            dtype=model.dtype,
            fixed=config.deterministic,
            moving=self._forget_adapters,
        )
        self._graphs: DecodeGraphs | None = None
        if config.recorded_steps and not config.deterministic:
            self._graphs = self._record(config, recording)
        tuning.save()

    @property
    def ahead(self) -> "GpuExecutor":
        return self

    def forward(self, chunks: SequenceOf[Chunk]) -> StepRows:
        """See `Executor.forward`. What it gives is valid until the next step."""
        step = self._host_step(chunks)
        hidden, _ = self._compute(step)
        return StepRows(hidden, step.chunks, step.first_row)

    def launch(self, chunks: SequenceOf[Chunk], draws: Mapping[Chunk, SamplerRow]) -> _Launched:
        """See `Ahead.launch`."""
        step = self._host_step(chunks)
        _, normed = self._compute(step)
        placed = zip(step.chunks, step.first_row, strict=True)
        rows = {chunk: first + chunk.stop - chunk.start - 1 for chunk, first in placed if chunk in draws}
        self._drawn_rows = {chunk.sequence: row for row, chunk in enumerate(rows)}
        if not rows:
            return _Launched([], None)
        chosen = None if len(rows) == len(normed) else to_device(np.array(list(rows.values())), self._device)
        drawn = self._sampler.draw(self._model.logits(normed, chosen), [draws[chunk] for chunk in rows])
        self._drawn = drawn.token_ids
        return _Launched(list(rows), drawn)

    def copy_blocks(self, pairs: SequenceOf[tuple[int, int]]) -> None:
        """See `Executor.copy_blocks`."""
        self._pool.copy_blocks(pairs)

    def logits(self, hidden: Tensor) -> Tensor:
        """See `Executor.logits`."""
        return self._model.logits(self._model.normed(hidden)).float()

    def sample(self, logits: Tensor, rows: SequenceOf[SamplerRow]) -> list[TokenOutput | GenerationFailed]:
        """See `Executor.sample`."""
        return self._sampler.draw(logits, rows).fetch()

    def prepare(self) -> bool:
        """See `Executor.prepare`."""
        return False

    def close(self) -> None:
        """See `Executor.close`."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        self._graphs = None
        self._pool.close()

    def _host_step(self, chunks: SequenceOf[Chunk]) -> HostStep:
        return host_step(
            chunks,
            block_size=self._block_size,
            drawn=self._drawn_rows,
            adapters=self._adapters.slots_of(chunks),
            decodes_apart=not self._deterministic,
        )

    def _compute(self, step: HostStep) -> tuple[Tensor, Tensor]:
        """Hidden states before and after the last norm."""
        if self._graphs is not None and step.only_decodes:
            outputs = self._graphs.run(step, self._drawn)
            if outputs is not None:
                return outputs
        longest = int(step.lengths[: step.num_decodes].max(initial=0))
        splits = self._splits.guess(step.num_decodes, longest)
        tensors = step_tensors(step, self._device, drawn=self._drawn, splits=splits)
        return self._forward(tensors)

    def _forward(self, tensors: StepTensors) -> tuple[Tensor, Tensor]:
        with self._lora_sites.applied(self._adapters.changes(tensors.adapter_slots)):
            return self._model.forward(tensors, self._pool.caches, block_size=self._block_size)

    def _forget_adapters(self) -> None:
        if self._graphs is not None:
            self._graphs.forget_adapters()

    def _record(self, config: EngineConfig, recording: Callable[[int, int], None] | None) -> DecodeGraphs:
        window = min(self._model.config.max_context, self.num_blocks * self._block_size)
        graphs = DecodeGraphs(
            self._forward,
            ladder(min(config.max_sequences, _LARGEST_GRAPH)),
            max_blocks=table_width(window, self._block_size),
            device=self._device,
            splits_of=lambda size: self._splits.best(size, window),
        )
        graphs.record(recording)
        return graphs


def _sampler_for(model: FusedDecoder, config: EngineConfig) -> StepSampler:
    if not model.kernels.fused_sampler:
        return ReferenceSampler()
    return KernelSampler(model.config.vocab_size, slots=config.max_sequences, device=torch.device(config.device))
