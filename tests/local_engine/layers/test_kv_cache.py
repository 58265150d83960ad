"""What comes back from the cache is what went in, within what its type can hold; other slots are left alone."""

import pytest
import torch
from torch import Tensor

from local_engine.layers.kv_cache import LayerCache, kv_item_bytes, new_layer_cache

CPU = torch.device("cpu")
SLOTS = torch.tensor([7, 2, 12])
# Largest error of a number, as a share of the largest of its head and token.
ERRORS = {"float32": 0.0, "float16": 2**-11, "bfloat16": 2**-8, "fp8": 2**-4, "int8": 0.5 / 127}


def cache_of(kv_dtype: str, *, head_dim: int = 8) -> LayerCache:
    """Sixteen slots of zeros."""
    cache = new_layer_cache(16, 2, head_dim, kv_dtype=kv_dtype, device=CPU)
    for part in cache.parts():
        part[:] = 0
    return cache


def numbers(*, head_dim: int = 8, seed: int = 0) -> Tensor:
    random = torch.Generator().manual_seed(seed)
    return torch.randn(3, 2, head_dim, generator=random) * torch.tensor([1e-3, 1.0, 300.0])[:, None, None]


@pytest.mark.parametrize("kv_dtype", ERRORS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_numbers_come_back_within_the_error_of_their_type(kv_dtype: str, dtype: torch.dtype) -> None:
    cache = cache_of(kv_dtype)
    keys, values = numbers().to(dtype), numbers(seed=1).to(dtype)
    cache.write(SLOTS, keys, values)
    allowed = ERRORS[kv_dtype] * 1.01 + (0 if dtype == torch.float32 else torch.finfo(dtype).eps)
    for side, expected in zip(cache.read(SLOTS, dtype), (keys, values), strict=True):
        assert side.dtype == dtype
        error = (side.double() - expected.double()).abs().amax(-1) / expected.double().abs().amax(-1)
        assert float(error.max()) <= allowed


@pytest.mark.parametrize("kv_dtype", ERRORS)
def test_a_slice_reads_what_its_indices_read_and_unwritten_slots_are_untouched(kv_dtype: str) -> None:
    cache = cache_of(kv_dtype)
    cache.write(SLOTS, numbers(), numbers(seed=1))
    by_slice = cache.read(slice(0, 16), torch.float32)
    by_index = cache.read(torch.arange(16), torch.float32)
    untouched = [slot for slot in range(16) if slot not in SLOTS.tolist()]
    for one, other in zip(by_slice, by_index, strict=True):
        assert torch.equal(one, other)
        assert not one[untouched].any()
        assert one[SLOTS].any(-1).all()


@pytest.mark.parametrize("kv_dtype", ["fp8", "int8"])
def test_one_large_number_costs_its_own_head_and_token_alone(kv_dtype: str) -> None:
    cache = cache_of(kv_dtype)
    keys = torch.ones(3, 2, 8)
    keys[1, 0, 3] = 1e6
    cache.write(SLOTS, keys, keys)
    read, _ = cache.read(SLOTS, torch.float32)
    others = torch.ones(3, 2, dtype=torch.bool)
    others[1, 0] = False
    torch.testing.assert_close(read[others], keys[others])
    assert float(read[1, 0, 3]) == pytest.approx(1e6)


@pytest.mark.parametrize("kv_dtype", ["fp8", "int8"])
@pytest.mark.parametrize("broken", [torch.nan, torch.inf])
def test_what_is_no_number_is_none_when_it_is_read(kv_dtype: str, broken: float) -> None:
    cache = cache_of(kv_dtype)
    keys = torch.ones(3, 2, 8)
    keys[1, 0, 3] = broken
    cache.write(SLOTS, keys, keys)
    read, _ = cache.read(SLOTS, torch.float32)
    assert not read[1, 0].isfinite().all()
    assert read[1, 1].isfinite().all()


@pytest.mark.parametrize(
    ("kv_dtype", "expected"), [("float32", 256), ("bfloat16", 128), ("float16", 128), ("fp8", 68), ("int8", 68)]
)
def test_the_bytes_of_a_head_are_those_of_its_tensors(kv_dtype: str, expected: int) -> None:
    cache = cache_of(kv_dtype, head_dim=64)
    held = sum(part.numel() * part.element_size() for part in cache.parts())
    assert kv_item_bytes(kv_dtype, 64) == expected
    assert held == 16 * 2 * 2 * expected
