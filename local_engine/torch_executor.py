"""The executor over plain torch: any architecture, any device, any dtype. Owns the KV cache."""

from collections.abc import Sequence as SequenceOf

import torch
from torch import Tensor

from local_engine.batch import adapter_rows, build_batch, place_images
from local_engine.block_allocator import PADDING_BLOCK
from local_engine.config import EngineConfig, ModelConfig
from local_engine.errors import InvalidInput
from local_engine.executor import Ahead, StepRows
from local_engine.layers.kv_cache import LayerCache, kv_item_bytes, new_layer_cache
from local_engine.layers.lora import LoraSites
from local_engine.models.model import Model
from local_engine.scheduler import Chunk

__all__ = ["TorchExecutor", "kv_block_bytes"]


def kv_block_bytes(model: ModelConfig, config: EngineConfig) -> int:
    """Bytes of one KV block over all layers."""
    head_bytes = kv_item_bytes(config.stored_kv_dtype, model.head_dim)
    return 2 * model.num_layers * model.num_kv_heads * config.block_size * head_bytes


class TorchExecutor:
    """Implements `Executor`. Raises InvalidInput where the KV pool is too small or does not fit the device."""

    def __init__(self, model: Model, config: EngineConfig, *, lora_sites: LoraSites) -> None:
        shape = model.config
        self.ahead: Ahead | None = None
        self._model = model
        self._lora_sites = lora_sites
        self._block_size = config.block_size
        self._windows = shape.windows
        self._device = torch.device(config.device)
        self._dtype: torch.dtype = getattr(torch, config.float_dtype)
        self.num_blocks = config.kv_bytes // kv_block_bytes(shape, config) - 1  # one is the padding block
        if self.num_blocks < 1:
            raise InvalidInput(
                "kv_bytes", f"holds no KV block of {kv_block_bytes(shape, config)} bytes beside the padding"
            )
        slots = (self.num_blocks + 1) * config.block_size
        padding = slice(PADDING_BLOCK * config.block_size, (PADDING_BLOCK + 1) * config.block_size)
        self._caches: list[LayerCache] = []
        for _ in range(shape.num_layers):
            try:
                cache = new_layer_cache(
                    slots,
                    shape.num_kv_heads,
                    shape.head_dim,
                    kv_dtype=config.stored_kv_dtype,
                    device=self._device,
                )
            except (MemoryError, RuntimeError) as error:
                raise InvalidInput("kv_bytes", f"{config.kv_bytes} bytes do not fit on {self._device}") from error
            for part in cache.parts():
                part[padding] = 0
            self._caches.append(cache)

    def forward(self, chunks: SequenceOf[Chunk]) -> StepRows:
        """See `Executor.forward`."""
        batch = build_batch(
            chunks, block_size=self._block_size, windows=self._windows, device=self._device, dtype=self._dtype
        )
        hidden = self._model.embed(batch.token_ids)
        place_images(batch, hidden)
        with self._lora_sites.applied(adapter_rows(batch, self._device)):
            hidden = self._model.forward(hidden, batch.positions, self._caches, batch.plans)
        return StepRows(hidden, batch.chunks, batch.first_row)

    def copy_blocks(self, pairs: SequenceOf[tuple[int, int]]) -> None:
        """See `Executor.copy_blocks`."""
        sources, targets = torch.tensor(pairs, device=self._device).T
        for cache in self._caches:
            for part in cache.parts():
                blocks = part.view(-1, self._block_size, *part.shape[1:])
                blocks[targets] = blocks[sources]

    def logits(self, hidden: Tensor) -> Tensor:
        """See `Executor.logits`."""
        return self._model.logits(hidden)

    def close(self) -> None:
        """See `Executor.close`."""
        self._caches.clear()
