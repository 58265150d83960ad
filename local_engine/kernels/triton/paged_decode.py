"""Attention of one query a sequence over its keys and values in the paged cache: the decode step.

The keys of a sequence are split into ranges, each attended by a program of its own (Dao et al. 2023, flash-decoding),
so that few sequences fill the device too; a second kernel combines the ranges. The query heads that share a kv head are
the rows of one matrix, so each key is read once.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from local_engine.kernels.triton.paged_attention import (
    LARGEST_TILE,
    LEAST_SIDE,
    expect_attention,
    tile_keys,
)
from local_engine.kernels.triton.paged_prefill import paged_prefill_twin
from local_engine.kernels.triton.shapes import expect
from local_engine.layers.kv_cache import LayerCache

__all__ = ["num_splits", "paged_decode", "paged_decode_twin"]

_MAX_SPLITS = 64


@triton.jit
def paged_decode_kernel(
    queries,
    keys,
    values,
    key_scales,
    value_scales,
    block_tables,
    lengths,
    partial,
    partial_max,
    partial_sum,
    scale,
    soft_cap,
    window,
    num_kv_heads,
    head_dim,
    max_blocks,
    block_size: tl.constexpr,
    share: tl.constexpr,
    splits: tl.constexpr,
    has_cap: tl.constexpr,
    has_scales: tl.constexpr,
    rows: tl.constexpr,
    columns: tl.constexpr,
    tile: tl.constexpr,
):
    """One range of one sequence's keys, for the query heads of one kv head.

    Grid: (B, K, splits). Tile: `tile` keys and values of `columns` numbers against `rows` queries. Reads each visible
    key and value once (2 B length K D numbers) and writes B H splits (D + 2) float32. Products of 16-bit numbers
    accumulate in float32; those of float32 run as IEEE, not as TF32. Differs from the twin by the rounding of the
    weights to the type of the queries: 2e-3 in float16, 1e-5 in float32.
    """
    sequence, kv_head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    row, column, key = tl.arange(0, rows), tl.arange(0, columns), tl.arange(0, tile)
    inside = column < head_dim
    head = kv_head * share + row
    total_heads = num_kv_heads * share
    query_at = (sequence * total_heads + head)[:, None] * head_dim + column[None, :]
    query_inside = (row < share)[:, None] & inside[None, :]
    query = tl.load(queries + query_at, mask=query_inside, other=0.0)

    length = tl.load(lengths + sequence)
    first = tl.maximum(length - window, 0)
    per_split = tl.cdiv(tl.cdiv(length - first, splits), tile) * tile
    begin = first + split * per_split
    end = tl.minimum(begin + per_split, length)
    largest = tl.full([rows], float("-inf"), tl.float32)
    total = tl.zeros([rows], tl.float32)
    attended = tl.zeros([rows, columns], tl.float32)
    for base in range(begin, end, tile):
        position = base + key
        seen = position < end
        block = tl.load(block_tables + sequence * max_blocks + position // block_size, mask=seen, other=0)
        slot = block.to(tl.int64) * block_size + position % block_size
        at = (slot * num_kv_heads + kv_head)[:, None] * head_dim + column[None, :]
        # What is not seen is not read: a failed sequence may have left NaN there.
        tile_inside = seen[:, None] & inside[None, :]
        k = tl.load(keys + at, mask=tile_inside, other=0.0).to(query.dtype)
        scores = tl.dot(query, tl.trans(k), input_precision="ieee") * scale
        if has_scales:
            scores *= tl.load(key_scales + slot * num_kv_heads + kv_head, mask=seen, other=0.0)[None, :]
        if has_cap:
            # tanh(u) is 2 sigmoid(2 u) - 1.
            scores = soft_cap * (2.0 * tl.sigmoid(2.0 * scores / soft_cap) - 1.0)
        scores = tl.where(seen[None, :], scores, float("-inf"))
        new_largest = tl.maximum(largest, tl.max(scores, 1))
        weights = tl.exp(scores - new_largest[:, None])
        shrink = tl.exp(largest - new_largest)
        total = total * shrink + tl.sum(weights, 1)
        if has_scales:
            weights *= tl.load(value_scales + slot * num_kv_heads + kv_head, mask=seen, other=0.0)[None, :]
        v = tl.load(values + at, mask=tile_inside, other=0.0).to(query.dtype)
        attended = attended * shrink[:, None] + tl.dot(weights.to(query.dtype), v, input_precision="ieee")
        largest = new_largest

    part = ((sequence * total_heads + head) * splits + split).to(tl.int64)
    tl.store(partial + part[:, None] * head_dim + column[None, :], attended, mask=query_inside)
    tl.store(partial_max + part, largest, mask=row < share)
    tl.store(partial_sum + part, total, mask=row < share)


@triton.jit
def paged_decode_combine_kernel(
    partial,
    partial_max,
    partial_sum,
    sinks,
    out,
    head_dim,
    splits: tl.constexpr,
    has_sinks: tl.constexpr,
    ranges: tl.constexpr,
    columns: tl.constexpr,
):
    """The ranges of one query head, weighed by their shares of the softmax; nothing to see gives zeros.

    Grid: (B, H). Tile: the ranges, padded to a power of two, times the head. Reads B H splits (D + 2) float32 and
    writes B H D numbers. Computes in float32.
    """
    sequence, head, num_heads = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    split, column = tl.arange(0, ranges), tl.arange(0, columns)
    at = ((sequence * num_heads + head) * splits + split).to(tl.int64)
    inside = column < head_dim
    maxima = tl.load(partial_max + at, mask=split < splits, other=float("-inf"))
    sums = tl.load(partial_sum + at, mask=split < splits, other=0.0)
    largest = tl.max(maxima, 0)
    if has_sinks:
        sink = tl.load(sinks + head).to(tl.float32)
        largest = tl.maximum(largest, sink)
    # Without any key all maxima are -inf, and -inf - -inf is not a number.
    largest = tl.where(largest == float("-inf"), 0.0, largest)
    shares = tl.exp(maxima - largest)
    total = tl.sum(sums * shares, 0)
    if has_sinks:
        total += tl.exp(sink - largest)
    parts = tl.load(
        partial + at[:, None] * head_dim + column[None, :],
        mask=(split < splits)[:, None] & inside[None, :],
        other=0.0,
    )
    attended = tl.sum(parts * shares[:, None], 0) / tl.where(total > 0.0, total, 1.0)
    out_at = (sequence * num_heads + head).to(tl.int64) * head_dim + column
    tl.store(out + out_at, attended.to(out.dtype.element_ty), mask=inside)


def num_splits(num_sequences: int, num_kv_heads: int, max_length: int, num_processors: int) -> int:
    """Ranges a sequence: enough for two programs a processor, as far as there are tiles of keys, and at most 64."""
    wanted = 2 * num_processors // max(num_sequences * num_kv_heads, 1)
    return max(min(wanted, -(-max_length // LARGEST_TILE), _MAX_SPLITS), 1)


def paged_decode(
    queries: Tensor,
    cache: LayerCache,
    block_tables: Tensor,
    lengths: Tensor,
    *,
    block_size: int,
    splits: int = 1,
    scale: float | None = None,
    soft_cap: float | None = None,
    window: int | None = None,
    sinks: Tensor | None = None,
) -> Tensor:
    """queries [B, H, D] -> [B, H, D] in their dtype: each attends to the last `window` of its sequence's keys.

    block_tables: [B, blocks] int32, the cache's blocks of `block_size` slots in order. lengths: [B] int32, keys that
    the sequence has in the cache, its newest included; 0 for a row of padding, which gives zeros. splits: see
    `num_splits`.
    scale, soft_cap, sinks: as `layers.attention.PagedAttention`. Raises ValueError for wrong shapes and types.
    """
    num_kv_heads = expect_attention(queries, cache, block_tables, lengths, window=window, sinks=sinks)
    num_sequences, num_heads, head_dim = queries.shape
    # One query each.
    expect("lengths", lengths, (num_sequences,), (torch.int32,))
    if not 1 <= splits <= _MAX_SPLITS:
        raise ValueError(f"splits: expected 1 to {_MAX_SPLITS}, got {splits}")
    out = torch.empty_like(queries)
    if not num_sequences:
        return out
    parts = (num_sequences, num_heads, splits)
    partial = torch.empty(*parts, head_dim, dtype=torch.float32, device=queries.device)
    partial_max, partial_sum = torch.empty(2, *parts, dtype=torch.float32, device=queries.device)
    share = num_heads // num_kv_heads
    columns = max(triton.next_power_of_2(head_dim), LEAST_SIDE)
    has_scales = cache.key_scales is not None and cache.value_scales is not None
    paged_decode_kernel[(num_sequences, num_kv_heads, splits)](
        queries,
        cache.keys,
        cache.values,
        cache.key_scales if has_scales else partial_max,
        cache.value_scales if has_scales else partial_max,
        block_tables,
        lengths,
        partial,
        partial_max,
        partial_sum,
        head_dim**-0.5 if scale is None else scale,
        1.0 if soft_cap is None else soft_cap,
        2**31 - 1 if window is None else window,
        num_kv_heads,
        head_dim,
        block_tables.shape[1],
        block_size=block_size,
        share=share,
        splits=splits,
        has_cap=soft_cap is not None,
        has_scales=has_scales,
        rows=max(triton.next_power_of_2(share), LEAST_SIDE),
        columns=columns,
        tile=tile_keys(columns, queries.dtype),
        num_warps=4,
        num_stages=2,
    )
    paged_decode_combine_kernel[(num_sequences, num_heads)](
        partial,
        partial_max,
        partial_sum,
        partial_max if sinks is None else sinks,
        out,
        head_dim,
        splits=splits,
        has_sinks=sinks is not None,
        ranges=triton.next_power_of_2(splits),
        columns=columns,
        num_warps=4,
    )
    return out


def paged_decode_twin(
    queries: Tensor,
    cache: LayerCache,
    block_tables: Tensor,
    lengths: Tensor,
    *,
    block_size: int,
    splits: int = 1,
    scale: float | None = None,
    soft_cap: float | None = None,
    window: int | None = None,
    sinks: Tensor | None = None,
) -> Tensor:
    """See `paged_decode`: prefill of one query a sequence. `splits` is how a kernel shares out its work."""
    starts = torch.arange(len(queries) + 1, dtype=torch.int32, device=queries.device)
    return paged_prefill_twin(
        queries,
        cache,
        block_tables,
        starts,
        lengths,
        block_size=block_size,
        scale=scale,
        soft_cap=soft_cap,
        window=window,
        sinks=sinks,
    )
