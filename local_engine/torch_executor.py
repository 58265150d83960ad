"""The executor over plain torch: any architecture, any device, any dtype."""

from collections.abc import Sequence as SequenceOf

import torch
from torch import Tensor

from local_engine.batch import adapter_rows, build_batch, place_images
from local_engine.chunk import Chunk
from local_engine.config import EngineConfig
from local_engine.errors import GenerationFailed
from local_engine.executor import Ahead, StepRows
from local_engine.generation import TokenOutput
from local_engine.gpu_memory import kv_pool_bytes
from local_engine.kv_pool import KvPool
from local_engine.layers.lora import LoraSites
from local_engine.layers.recurrent_state import StepStates
from local_engine.models.model import Model
from local_engine.sampler import SamplerRow, sample
from local_engine.state_pool import StatePool

__all__ = ["TorchExecutor"]


class TorchExecutor:
    """Implements `Executor`. Raises InvalidInput where the KV pool is too small or does not fit the device."""

    def __init__(self, model: Model, config: EngineConfig, *, lora_sites: LoraSites) -> None:
        self.ahead: Ahead | None = None
        self._model = model
        self._lora_sites = lora_sites
        self._block_size = config.block_size
        self._windows = model.config.windows
        self._device = torch.device(config.device)
        self._dtype: torch.dtype = getattr(torch, config.float_dtype)
        num_bytes = kv_pool_bytes(config)
        self._states = StatePool(model.config, config, num_bytes)
        self._pool = KvPool(model.config, config, num_bytes - self._states.num_bytes)
        self.num_blocks, self.num_states = self._pool.num_blocks, self._states.num_states

    def forward(self, chunks: SequenceOf[Chunk]) -> StepRows:
        """See `Executor.forward`."""
        batch = build_batch(
            chunks, block_size=self._block_size, windows=self._windows, device=self._device, dtype=self._dtype
        )
        hidden = self._model.embed(batch.token_ids)
        place_images(batch.chunks, batch.first_row, hidden)
        adapters = adapter_rows(batch.chunks, batch.first_row, len(batch.token_ids), self._device)
        with self._lora_sites.applied(adapters):
            states = StepStates(self._states.layers, batch.states)
            hidden = self._model.forward(hidden, batch.positions, self._pool.caches, batch.plans, states)
        return StepRows(hidden, batch.chunks, batch.first_row)

    def copy_blocks(self, pairs: SequenceOf[tuple[int, int]]) -> None:
        """See `Executor.copy_blocks`."""
        self._pool.copy_blocks(pairs)

    def logits(self, hidden: Tensor) -> Tensor:
        """See `Executor.logits`."""
        return self._model.logits(hidden)

    def sample(self, logits: Tensor, rows: SequenceOf[SamplerRow]) -> list[TokenOutput | GenerationFailed]:
        """See `Executor.sample`."""
        return sample(logits, rows)

    def prepare(self) -> bool:
        """See `Executor.prepare`."""
        return False

    def close(self) -> None:
        """See `Executor.close`."""
        self._pool.close()
        self._states.close()
