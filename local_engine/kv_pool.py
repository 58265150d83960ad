"""The KV blocks of all layers on torch's device: a cache a layer, and copying blocks. Knows no sequences."""

from collections.abc import Sequence as SequenceOf

import torch

from local_engine.block_allocator import PADDING_BLOCK
from local_engine.config import EngineConfig, ModelConfig
from local_engine.errors import InvalidInput
from local_engine.layers.kv_cache import LayerCache, kv_item_bytes, new_layer_cache

__all__ = ["KvPool", "kv_block_bytes"]


def kv_block_bytes(model: ModelConfig, config: EngineConfig) -> int:
    """Bytes of one KV block over all layers that have keys and values."""
    layers = [model.of_layer(index) for index in model.caching_layers]
    token_bytes = sum(each.num_kv_heads * kv_item_bytes(config.stored_kv_dtype, each.head_dim) for each in layers)
    return 2 * config.block_size * token_bytes


class KvPool:
    """Blocks 1 to num_blocks, and the padding block 0, which stays zero.

    num_bytes: what they may take. Raises InvalidInput where that is too little, or more than the device has.
    """

    def __init__(self, shape: ModelConfig, config: EngineConfig, num_bytes: int) -> None:
        device = torch.device(config.device)
        self._block_size = config.block_size
        least = 2 * kv_block_bytes(shape, config)  # one beside the padding
        self.num_blocks = num_bytes // kv_block_bytes(shape, config) - 1
        if self.num_blocks < 1:
            raise InvalidInput("kv_bytes", f"must be at least {least} bytes for this model, not {num_bytes}")
        slots = (self.num_blocks + 1) * config.block_size
        padding = slice(PADDING_BLOCK * config.block_size, (PADDING_BLOCK + 1) * config.block_size)
        self.caches: list[LayerCache] = []
        for index in shape.caching_layers:
            layer = shape.of_layer(index)
            try:
                cache = new_layer_cache(
                    slots, layer.num_kv_heads, layer.head_dim, kv_dtype=config.stored_kv_dtype, device=device
                )
            except (MemoryError, RuntimeError) as error:
                raise InvalidInput("kv_bytes", f"{num_bytes} bytes do not fit on {device}") from error
            for part in cache.parts():
                part[padding] = 0
            self.caches.append(cache)

    def copy_blocks(self, pairs: SequenceOf[tuple[int, int]]) -> None:
        """See `Executor.copy_blocks`."""
        for cache in self.caches:
            for part in cache.parts():
                sources, targets = torch.tensor(pairs, device=part.device).T
                blocks = part.view(-1, self._block_size, *part.shape[1:])
                blocks[targets] = blocks[sources]

    def close(self) -> None:
        """Gives the memory back, though others still hold the pool."""
        self.caches.clear()
