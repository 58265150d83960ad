"""Caches of several sequences for tests of attention."""

from collections.abc import Sequence

import torch
from torch import Tensor

from local_engine.layers.kv_cache import LayerCache, new_layer_cache

__all__ = ["paged_cache"]


def paged_cache(
    lengths: Sequence[int], kv_heads: int, head_dim: int, *, block_size: int, kv_dtype: str, seed: int = 5
) -> tuple[LayerCache, Tensor]:
    """Random keys and values of so many tokens a sequence, in shuffled blocks, and the block tables.

    Slots that no sequence has filled are not numbers, so that reading one shows.
    """
    generator = torch.Generator().manual_seed(seed)
    blocks = [-(-length // block_size) for length in lengths]
    order = (1 + torch.randperm(sum(blocks), generator=generator)).int()
    block_tables = torch.zeros(len(blocks), max(blocks, default=0), dtype=torch.int32)
    num_slots = (sum(blocks) + 1) * block_size
    cache = new_layer_cache(num_slots, kv_heads, head_dim, kv_dtype=kv_dtype, device=torch.device("cpu"))
    for side in (cache.key_scales, cache.value_scales) if cache.key_scales is not None else (cache.keys, cache.values):
        assert side is not None
        side.fill_(float("nan"))
    for row, length in enumerate(lengths):
        mine = order[sum(blocks[:row]) : sum(blocks[: row + 1])]
        block_tables[row, : len(mine)] = mine
        positions = torch.arange(length)
        slots = mine.long()[positions // block_size] * block_size + positions % block_size
        numbers = torch.randn(2, length, kv_heads, head_dim, generator=generator)
        cache.write(slots, numbers[0], numbers[1])
    return cache, block_tables
