"""GPTQ and AWQ as a `QuantizedMatrix`; `loading.packed.grouped` says how their files lie. As many bytes as there."""

from collections.abc import Sequence

import torch
from torch import Tensor

from local_engine.layers.quantized_matrix import GroupNumbers, QuantizedMatrix, covering_group, packed_codes

__all__ = ["AWQ_NIBBLES", "awq_matrix", "gptq_matrix"]

_WORD_BITS = 32
AWQ_NIBBLES = (0, 4, 1, 5, 2, 6, 3, 7)


def gptq_matrix(
    qweight: Tensor,
    qzeros: Tensor,
    scales: Tensor,
    g_idx: Tensor | None = None,
    *,
    bits: int,
    group_size: int | None,
    zeros_less_one: bool = True,
) -> QuantizedMatrix:
    """bits: 2, 4 or 8. group_size: inputs a group, None is all. zeros_less_one: as format `gptq` has it, not `gptq_v2`.

    Inputs that g_idx puts in other groups than those of their places are moved, and `order` says from where. Raises
    ValueError if g_idx fills a group with more inputs than it has, or fewer.
    """
    shifts = range(0, _WORD_BITS, bits)
    codes = _fields(qweight, shifts).movedim(-1, 1).flatten(0, 1).to(torch.uint8)
    num_inputs, num_outputs = codes.shape
    size = group_size or num_inputs
    order = None
    places = torch.arange(num_inputs, device=qweight.device) // size
    if g_idx is not None and not torch.equal(g_idx.to(places), places):
        order = torch.argsort(g_idx, stable=True)
        if not torch.equal(g_idx[order].to(places), places):
            raise ValueError(f"g_idx: expected {size} inputs of each of {len(scales)} groups")
        codes = codes[order]
    # A whole word at a time, so that a carry goes the way the borrow came when the ones were subtracted.
    stored = qzeros.to(torch.int64) + sum(1 << shift for shift in shifts) * zeros_less_one
    zeros = _fields(stored, shifts).flatten(1)[:, :num_outputs].to(torch.uint8)
    return _matrix(codes, zeros, scales, bits=bits, group_size=group_size, order=order)


def awq_matrix(qweight: Tensor, qzeros: Tensor, scales: Tensor, *, group_size: int | None) -> QuantizedMatrix:
    """Four bits in the `gemm` layout. group_size: inputs a group, None is all."""
    shifts = [4 * nibble for nibble in AWQ_NIBBLES]
    codes, zeros = (_fields(words, shifts).flatten(1).to(torch.uint8) for words in (qweight, qzeros))
    return _matrix(codes, zeros, scales, bits=4, group_size=group_size, order=None)


def _matrix(
    codes: Tensor, zeros: Tensor, scales: Tensor, *, bits: int, group_size: int | None, order: Tensor | None
) -> QuantizedMatrix:
    # Symmetric files have one zero everywhere, which then is not read.
    zero = int(zeros[0, 0])
    same = bool((zeros == zero).all())
    return QuantizedMatrix(
        packed_codes(codes, bits),
        GroupNumbers(scales.contiguous()),
        len(codes),
        bits,
        group_size or covering_group(len(codes), bits),
        zero=zero if same else 0,
        zeros=None if same else zeros.contiguous(),
        order=order,
    )


def _fields(words: Tensor, shifts: Sequence[int]) -> Tensor:
    """[A, B] words -> [A, B, codes a word], in the order of the shifts."""
    places = torch.tensor(list(shifts), dtype=words.dtype, device=words.device)
    return (words.unsqueeze(-1) >> places) & ((1 << _WORD_BITS // len(shifts)) - 1)
