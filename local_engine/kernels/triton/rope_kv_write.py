"""What happens to a step's queries, keys and values between projection and attention, in one pass.

Queries and keys get the norm of their heads, where the model has one, and are turned by their positions; keys and
values go to their slots of the paged cache in the type that it stores (see `layers.kv_cache`), queries to a tensor of
their own.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from local_engine.kernels.operations import HeadNorms
from local_engine.kernels.triton.shapes import FLOATS, LARGEST, expect, expect_cache
from local_engine.layers.kv_cache import LayerCache
from local_engine.layers.rms_norm import rms_norm
from local_engine.layers.rope import apply_rope

__all__ = ["rope_kv_write", "rope_kv_write_twin"]

# Numbers of a program's tile: heads times the padded head.
_TILE = 1024


@triton.jit
def rope_kv_write_kernel(
    qkv,
    cos,
    sin,
    query_norm,
    key_norm,
    slots,
    queries,
    keys,
    values,
    key_scales,
    value_scales,
    eps,
    num_heads,
    num_kv_heads,
    head_dim,
    rotary_dim,
    has_norm: tl.constexpr,
    has_rope: tl.constexpr,
    largest: tl.constexpr,
    rounded: tl.constexpr,
    heads: tl.constexpr,
    block: tl.constexpr,
):
    """`heads` heads of one row.

    Grid: (T, (H + 2 K) / heads). Tile: heads x the head padded to `block`. Moves 2 T (H + 2 K) D numbers; the partners
    that turn are read a second time, from the L1 cache. Computes in float32. Differs from the twin by one rounding of
    the type that is written; in int8 and fp8 a number may fall to the neighbouring step.
    """
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * heads + tl.arange(0, heads)
    column = tl.arange(0, block)
    is_query = head < num_heads
    is_key = (head >= num_heads) & (head < num_heads + num_kv_heads)
    is_value = (head >= num_heads + num_kv_heads) & (head < num_heads + 2 * num_kv_heads)
    turns = is_query | is_key
    inside = (turns | is_value)[:, None] & (column < head_dim)[None, :]
    source = qkv + (row * (num_heads + 2 * num_kv_heads) + head)[:, None] * head_dim
    x = tl.load(source + column[None, :], mask=inside, other=0.0).to(tl.float32)
    norm_scale = tl.full([heads], 1.0, tl.float32)
    if has_norm:
        norm_scale = 1.0 / tl.sqrt(tl.sum(x * x, 1) / head_dim + eps)
        x = tl.where(turns[:, None], x * norm_scale[:, None], x)
        for_query = tl.load(query_norm + column, mask=column < head_dim, other=0.0).to(tl.float32)
        for_key = tl.load(key_norm + column, mask=column < head_dim, other=0.0).to(tl.float32)
        x = tl.where(is_query[:, None], x * for_query[None, :], tl.where(is_key[:, None], x * for_key[None, :], x))
    if has_rope:
        half = rotary_dim // 2
        in_turn = column < rotary_dim
        partner = tl.where(column < half, column + half, column - half)
        turned = turns[:, None] & in_turn[None, :]
        other = tl.load(source + partner[None, :], mask=turned, other=0.0).to(tl.float32)
        if has_norm:
            for_query = tl.load(query_norm + partner, mask=in_turn, other=0.0).to(tl.float32)
            for_key = tl.load(key_norm + partner, mask=in_turn, other=0.0).to(tl.float32)
            other *= norm_scale[:, None] * tl.where(is_query[:, None], for_query[None, :], for_key[None, :])
        cosine = tl.load(cos + row * rotary_dim + column, mask=in_turn, other=1.0).to(tl.float32)
        signed_sine = tl.load(sin + row * rotary_dim + column, mask=in_turn, other=0.0).to(tl.float32)
        x = tl.where(turned, x * cosine[None, :] + other * signed_sine[None, :], x)
    query_at = (row * num_heads + head)[:, None] * head_dim + column[None, :]
    tl.store(queries + query_at, x.to(queries.dtype.element_ty), mask=inside & is_query[:, None])
    slot = tl.broadcast_to(tl.load(slots + row), [heads])
    kept = slot >= 0
    key_head = slot * num_kv_heads + head - num_heads
    value_head = key_head - num_kv_heads
    if largest > 0.0:
        scale = tl.maximum(tl.max(tl.where(inside, tl.abs(x), 0.0), 1) / largest, 1e-12)
        tl.store(key_scales + key_head, scale, mask=is_key & kept)
        tl.store(value_scales + value_head, scale, mask=is_value & kept)
        x = tl.div_rn(x, tl.broadcast_to(scale[:, None], [heads, block]))
        if rounded:
            # Adding and taking 1.5 * 2^23 rounds to the nearest integer, halves to even.
            x = (x + 12582912.0) - 12582912.0
    key_at = key_head[:, None] * head_dim + column[None, :]
    value_at = value_head[:, None] * head_dim + column[None, :]
    tl.store(keys + key_at, x.to(keys.dtype.element_ty), mask=inside & (is_key & kept)[:, None])
    tl.store(values + value_at, x.to(values.dtype.element_ty), mask=inside & (is_value & kept)[:, None])


def rope_kv_write(
    qkv: Tensor,
    cache: LayerCache,
    slots: Tensor,
    *,
    angles: tuple[Tensor, Tensor] | None,
    norms: HeadNorms | None = None,
) -> Tensor:
    """qkv [T, H + 2 K, D] -> the queries [T, H, D] in its dtype; keys and values are written to the cache.

    slots: [T] int64, where a row's key and value go; negative for a row of padding, which goes nowhere. angles: as
    `rope_tables` gives them, None turns nothing. Raises ValueError for wrong shapes and types.
    """
    num_heads = _check(qkv, cache, slots)
    num_rows, total_heads, head_dim = qkv.shape
    rotary_dim = 0
    if angles is not None:
        rotary_dim = angles[0].shape[-1]
        if rotary_dim % 2 or not 0 < rotary_dim <= head_dim:
            raise ValueError(f"angles: expected an even number of dimensions up to {head_dim}, got {rotary_dim}")
        for name, side in zip(("cos", "sin"), angles, strict=True):
            expect(f"angles, {name}", side, (num_rows, 1, rotary_dim), FLOATS)
    if norms is not None:
        expect("norms.queries", norms.queries, (head_dim,), FLOATS)
        expect("norms.keys", norms.keys, (head_dim,), FLOATS)
    queries = torch.empty(num_rows, num_heads, head_dim, dtype=qkv.dtype, device=qkv.device)
    if num_rows:
        block = triton.next_power_of_2(head_dim)
        heads = max(min(_TILE // block, triton.next_power_of_2(total_heads)), 1)
        cos, sin = (qkv, qkv) if angles is None else angles
        rope_kv_write_kernel[(num_rows, triton.cdiv(total_heads, heads))](
            qkv,
            cos,
            sin,
            qkv if norms is None else norms.queries,
            qkv if norms is None else norms.keys,
            slots,
            queries,
            cache.keys,
            cache.values,
            cache.keys if cache.key_scales is None else cache.key_scales,
            cache.values if cache.value_scales is None else cache.value_scales,
            0.0 if norms is None else norms.eps,
            num_heads,
            (total_heads - num_heads) // 2,
            head_dim,
            rotary_dim,
            has_norm=norms is not None,
            has_rope=angles is not None,
            largest=LARGEST.get(cache.keys.dtype, 0.0),
            rounded=cache.keys.dtype == torch.int8,
            heads=heads,
            block=block,
            num_warps=4,
        )
    return queries


def _check(qkv: Tensor, cache: LayerCache, slots: Tensor) -> int:
    """The number of query heads. Raises ValueError."""
    if qkv.ndim != 3:
        raise ValueError(f"qkv: expected [T, H + 2 K, D], got {tuple(qkv.shape)}")
    num_rows, total_heads, head_dim = qkv.shape
    num_heads = total_heads - 2 * cache.keys.shape[1]
    expect_cache(cache, num_heads, head_dim)
    expect("qkv", qkv, (num_rows, total_heads, head_dim), FLOATS)
    expect("slots", slots, (num_rows,), (torch.int64,))
    return num_heads


def rope_kv_write_twin(
    qkv: Tensor,
    cache: LayerCache,
    slots: Tensor,
    *,
    angles: tuple[Tensor, Tensor] | None,
    norms: HeadNorms | None = None,
) -> Tensor:
    """See `rope_kv_write`."""
    num_kv_heads = cache.keys.shape[1]
    num_heads = qkv.shape[1] - 2 * num_kv_heads
    numbers = qkv.float()
    queries, keys = numbers[:, :num_heads], numbers[:, num_heads : num_heads + num_kv_heads]
    values = numbers[:, num_heads + num_kv_heads :]
    if norms is not None:
        queries = rms_norm(queries, norms.queries.float(), norms.eps)
        keys = rms_norm(keys, norms.keys.float(), norms.eps)
    if angles is not None:
        cos, sin = angles[0].float(), angles[1].float()
        queries, keys = apply_rope(queries, cos, sin), apply_rope(keys, cos, sin)
    kept = slots >= 0
    cache.write(slots[kept], keys[kept], values[kept])
    return queries.to(qkv.dtype)
