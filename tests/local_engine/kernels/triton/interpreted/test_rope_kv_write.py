"""Norm of the heads, rope and writing to the cache against the twin."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from local_engine.kernels.operations import HeadNorms
from local_engine.kernels.triton.rope_kv_write import rope_kv_write, rope_kv_write_twin
from local_engine.layers.kv_cache import LayerCache, new_layer_cache
from local_engine.layers.rope import rope_tables

_TOLERANCE = {torch.float32: 5e-6, torch.float16: 4e-3, torch.bfloat16: 3e-2}
_NAMES = {torch.float32: "float32", torch.float16: "float16", torch.bfloat16: "bfloat16"}
_SLOTS = 40


@dataclass(frozen=True)
class Shape:
    """rotary_dim: 0 turns nothing."""

    rows: int
    heads: int
    kv_heads: int
    head_dim: int
    rotary_dim: int


_ORDINARY = Shape(3, 4, 2, 64, 64)
_SHAPES = [_ORDINARY, Shape(5, 9, 3, 64, 32), Shape(2, 3, 1, 80, 80), Shape(4, 6, 6, 20, 12), Shape(2, 2, 1, 16, 0),
           Shape(0, 4, 2, 64, 64), Shape(1, 20, 4, 128, 128)]  # fmt: skip


def _cache(shape: Shape, kv_dtype: str) -> LayerCache:
    cache = new_layer_cache(_SLOTS, shape.kv_heads, shape.head_dim, kv_dtype=kv_dtype, device=torch.device("cpu"))
    for part in cache.parts():
        part.zero_()
    return cache


def _inputs(shape: Shape, dtype: torch.dtype) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor] | None, HeadNorms]:
    generator = torch.Generator().manual_seed(11)
    qkv = torch.randn(shape.rows, shape.heads + 2 * shape.kv_heads, shape.head_dim, generator=generator).to(dtype)
    slots = torch.randperm(_SLOTS, generator=generator)[: shape.rows]
    angles = None
    if shape.rotary_dim:
        frequencies = 1.0 / 10_000 ** (torch.arange(0, shape.rotary_dim, 2) / shape.rotary_dim)
        angles = rope_tables(torch.randint(0, 5000, (shape.rows,), generator=generator), frequencies, dtype)
    weights = torch.randn(2, shape.head_dim, generator=generator).to(dtype)
    return qkv, slots, angles, HeadNorms(weights[0], weights[1], 1e-6)


@pytest.mark.parametrize("dtype", _TOLERANCE)
@pytest.mark.parametrize("shape", _SHAPES, ids=str)
@pytest.mark.parametrize("has_norms", [False, True])
def test_queries_and_cache_are_those_of_the_twin(shape: Shape, dtype: torch.dtype, has_norms: bool) -> None:
    qkv, slots, angles, head_norms = _inputs(shape, dtype)
    norms = head_norms if has_norms else None
    cache, expected_cache = _cache(shape, _NAMES[dtype]), _cache(shape, _NAMES[dtype])

    expected = rope_kv_write_twin(qkv, expected_cache, slots, angles=angles, norms=norms)
    queries = rope_kv_write(qkv, cache, slots, angles=angles, norms=norms)

    tolerance = _TOLERANCE[dtype]
    torch.testing.assert_close(queries, expected, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(cache.keys, expected_cache.keys, rtol=tolerance, atol=tolerance)
    assert torch.equal(cache.values, expected_cache.values)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize(("kv_dtype", "step"), [("int8", 1 / 127), ("fp8", 32 / 448)])
@pytest.mark.parametrize("shape", _SHAPES, ids=str)
def test_a_scaled_cache_holds_what_the_twin_writes_to_one_step(
    shape: Shape, dtype: torch.dtype, kv_dtype: str, step: float
) -> None:
    qkv, slots, angles, norms = _inputs(shape, dtype)
    if shape.rows:
        qkv[0, -1] = 0.0  # a value of zeros: its scale must divide
    cache, expected_cache = _cache(shape, kv_dtype), _cache(shape, kv_dtype)

    rope_kv_write_twin(qkv, expected_cache, slots, angles=angles, norms=norms)
    rope_kv_write(qkv, cache, slots, angles=angles, norms=norms)

    for written, expected, scales, expected_scales in zip(
        cache.read(slice(None), torch.float32),
        expected_cache.read(slice(None), torch.float32),
        (cache.key_scales, cache.value_scales),
        (expected_cache.key_scales, expected_cache.value_scales),
        strict=True,
    ):
        assert scales is not None
        assert expected_scales is not None
        torch.testing.assert_close(scales, expected_scales, rtol=1e-5, atol=1e-8)
        largest = expected.abs().amax(-1, keepdim=True)
        difference = (written - expected).abs()
        if kv_dtype == "fp8":
            # The interpreter's own cast to fp8 forgets the exponent where rounding carries into it (31.9 becomes 16,
            # Triton 3.9): its defect, and not the kernel's. The hardware's cast carries.
            difference[(2 * written - expected).abs() <= 1e-5 * expected.abs()] = 0.0
        assert (difference <= 1.01 * step * largest + 1e-12).all()
        # A neighbouring step is for ties of rounding: hardly ever.
        assert (difference > 1e-4 * largest).float().mean() < 0.01


def test_a_row_of_padding_is_written_nowhere() -> None:
    qkv, slots, angles, norms = _inputs(_ORDINARY, torch.float32)
    slots[1] = -1
    cache, expected_cache = _cache(_ORDINARY, "float32"), _cache(_ORDINARY, "float32")
    rope_kv_write_twin(qkv, expected_cache, slots, angles=angles, norms=norms)
    rope_kv_write(qkv, cache, slots, angles=angles, norms=norms)
    torch.testing.assert_close(cache.keys, expected_cache.keys, rtol=1e-5, atol=1e-5)
    assert int(cache.values.any(-1).any(-1).sum()) == 2


def test_wrong_shapes_are_refused_by_name() -> None:
    qkv, slots, angles, norms = _inputs(_ORDINARY, torch.float32)
    cache = _cache(_ORDINARY, "float32")
    with pytest.raises(ValueError, match="slots: expected the shape"):
        rope_kv_write(qkv, cache, slots[:1], angles=angles)
    with pytest.raises(ValueError, match=r"slots: expected torch\.int64"):
        rope_kv_write(qkv, cache, slots.int(), angles=angles)
    with pytest.raises(ValueError, match="queries: expected a multiple"):
        rope_kv_write(qkv[:, :7].contiguous(), cache, slots, angles=angles)
    with pytest.raises(ValueError, match="angles: expected an even number"):
        rope_kv_write(qkv, cache, slots, angles=(torch.zeros(3, 1, 66), torch.zeros(3, 1, 66)))
    with pytest.raises(ValueError, match=r"norms\.keys: expected the shape"):
        rope_kv_write(qkv, cache, slots, angles=angles, norms=HeadNorms(norms.queries, norms.keys[:8], 1e-6))
    scaled = _cache(_ORDINARY, "int8")
    with pytest.raises(ValueError, match=r"cache\.value_scales: expected scales"):
        rope_kv_write(qkv, LayerCache(scaled.keys, scaled.values, scaled.key_scales), slots, angles=angles)
