"""What decode and prefill attention over the paged cache have in common: what they expect, and their tiles."""

import torch
from torch import Tensor

from local_engine.kernels.triton.shapes import FLOATS, expect, expect_cache
from local_engine.layers.kv_cache import LayerCache

__all__ = ["LARGEST_TILE", "LEAST_SIDE", "expect_attention", "tile_keys"]

# Keys of a tile at most; fewer where they would take more bytes than that.
LARGEST_TILE = 64
_TILE_BYTES = 16_384
# The side of the smallest matrix that the tensor cores multiply.
LEAST_SIDE = 16


def tile_keys(columns: int, dtype: torch.dtype) -> int:
    """Keys of a tile: a power of two that keeps two stages of keys and values within 64 KiB of shared memory."""
    return max(min(_TILE_BYTES // (columns * dtype.itemsize), LARGEST_TILE), LEAST_SIDE)


def expect_attention(
    queries: Tensor,
    cache: LayerCache,
    block_tables: Tensor,
    lengths: Tensor,
    *,
    window: int | None,
    sinks: Tensor | None,
) -> int:
    """The cache's kv heads. Raises ValueError, which names what is wrong, unless all is as the launchers say."""
    if queries.ndim != 3 or block_tables.ndim != 2:
        shapes = [tuple(tensor.shape) for tensor in (queries, block_tables)]
        raise ValueError(f"queries, block_tables: expected [T, H, D] and [B, blocks], got {shapes}")
    num_rows, num_heads, head_dim = queries.shape
    num_sequences, max_blocks = block_tables.shape
    expect("queries", queries, (num_rows, num_heads, head_dim), FLOATS)
    expect("block_tables", block_tables, (num_sequences, max_blocks), (torch.int32,))
    expect("lengths", lengths, (num_sequences,), (torch.int32,))
    if window is not None and window < 1:
        raise ValueError(f"window: expected at least 1, got {window}")
    if sinks is not None:
        expect("sinks", sinks, (num_heads,), FLOATS)
    return expect_cache(cache, num_heads, head_dim)
