"""Blocks of a GGUF, as they lie in the file, as a `QuantizedMatrix`. Layouts: ggml-common.h of llama.cpp, 2026-11.

Q4_K and Q5_K have scales and minima of 6 bits, which become bytes: 4.625 bits a weight in place of 4.5. All other types
take as many bytes as in the file.
"""

from collections.abc import Callable, Mapping

import torch
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from torch import Tensor

from local_engine.layers.quantized_matrix import (
    SUPER_GROUP,
    GroupNumbers,
    QuantizedMatrix,
    packed_codes,
    packed_high_bits,
)

__all__ = ["REPACKED_TYPES", "gguf_matrix"]

_BLOCK = 32


def gguf_matrix(rows: Tensor, kind: GGMLQuantizationType) -> QuantizedMatrix:
    """rows: [N, bytes a row] uint8, of one of REPACKED_TYPES, on any device. Raises ValueError for others."""
    if kind not in _READERS:
        raise ValueError(f"expected one of {', '.join(kind.name for kind in _READERS)}, got {kind.name}")
    items, num_bytes = GGML_QUANT_SIZES[kind]
    if rows.ndim != 2 or rows.dtype != torch.uint8 or rows.shape[1] % num_bytes:
        raise ValueError(f"rows: expected uint8 [N, multiple of {num_bytes}], got {rows.dtype} {tuple(rows.shape)}")
    num_outputs = len(rows)
    blocks = rows.reshape(num_outputs, -1, num_bytes)
    return _READERS[kind](blocks, blocks.shape[1] * items)


def _halves(blocks: Tensor) -> Tensor:
    """[N, blocks, 2] bytes -> [blocks, N] float16."""
    return blocks.contiguous().view(torch.float16).squeeze(-1).T.contiguous()


def _by_input(codes: Tensor) -> Tensor:
    """[N, blocks, ...] -> [K, N]."""
    return codes.flatten(1).T


def _nibbles(half_bytes: Tensor, run: int) -> Tensor:
    """[N, blocks, bytes]: of each `run` bytes first the lower halves, then the upper -> [N, blocks, 2 bytes]."""
    runs = half_bytes.reshape(*half_bytes.shape[:2], -1, run)
    return torch.stack((runs & 15, runs >> 4), -2).flatten(2)


def _q4_0(blocks: Tensor, num_inputs: int) -> QuantizedMatrix:
    codes = packed_codes(_by_input(_nibbles(blocks[..., 2:], 16)), 4)
    return QuantizedMatrix(codes, GroupNumbers(_halves(blocks[..., :2])), num_inputs, 4, _BLOCK, zero=8)


def _q4_1(blocks: Tensor, num_inputs: int) -> QuantizedMatrix:
    codes = packed_codes(_by_input(_nibbles(blocks[..., 4:], 16)), 4)
    scales, minima = (GroupNumbers(_halves(blocks[..., at : at + 2])) for at in (0, 2))
    return QuantizedMatrix(codes, scales, num_inputs, 4, _BLOCK, minima=minima)


def _q5_0(blocks: Tensor, num_inputs: int) -> QuantizedMatrix:
    low, high = _five_bits(blocks[..., 2:6], blocks[..., 6:])
    return QuantizedMatrix(low, GroupNumbers(_halves(blocks[..., :2])), num_inputs, 4, _BLOCK, high=high, zero=16)


def _q5_1(blocks: Tensor, num_inputs: int) -> QuantizedMatrix:
    low, high = _five_bits(blocks[..., 4:8], blocks[..., 8:])
    scales, minima = (GroupNumbers(_halves(blocks[..., at : at + 2])) for at in (0, 2))
    return QuantizedMatrix(low, scales, num_inputs, 4, _BLOCK, high=high, minima=minima)


def _five_bits(fifth: Tensor, nibbles: Tensor) -> tuple[Tensor, Tensor]:
    """Bit i of the four bytes `fifth` belongs to weight i of the block."""
    bits = (fifth.unsqueeze(-1) >> torch.arange(8, dtype=torch.uint8, device=fifth.device)) & 1
    return packed_codes(_by_input(_nibbles(nibbles, 16)), 4), packed_high_bits(_by_input(bits), 1, 4)


def _q8_0(blocks: Tensor, num_inputs: int) -> QuantizedMatrix:
    # Bytes with their highest bit turned are the signed numbers plus 128.
    codes = packed_codes(_by_input(blocks[..., 2:] ^ 128), 8)
    return QuantizedMatrix(codes, GroupNumbers(_halves(blocks[..., :2])), num_inputs, 8, _BLOCK, zero=128)


def _q4_k(blocks: Tensor, num_inputs: int) -> QuantizedMatrix:
    scales, minima = _k_numbers(blocks[..., :16])
    low = packed_codes(_by_input(_nibbles(blocks[..., 16:], 32)), 4)
    return QuantizedMatrix(low, scales, num_inputs, 4, _BLOCK, minima=minima)


def _q5_k(blocks: Tensor, num_inputs: int) -> QuantizedMatrix:
    scales, minima = _k_numbers(blocks[..., :16])
    low = packed_codes(_by_input(_nibbles(blocks[..., 48:], 32)), 4)
    # Bit j of byte i belongs to weight 32 j + i.
    shifts = torch.arange(8, dtype=torch.uint8, device=blocks.device)
    fifth = (blocks[..., 16:48].unsqueeze(-2) >> shifts[:, None]) & 1
    return QuantizedMatrix(
        low, scales, num_inputs, 4, _BLOCK, high=packed_high_bits(_by_input(fifth), 1, 4), minima=minima
    )


def _k_numbers(head: Tensor) -> tuple[GroupNumbers, GroupNumbers]:
    """Two factors and twelve bytes of 6-bit numbers: eight scales, and eight minima, which are to be subtracted."""
    factors = _halves(head[..., :2]), -_halves(head[..., 2:4])
    first, second, rest = head[..., 4:8], head[..., 8:12], head[..., 12:]
    scales = torch.cat((first & 63, (rest & 15) | (first >> 2 & 48)), -1)
    minima = torch.cat((second & 63, (rest >> 4) | (second >> 2 & 48)), -1)
    return (
        GroupNumbers(_by_input(scales).contiguous(), factors[0]),
        GroupNumbers(_by_input(minima).contiguous(), factors[1]),
    )


def _q6_k(blocks: Tensor, num_inputs: int) -> QuantizedMatrix:
    low = packed_codes(_by_input(_nibbles(blocks[..., :128], 64)), 4)
    # Of each 32 bytes, bits 2 j and 2 j + 1 belong to weights 32 j to 32 j + 31.
    shifts = torch.arange(0, 8, 2, dtype=torch.uint8, device=blocks.device)
    pairs = (blocks[..., 128:192].reshape(*blocks.shape[:2], 2, 1, 32) >> shifts[:, None]) & 3
    scales = _by_input(blocks[..., 192:208]).contiguous().view(torch.int8)
    return QuantizedMatrix(
        low,
        GroupNumbers(scales, _halves(blocks[..., 208:])),
        num_inputs,
        4,
        SUPER_GROUP // 16,
        high=packed_high_bits(_by_input(pairs), 2, 4),
        zero=32,
    )


_READERS: Mapping[GGMLQuantizationType, Callable[[Tensor, int], QuantizedMatrix]] = {
    GGMLQuantizationType.Q4_0: _q4_0,
    GGMLQuantizationType.Q4_1: _q4_1,
    GGMLQuantizationType.Q5_0: _q5_0,
    GGMLQuantizationType.Q5_1: _q5_1,
    GGMLQuantizationType.Q8_0: _q8_0,
    GGMLQuantizationType.Q4_K: _q4_k,
    GGMLQuantizationType.Q5_K: _q5_k,
    GGMLQuantizationType.Q6_K: _q6_k,
}
REPACKED_TYPES = frozenset(_READERS)
