"""Causal attention of many queries a sequence over its keys and values in the paged cache: prompts and chunks of them.

A step's sequences stand one after the other, of any lengths. The query heads that share a kv head are rows of one
matrix together with the queries that follow one another (Dao et al. 2022, FlashAttention, over the cache's blocks).
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from local_engine.kernels.triton.paged_attention import LEAST_SIDE, expect_attention, tile_keys
from local_engine.kernels.triton.shapes import expect
from local_engine.layers.kv_cache import LayerCache

__all__ = ["paged_prefill", "paged_prefill_twin"]


@triton.jit
def paged_prefill_kernel(
    queries,
    keys,
    values,
    key_scales,
    value_scales,
    block_tables,
    query_starts,
    lengths,
    sinks,
    out,
    scale,
    soft_cap,
    window,
    num_kv_heads,
    head_dim,
    max_blocks,
    block_size: tl.constexpr,
    share: tl.constexpr,
    has_cap: tl.constexpr,
    has_scales: tl.constexpr,
    has_sinks: tl.constexpr,
    rows: tl.constexpr,
    columns: tl.constexpr,
    tile: tl.constexpr,
):
    """`rows` pairs of a query and a head, of one sequence and one kv head.

    Grid: (most queries of a sequence * H / K / rows, K, B). Tile: `tile` keys and values of `columns` numbers against
    the rows. 4 D operations for each visible pair of query head and key; the keys and values that a tile of rows sees
    are read once for it. Accumulates as `paged_decode_kernel` does, with its tolerance.
    """
    kv_head, sequence = tl.program_id(1), tl.program_id(2)
    begin = tl.load(query_starts + sequence)
    count = tl.load(query_starts + sequence + 1) - begin
    first_row = tl.program_id(0) * rows
    if first_row >= count * share:
        return
    row, column, key = first_row + tl.arange(0, rows), tl.arange(0, columns), tl.arange(0, tile)
    inside = column < head_dim
    past = tl.load(lengths + sequence) - count
    position = past + row // share
    head = kv_head * share + row % share
    at_row = ((begin + row // share).to(tl.int64) * num_kv_heads * share + head)[:, None] * head_dim + column[None, :]
    row_inside = (row < count * share)[:, None] & inside[None, :]
    query = tl.load(queries + at_row, mask=row_inside, other=0.0)

    end = past + tl.minimum((first_row + rows - 1) // share, count - 1) + 1
    # Tiles begin where they do for any other chunk of the sequence, so that its sums run in the same order.
    first = tl.maximum(past + first_row // share - window + 1, 0) // tile * tile
    largest = tl.full([rows], float("-inf"), tl.float32)
    total = tl.zeros([rows], tl.float32)
    attended = tl.zeros([rows, columns], tl.float32)
    for base in range(first, end, tile):
        at_key = base + key
        block = tl.load(block_tables + sequence * max_blocks + at_key // block_size, mask=at_key < end, other=0)
        slot = block.to(tl.int64) * block_size + at_key % block_size
        at = (slot * num_kv_heads + kv_head)[:, None] * head_dim + column[None, :]
        # Slots behind the last key may hold what is not a number.
        tile_inside = (at_key < end)[:, None] & inside[None, :]
        k = tl.load(keys + at, mask=tile_inside, other=0.0).to(query.dtype)
        scores = tl.dot(query, tl.trans(k), input_precision="ieee") * scale
        if has_scales:
            scores *= tl.load(key_scales + slot * num_kv_heads + kv_head, mask=at_key < end, other=0.0)[None, :]
        if has_cap:
            # tanh(u) is 2 sigmoid(2 u) - 1.
            scores = soft_cap * (2.0 * tl.sigmoid(2.0 * scores / soft_cap) - 1.0)
        seen = (at_key[None, :] <= position[:, None]) & (at_key[None, :] > position[:, None] - window)
        scores = tl.where(seen & (at_key < end)[None, :], scores, float("-inf"))
        new_largest = tl.maximum(largest, tl.max(scores, 1))
        # A row that has seen nothing yet keeps its zeros: -inf - -inf is not a number.
        shift = tl.where(new_largest == float("-inf"), 0.0, new_largest)
        weights = tl.exp(scores - shift[:, None])
        shrink = tl.exp(largest - shift)
        total = total * shrink + tl.sum(weights, 1)
        if has_scales:
            weights *= tl.load(value_scales + slot * num_kv_heads + kv_head, mask=at_key < end, other=0.0)[None, :]
        v = tl.load(values + at, mask=tile_inside, other=0.0).to(query.dtype)
        attended = attended * shrink[:, None] + tl.dot(weights.to(query.dtype), v, input_precision="ieee")
        largest = new_largest

    if has_sinks:
        sink = tl.load(sinks + head).to(tl.float32)
        top = tl.maximum(largest, sink)
        shrink = tl.exp(largest - top)
        total = total * shrink + tl.exp(sink - top)
        attended *= shrink[:, None]
    # Rows beyond the last query have seen nothing perhaps; they are not stored.
    attended /= tl.where(total > 0.0, total, 1.0)[:, None]
    tl.store(out + at_row, attended.to(out.dtype.element_ty), mask=row_inside)


def tile_rows(columns: int, dtype: torch.dtype) -> int:
    """Rows of a tile: what leaves room for the sums in registers; float32 multiplies without tensor cores."""
    return 16 if dtype == torch.float32 else 64 if columns <= 128 else 32


def paged_prefill(
    queries: Tensor,
    cache: LayerCache,
    block_tables: Tensor,
    query_starts: Tensor,
    lengths: Tensor,
    *,
    max_queries: int,
    block_size: int,
    scale: float | None = None,
    soft_cap: float | None = None,
    window: int | None = None,
    sinks: Tensor | None = None,
) -> Tensor:
    """queries [T, H, D] -> [T, H, D] in their dtype: each attends to itself and the last `window` - 1 keys before it.

    query_starts: [B + 1] int32, rows where each sequence's queries begin, and T. They are its newest tokens, whose keys
    are in the cache already. lengths: [B] int32, keys of the sequence with them. max_queries: the most of one sequence.
    Others as `paged_decode`. Raises ValueError for wrong shapes and types.
    """
    num_kv_heads = expect_attention(queries, cache, block_tables, lengths, window=window, sinks=sinks)
    num_rows, num_heads, head_dim = queries.shape
    num_sequences, max_blocks = block_tables.shape
    expect("query_starts", query_starts, (num_sequences + 1,), (torch.int32,))
    out = torch.empty_like(queries)
    if not num_rows:
        return out
    share = num_heads // num_kv_heads
    columns = max(triton.next_power_of_2(head_dim), LEAST_SIDE)
    rows = tile_rows(columns, queries.dtype)
    paged_prefill_kernel[(triton.cdiv(max_queries * share, rows), num_kv_heads, num_sequences)](
        queries,
        cache.keys,
        cache.values,
        cache.keys if cache.key_scales is None else cache.key_scales,
        cache.values if cache.value_scales is None else cache.value_scales,
        block_tables,
        query_starts,
        lengths,
        queries if sinks is None else sinks,
        out,
        head_dim**-0.5 if scale is None else scale,
        1.0 if soft_cap is None else soft_cap,
        2**31 - 1 if window is None else window,
        num_kv_heads,
        head_dim,
        max_blocks,
        block_size=block_size,
        share=share,
        has_cap=soft_cap is not None,
        has_scales=cache.key_scales is not None,
        has_sinks=sinks is not None,
        rows=rows,
        columns=columns,
        tile=tile_keys(columns, queries.dtype),
        num_warps=8,
        num_stages=2,
    )
    return out


def paged_prefill_twin(
    queries: Tensor,
    cache: LayerCache,
    block_tables: Tensor,
    query_starts: Tensor,
    lengths: Tensor,
    *,
    max_queries: int | None = None,
    block_size: int,
    scale: float | None = None,
    soft_cap: float | None = None,
    window: int | None = None,
    sinks: Tensor | None = None,
) -> Tensor:
    """See `paged_prefill`: sequence after sequence, in float32. `max_queries` is how a kernel shares out its work."""
    num_heads, head_dim = queries.shape[1:]
    num_kv_heads = cache.keys.shape[1]
    share = num_heads // num_kv_heads
    out = torch.zeros_like(queries)
    starts = query_starts.tolist()
    for row, length in enumerate(lengths.tolist()):
        begin, stop = starts[row], starts[row + 1]
        key_at = torch.arange(length, device=queries.device)
        slots = block_tables[row].long()[key_at // block_size] * block_size + key_at % block_size
        keys, values = (side.repeat_interleave(share, 1) for side in cache.read(slots, torch.float32))
        scores = torch.einsum("qhd,shd->hqs", queries[begin:stop].float(), keys)
        scores = scores * (head_dim**-0.5 if scale is None else scale)
        if soft_cap is not None:
            scores = torch.tanh(scores / soft_cap) * soft_cap
        position = torch.arange(length - (stop - begin), length, device=queries.device)[:, None]
        hidden = key_at > position
        if window is not None:
            hidden |= key_at <= position - window
        scores = scores.masked_fill(hidden, float("-inf"))
        if sinks is not None:
            scores = torch.cat((scores, sinks.float().view(-1, 1, 1).expand(-1, stop - begin, 1)), -1)
        weights = scores.softmax(-1)[..., :length]
        out[begin:stop] = torch.einsum("hqs,shd->qhd", weights, values).to(out.dtype)
    return out
