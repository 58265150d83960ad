"""Decode attention over the paged cache against the twin."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from local_engine.kernels.triton.paged_decode import num_splits, paged_decode, paged_decode_twin
from local_engine.layers.kv_cache import LayerCache
from tests.local_engine.kernels.triton.interpreted.paged_inputs import paged_cache

_TOLERANCE = {torch.float32: 1e-5, torch.float16: 2e-3}


@dataclass(frozen=True)
class Shape:
    """The lengths of the sequences, and the widths of the model."""

    lengths: tuple[int, ...]
    heads: int
    kv_heads: int
    head_dim: int
    block_size: int = 16


@dataclass(frozen=True)
class Inputs:
    """What `paged_decode` takes for a shape."""

    queries: Tensor
    cache: LayerCache
    block_tables: Tensor
    lengths: Tensor
    sinks: Tensor


_ORDINARY = Shape((1, 150), 6, 2, 64)
_RAGGED = Shape((65, 0, 7), 9, 3, 64, 8)
_ODD = Shape((70,), 3, 1, 80, 12)
_SHAPES_AND_SPLITS = [
    (_ORDINARY, 1),
    (_ORDINARY, 3),
    (_ORDINARY, 8),
    (_RAGGED, 1),
    (_ODD, 2),
    (Shape((), 4, 2, 32), 2),
    (Shape((90,), 20, 1, 20), 2),
    (Shape((33,), 2, 1, 256), 1),
    (Shape((128,), 2, 2, 128), 2),
]
_DTYPES = [(torch.float32, "float32"), (torch.float16, "float16")]


def _inputs(shape: Shape, dtype: torch.dtype, kv_dtype: str) -> Inputs:
    generator = torch.Generator().manual_seed(6)
    cache, block_tables = paged_cache(
        shape.lengths, shape.kv_heads, shape.head_dim, block_size=shape.block_size, kv_dtype=kv_dtype
    )
    return Inputs(
        2 * torch.randn(len(shape.lengths), shape.heads, shape.head_dim, generator=generator).to(dtype),
        cache,
        block_tables,
        torch.tensor(shape.lengths, dtype=torch.int32),
        torch.randn(shape.heads, generator=generator).to(dtype),
    )


def _assert_equals_twin(
    shape: Shape,
    dtype: torch.dtype,
    kv_dtype: str,
    *,
    splits: int = 1,
    scale: float | None = None,
    soft_cap: float | None = None,
    window: int | None = None,
    has_sinks: bool = False,
) -> None:
    inputs = _inputs(shape, dtype, kv_dtype)
    tensors = inputs.queries, inputs.cache, inputs.block_tables, inputs.lengths
    sinks = inputs.sinks if has_sinks else None
    expected = paged_decode_twin(
        *tensors, block_size=shape.block_size, scale=scale, soft_cap=soft_cap, window=window, sinks=sinks
    )
    out = paged_decode(
        *tensors,
        block_size=shape.block_size,
        splits=splits,
        scale=scale,
        soft_cap=soft_cap,
        window=window,
        sinks=sinks,
    )
    tolerance = _TOLERANCE[dtype]
    torch.testing.assert_close(out, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("dtype", "kv_dtype"), _DTYPES)
@pytest.mark.parametrize(("shape", "splits"), _SHAPES_AND_SPLITS, ids=str)
def test_attention_is_that_of_the_twin_in_any_number_of_ranges(
    shape: Shape, dtype: torch.dtype, kv_dtype: str, splits: int
) -> None:
    _assert_equals_twin(shape, dtype, kv_dtype, splits=splits)


@pytest.mark.parametrize(("dtype", "kv_dtype"), _DTYPES)
@pytest.mark.parametrize("window", [1, 40, 1000])
def test_a_window_hides_what_is_older(dtype: torch.dtype, kv_dtype: str, window: int) -> None:
    _assert_equals_twin(_ORDINARY, dtype, kv_dtype, splits=2, window=window)


@pytest.mark.parametrize(("dtype", "kv_dtype"), _DTYPES)
def test_scale_soft_cap_and_sinks_are_those_of_the_twin(dtype: torch.dtype, kv_dtype: str) -> None:
    _assert_equals_twin(_ODD, dtype, kv_dtype, splits=2, scale=0.3)
    _assert_equals_twin(_ODD, dtype, kv_dtype, splits=2, soft_cap=3.0)
    _assert_equals_twin(_RAGGED, dtype, kv_dtype, splits=2, has_sinks=True)
    _assert_equals_twin(_ODD, dtype, kv_dtype, splits=1, scale=0.3, soft_cap=3.0, window=40, has_sinks=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("kv_dtype", ["int8", "fp8"])
def test_a_scaled_cache_is_read_as_the_twin_reads_it(dtype: torch.dtype, kv_dtype: str) -> None:
    _assert_equals_twin(_ORDINARY, dtype, kv_dtype, splits=3)


def test_a_row_of_padding_gives_zeros() -> None:
    shape = Shape((0, 5), 4, 2, 32)
    inputs = _inputs(shape, torch.float32, "float32")
    for sinks in (None, inputs.sinks):
        out = paged_decode(
            inputs.queries, inputs.cache, inputs.block_tables, inputs.lengths, block_size=16, splits=2, sinks=sinks
        )
        assert not out[0].any()
        assert out[1].isfinite().all()


def test_few_sequences_are_split_and_many_are_not() -> None:
    assert num_splits(1, 8, 8192, 132) == 33
    assert num_splits(64, 8, 8192, 132) == 1
    assert num_splits(1, 8, 100, 132) == 2
    assert num_splits(1, 1, 10**6, 132) == 64
    assert num_splits(0, 8, 0, 132) == 1


def test_wrong_shapes_are_refused_by_name() -> None:
    inputs = _inputs(_ORDINARY, torch.float32, "float32")
    queries, cache, block_tables, lengths = inputs.queries, inputs.cache, inputs.block_tables, inputs.lengths
    with pytest.raises(ValueError, match="lengths: expected the shape"):
        paged_decode(queries, cache, block_tables, lengths[:1], block_size=16)
    with pytest.raises(ValueError, match=r"block_tables: expected torch\.int32"):
        paged_decode(queries, cache, block_tables.long(), lengths, block_size=16)
    with pytest.raises(ValueError, match="queries: expected a multiple"):
        paged_decode(queries[:, :5].contiguous(), cache, block_tables, lengths, block_size=16)
    with pytest.raises(ValueError, match=r"cache\.keys: expected the shape"):
        paged_decode(queries[..., :32].contiguous(), cache, block_tables, lengths, block_size=16)
    with pytest.raises(ValueError, match="splits: expected 1 to 64"):
        paged_decode(queries, cache, block_tables, lengths, block_size=16, splits=65)
    with pytest.raises(ValueError, match="window: expected at least 1"):
        paged_decode(queries, cache, block_tables, lengths, block_size=16, window=0)
    with pytest.raises(ValueError, match="sinks: expected the shape"):
        paged_decode(queries, cache, block_tables, lengths, block_size=16, sinks=inputs.sinks[:1])
