"""Prefill attention over the paged cache against the twin."""

from dataclasses import dataclass
from itertools import accumulate

import pytest
import torch

from local_engine.kernels.triton.paged_prefill import paged_prefill, paged_prefill_twin
from tests.local_engine.kernels.triton.interpreted.paged_inputs import paged_cache

_TOLERANCE = {torch.float32: 1e-5, torch.float16: 2e-3}
_NAMES = {torch.float32: "float32", torch.float16: "float16"}


@dataclass(frozen=True)
class Shape:
    """chunks: for each sequence, its tokens that are computed now and those that it has in the cache with them."""

    chunks: tuple[tuple[int, int], ...]
    heads: int
    kv_heads: int
    head_dim: int
    block_size: int = 16


_ORDINARY = Shape(((20, 20), (5, 70)), 4, 2, 64)
_RAGGED = Shape(((1, 33), (0, 9), (17, 17), (3, 3)), 6, 2, 32, 8)
_SHAPES = [_ORDINARY, _RAGGED, Shape(((11, 40),), 3, 1, 80, 12), Shape(((9, 9),), 2, 2, 20), Shape((), 4, 2, 32),
           Shape(((7, 50),), 2, 1, 256)]  # fmt: skip


def _assert_equals_twin(
    shape: Shape,
    dtype: torch.dtype,
    *,
    kv_dtype: str | None = None,
    scale: float | None = None,
    soft_cap: float | None = None,
    window: int | None = None,
    has_sinks: bool = False,
) -> None:
    counts, lengths = [count for count, _ in shape.chunks], [length for _, length in shape.chunks]
    cache, block_tables = paged_cache(
        lengths, shape.kv_heads, shape.head_dim, block_size=shape.block_size, kv_dtype=kv_dtype or _NAMES[dtype]
    )
    generator = torch.Generator().manual_seed(9)
    queries = 2 * torch.randn(sum(counts), shape.heads, shape.head_dim, generator=generator).to(dtype)
    sinks = torch.randn(shape.heads, generator=generator).to(dtype) if has_sinks else None
    starts = torch.tensor(list(accumulate(counts, initial=0)), dtype=torch.int32)
    tensors = queries, cache, block_tables, starts, torch.tensor(lengths, dtype=torch.int32)
    size = shape.block_size
    expected = paged_prefill_twin(*tensors, block_size=size, scale=scale, soft_cap=soft_cap, window=window, sinks=sinks)
    out = paged_prefill(
        *tensors,
        max_queries=max(counts, default=0),
        block_size=size,
        scale=scale,
        soft_cap=soft_cap,
        window=window,
        sinks=sinks,
    )
    torch.testing.assert_close(out, expected, rtol=_TOLERANCE[dtype], atol=_TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", _TOLERANCE)
@pytest.mark.parametrize("shape", _SHAPES, ids=str)
def test_prompts_and_chunks_of_any_lengths_attend_as_the_twin(shape: Shape, dtype: torch.dtype) -> None:
    _assert_equals_twin(shape, dtype)


@pytest.mark.parametrize("dtype", _TOLERANCE)
@pytest.mark.parametrize("window", [1, 6, 1000])
def test_a_window_hides_what_is_older(dtype: torch.dtype, window: int) -> None:
    _assert_equals_twin(_ORDINARY, dtype, window=window)


@pytest.mark.parametrize("dtype", _TOLERANCE)
def test_scale_soft_cap_and_sinks_are_those_of_the_twin(dtype: torch.dtype) -> None:
    _assert_equals_twin(_RAGGED, dtype, scale=0.3)
    _assert_equals_twin(_RAGGED, dtype, soft_cap=3.0)
    _assert_equals_twin(_RAGGED, dtype, has_sinks=True)
    _assert_equals_twin(_RAGGED, dtype, scale=0.3, soft_cap=3.0, window=6, has_sinks=True)


@pytest.mark.parametrize("dtype", _TOLERANCE)
@pytest.mark.parametrize("kv_dtype", ["int8", "fp8"])
def test_a_scaled_cache_is_read_as_the_twin_reads_it(dtype: torch.dtype, kv_dtype: str) -> None:
    _assert_equals_twin(_RAGGED, dtype, kv_dtype=kv_dtype)


def test_wrong_shapes_are_refused_by_name() -> None:
    cache, block_tables = paged_cache([5, 7], 2, 32, block_size=8, kv_dtype="float32")
    queries, lengths = torch.zeros(12, 4, 32), torch.tensor([5, 7], dtype=torch.int32)
    starts = torch.tensor([0, 5, 12], dtype=torch.int32)
    with pytest.raises(ValueError, match="query_starts: expected the shape"):
        paged_prefill(queries, cache, block_tables, starts[:2], lengths, max_queries=7, block_size=8)
    with pytest.raises(ValueError, match=r"lengths: expected torch\.int32"):
        paged_prefill(queries, cache, block_tables, starts, lengths.long(), max_queries=7, block_size=8)
    with pytest.raises(ValueError, match="queries: expected a multiple"):
        paged_prefill(queries[:, :3].contiguous(), cache, block_tables, starts, lengths, max_queries=7, block_size=8)
    with pytest.raises(ValueError, match="window: expected at least 1"):
        paged_prefill(queries, cache, block_tables, starts, lengths, max_queries=7, block_size=8, window=0)
