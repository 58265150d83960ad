"""The products of the kernels once more, in numpy: what they must compute bit by bit.

Each file type is decoded here from its description, not by the kernels' code.
"""

from dataclasses import dataclass
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType as FileType

__all__ = [
    "DENSE_TYPES",
    "QUANTISED_TYPES",
    "Groups",
    "decode",
    "multiply",
    "nibbles",
    "random_rows",
    "rounded_activations",
]

QUANTISED_TYPES = (
    FileType.Q4_0,
    FileType.Q4_1,
    FileType.Q5_0,
    FileType.Q5_1,
    FileType.Q8_0,
    FileType.Q4_K,
    FileType.Q5_K,
    FileType.Q6_K,
    FileType.MXFP4,
)
DENSE_TYPES = (FileType.F32, FileType.F16, FileType.BF16)

Floats = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]
Wide = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Groups:
    """Rows of whole numbers in groups: weight = scale * number + offset. numbers [R, G, size]; the others [R, G]."""

    numbers: npt.NDArray[np.int64]
    scales: Floats
    offsets: Floats | None


def random_rows(kind: FileType, rows: int, columns: int, rng: np.random.Generator) -> Bytes:
    """Rows as a file has them, every bit of the numbers at random and the scales of ordinary sizes."""
    if kind in DENSE_TYPES:
        values = rng.normal(0, 0.05, (rows, columns)).astype(np.float32)
        stored = gguf.quants.quantize(values, kind) if kind is FileType.BF16 else values
        return np.ascontiguousarray(stored.astype(np.float16) if kind is FileType.F16 else stored).view(np.uint8)
    block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    data = rng.integers(0, 256, (rows, columns // block, block_bytes), dtype=np.uint8)
    if kind is FileType.MXFP4:
        data[:, :, 0] = rng.integers(118, 124, (rows, columns // block))
    for start in _SCALES_AT[kind]:
        scale = rng.uniform(0.001, 0.02, (rows, columns // block)).astype(np.float16)
        data[:, :, start : start + 2] = scale[..., None].view(np.uint8)
    return data.reshape(rows, -1)


_SCALES_AT = {
    FileType.Q4_0: (0,),
    FileType.Q4_1: (0, 2),
    FileType.Q5_0: (0,),
    FileType.Q5_1: (0, 2),
    FileType.Q8_0: (0,),
    FileType.Q4_K: (0, 2),
    FileType.Q5_K: (0, 2),
    FileType.Q6_K: (208,),
    FileType.MXFP4: (),
}
# A sign, two bits of exponent and one of mantissa: twice what they say.
_DOUBLED_FLOATS = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12])


def decode(kind: FileType, rows: Bytes) -> Groups:
    """What the rows say. Scales of K types are rounded to half precision, as the kernels keep them."""
    block_bytes = gguf.GGML_QUANT_SIZES[kind][1]
    blocks = rows.reshape(len(rows), -1, block_bytes)
    match kind:
        case FileType.Q4_0:
            return Groups(nibbles(blocks[..., 2:]) - 8, _half(blocks[..., :2]), None)
        case FileType.Q4_1:
            return Groups(nibbles(blocks[..., 4:]), _half(blocks[..., :2]), _half(blocks[..., 2:4]))
        case FileType.Q5_0:
            numbers = nibbles(blocks[..., 6:]) + 16 * _bits(blocks[..., 2:6])
            return Groups(numbers - 16, _half(blocks[..., :2]), None)
        case FileType.Q5_1:
            numbers = nibbles(blocks[..., 8:]) + 16 * _bits(blocks[..., 4:8])
            return Groups(numbers, _half(blocks[..., :2]), _half(blocks[..., 2:4]))
        case FileType.Q8_0:
            return Groups(blocks[..., 2:].view(np.int8).astype(np.int64), _half(blocks[..., :2]), None)
        case FileType.MXFP4:
            powers = np.ldexp(np.float32(1), blocks[..., 0].astype(np.int32) - 128)
            return Groups(_DOUBLED_FLOATS[nibbles(blocks[..., 1:])], powers.astype(np.float32), None)
        case FileType.Q6_K:
            return _decode_q6_k(blocks)
        case _:
            return _decode_k(blocks, fifth_bits=kind is FileType.Q5_K)


def _half(data: Bytes) -> Floats:
    return np.ascontiguousarray(data).view(np.float16)[..., 0].astype(np.float32)


def nibbles(data: Bytes) -> npt.NDArray[np.int64]:
    """First the lower halves of all bytes, then the upper ones."""
    return np.concatenate([data & 15, data >> 4], axis=-1).astype(np.int64)


def _bits(data: Bytes) -> npt.NDArray[np.int64]:
    return np.unpackbits(data, axis=-1, bitorder="little").astype(np.int64)


def _decode_k(blocks: Bytes, *, fifth_bits: bool) -> Groups:
    packed = blocks[..., 4:16].astype(np.int64)
    low, high, top = packed[..., 0:4], packed[..., 4:8], packed[..., 8:12]
    scales = np.concatenate([low & 63, (top & 15) | (low >> 6) << 4], axis=-1)
    minima = np.concatenate([high & 63, top >> 4 | (high >> 6) << 4], axis=-1)
    quads = blocks[..., 48 if fifth_bits else 16 :].reshape(*blocks.shape[:2], 4, 32)
    numbers = np.stack([quads & 15, quads >> 4], axis=-2).reshape(*blocks.shape[:2], 8, 32).astype(np.int64)
    if fifth_bits:
        planes = blocks[..., 16:48]
        numbers += 16 * np.stack([planes >> bit & 1 for bit in range(8)], axis=-2).astype(np.int64)
    rows = len(blocks)
    return Groups(
        numbers.reshape(rows, -1, 32),
        _rounded(_half(blocks[..., 0:2])[..., None] * scales.astype(np.float32)).reshape(rows, -1),
        _rounded(-_half(blocks[..., 2:4])[..., None] * minima.astype(np.float32)).reshape(rows, -1),
    )


def _decode_q6_k(blocks: Bytes) -> Groups:
    low = blocks[..., :128].reshape(*blocks.shape[:2], 2, 64)
    high = blocks[..., 128:192].reshape(*blocks.shape[:2], 2, 1, 32)
    nibbles = np.concatenate([low & 15, low >> 4], axis=-1).reshape(*blocks.shape[:2], 2, 4, 32)
    pairs = high >> np.array([0, 2, 4, 6], dtype=np.uint8)[:, None] & 3
    numbers = (nibbles | pairs << 4).astype(np.int64) - 32
    scales = _half(blocks[..., 208:])[..., None] * blocks[..., 192:208].view(np.int8).astype(np.float32)
    rows = len(blocks)
    return Groups(numbers.reshape(rows, -1, 16), _rounded(scales).reshape(rows, -1), None)


def _rounded(values: Floats) -> Floats:
    return values.astype(np.float16).astype(np.float32)


def rounded_activations(x: Floats, *, fine: bool = False) -> tuple[npt.NDArray[np.int64], Floats]:
    """Rows as whole numbers in groups of 16, and the scale of each group: [T, G, 16] and [T, G]."""
    groups = x.reshape(len(x), -1, 16)
    most = np.abs(groups).max(-1)
    levels = np.float32(127 * 128 if fine else 127)
    steps = levels / np.maximum(most, np.float32(1e-34))
    return np.rint(groups * steps[..., None]).astype(np.int64), most / levels


def _fma(a: Floats, b: Floats, c: Floats) -> Floats:
    """a * b + c, rounded once: the product of two floats is exact in double precision."""
    exact: Wide = a.astype(np.float64) * b.astype(np.float64) + c.astype(np.float64)
    return exact.astype(np.float32)


def multiply(groups: Groups, x: Floats, bias: Floats | None = None, *, fine: bool = False) -> Floats:
    """[T, columns] -> [T, R], group after group, as multiply.h says."""
    numbers, x_scales = rounded_activations(x, fine=fine)
    size = groups.numbers.shape[-1]
    total: Any = np.zeros((len(x), len(groups.numbers)), dtype=np.float32)
    if bias is not None:
        total = total + bias
    sums = numbers.sum(-1).astype(np.float32) * x_scales
    for index in range(numbers.shape[1] // 2):
        even, odd = (_dots(numbers[:, 2 * index + half], groups, 2 * index + half) for half in range(2))
        even_scale, odd_scale = (np.broadcast_to(x_scales[:, [2 * index + half]], even.shape) for half in range(2))
        scale = np.broadcast_to(groups.scales[:, index * (32 // size)], even.shape)
        if size == 16:
            total = _fma(even * even_scale, scale, total)
            total = _fma(odd * odd_scale, np.broadcast_to(groups.scales[:, 2 * index + 1], even.shape), total)
        else:
            total = _fma(_fma(odd, odd_scale, even * even_scale), scale, total)
        if groups.offsets is not None:
            x_sum = sums[:, 2 * index] + sums[:, 2 * index + 1]
            offsets = np.broadcast_to(groups.offsets[:, index], total.shape)
            total = _fma(offsets, np.broadcast_to(x_sum[:, None], total.shape), total)
    return np.asarray(total, dtype=np.float32)


def _dots(numbers: npt.NDArray[np.int64], groups: Groups, index: int) -> Floats:
    """Products of 16 activations [T, 16] with the weights of those columns: [T, R]."""
    size = groups.numbers.shape[-1]
    first = index * 16 % size
    weights = groups.numbers[:, index * 16 // size, first : first + 16]
    return (numbers @ weights.T).astype(np.float32)
