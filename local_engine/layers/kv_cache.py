"""One layer's keys and values in the paged cache, in the type that they are kept in.

Owns how numbers become what is stored and back. A float type is a cast. fp8 (e4m3) and int8 have a scale for each token
and head, its largest magnitude over the largest number of the type, so an outlier costs the others of its own head and
token only.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["LayerCache", "kv_item_bytes", "new_layer_cache", "storage_dtype"]

_STORAGE = {"fp8": torch.float8_e4m3fn, "int8": torch.int8}
_LARGEST = {torch.float8_e4m3fn: 448.0, torch.int8: 127.0}
_SCALE = torch.float32
# Below any magnitude that attention could tell from zero: the scale of a vector of zeros must divide.
_LEAST_SCALE = 1e-12


def storage_dtype(kv_dtype: str) -> torch.dtype:
    """The type of stored numbers: of float32, bfloat16, float16, fp8 or int8."""
    stored: torch.dtype = _STORAGE.get(kv_dtype) or getattr(torch, kv_dtype)
    return stored


def kv_item_bytes(kv_dtype: str, head_dim: int) -> int:
    """Bytes that one head's key, or value, of one token takes, its scale included."""
    dtype = storage_dtype(kv_dtype)
    return head_dim * dtype.itemsize + (_SCALE.itemsize if dtype in _LARGEST else 0)


@dataclass(frozen=True, slots=True)
class LayerCache:
    """keys, values: [slots, K, D] in the storage type; a slot is block * block_size + offset.

    key_scales, value_scales: [slots, K] float32 where the storage type has scales.
    A tensor a layer: one stacked over layers is slower to write.
    """

    keys: Tensor
    values: Tensor
    key_scales: Tensor | None = None
    value_scales: Tensor | None = None

    def write(self, slots: Tensor, keys: Tensor, values: Tensor) -> None:
        """Stores keys and values [T, K, D], of the compute type, at slots [T] int64."""
        _write(self.keys, self.key_scales, slots, keys)
        _write(self.values, self.value_scales, slots, values)

    def read(self, slots: Tensor | slice, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Keys and values at slots, [N, K, D] each, in `dtype`: views where nothing has to be gathered or converted."""
        return _read(self.keys, self.key_scales, slots, dtype), _read(self.values, self.value_scales, slots, dtype)

    def parts(self) -> tuple[Tensor, ...]:
        """All that belongs to a slot, as tensors that any operation moves: [slots, ...] each."""
        scales = (side for side in (self.key_scales, self.value_scales) if side is not None)
        return (_movable(self.keys), _movable(self.values), *scales)


def new_layer_cache(slots: int, num_kv_heads: int, head_dim: int, *, kv_dtype: str, device: torch.device) -> LayerCache:
    """A cache that is not zeroed: memory that no sequence has written yet is not even resident."""
    dtype = storage_dtype(kv_dtype)
    sides = [torch.empty(slots, num_kv_heads, head_dim, dtype=dtype, device=device) for _ in range(2)]
    if dtype not in _LARGEST:
        return LayerCache(*sides)
    return LayerCache(*sides, *(torch.empty(slots, num_kv_heads, dtype=_SCALE, device=device) for _ in range(2)))


def _write(side: Tensor, scales: Tensor | None, slots: Tensor, numbers: Tensor) -> None:
    if scales is None:
        side.index_copy_(0, slots, numbers.to(side.dtype))
        return
    magnitudes = numbers.float()
    scale = (magnitudes.abs().amax(-1) / _LARGEST[side.dtype]).clamp_min(_LEAST_SCALE)
    scaled = magnitudes / scale.unsqueeze(-1)
    if side.dtype == torch.int8:
        scaled = scaled.round_()
    scales.index_copy_(0, slots, scale)
    _movable(side).index_copy_(0, slots, _movable(scaled.to(side.dtype)))


def _read(side: Tensor, scales: Tensor | None, slots: Tensor | slice, dtype: torch.dtype) -> Tensor:
    stored = _taken(_movable(side), slots)
    if scales is None:
        return stored.to(dtype)
    return (stored.view(side.dtype).float() * _taken(scales, slots).unsqueeze(-1)).to(dtype)


def _taken(tensor: Tensor, slots: Tensor | slice) -> Tensor:
    return tensor[slots] if isinstance(slots, slice) else tensor.index_select(0, slots)


def _movable(tensor: Tensor) -> Tensor:
    """The tensor as bytes where it is fp8, whose elements torch does not move by index on every device."""
    return tensor.view(torch.uint8) if tensor.dtype == torch.float8_e4m3fn else tensor
