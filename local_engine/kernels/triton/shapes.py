"""What a launcher expects of its tensors. A kernel reads by address alone, so a wrong shape must not get that far."""

from collections.abc import Collection

import torch
from torch import Tensor

from local_engine.layers.kv_cache import LayerCache

__all__ = ["FLOATS", "LARGEST", "expect", "expect_cache"]

# What the kernels compute from and to; inside they accumulate in float32.
FLOATS = (torch.float16, torch.bfloat16, torch.float32)
# The types of a cache that have a scale a head and token, and their largest numbers.
LARGEST = {torch.float8_e4m3fn: 448.0, torch.int8: 127.0}


def expect(name: str, tensor: Tensor, shape: tuple[int, ...], dtypes: Collection[torch.dtype]) -> None:
    """Raises ValueError, which names the tensor, unless it is of this shape, of one of the types, and contiguous."""
    if tuple(tensor.shape) != shape:
        raise ValueError(f"{name}: expected the shape {shape}, got {tuple(tensor.shape)}")
    if tensor.dtype not in dtypes:
        raise ValueError(f"{name}: expected {' or '.join(map(str, dtypes))}, got {tensor.dtype}")
    if not tensor.is_contiguous():
        raise ValueError(f"{name}: expected a contiguous tensor, got the strides {tensor.stride()}")


def expect_cache(cache: LayerCache, num_heads: int, head_dim: int) -> int:
    """The cache's kv heads. Raises ValueError unless it is one for query heads of this number and size."""
    num_slots, num_kv_heads = cache.keys.shape[:2]
    if num_heads <= 0 or num_heads % num_kv_heads:
        raise ValueError(f"queries: expected a multiple of the cache's {num_kv_heads} heads, got {num_heads}")
    for name, side in (("keys", cache.keys), ("values", cache.values)):
        expect(f"cache.{name}", side, (num_slots, num_kv_heads, head_dim), (*FLOATS, *LARGEST))
    for name, scales in (("key_scales", cache.key_scales), ("value_scales", cache.value_scales)):
        if (scales is not None) != (cache.keys.dtype in LARGEST):
            raise ValueError(f"cache.{name}: expected scales beside int8 and fp8 alone, got {cache.keys.dtype}")
        if scales is not None:
            expect(f"cache.{name}", scales, (num_slots, num_kv_heads), (torch.float32,))
    return num_kv_heads
