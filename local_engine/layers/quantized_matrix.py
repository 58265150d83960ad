"""A weight matrix in few bits, in the one layout that the GPU kernels read, whatever file it came from.

With K inputs and N outputs, the value of a code is (code - zero) * scale + minimum, scale and minimum being those of
its output and of its group of inputs. Codes lie in words of 32 bits, [inputs / codes a word, N]: outputs side by side,
so that a warp reads whole lines of memory; files have the codes of one output side by side, in blocks of 18 to 210
bytes, which no 16-byte load can follow. SLAB words, one below the other, hold SLAB * codes a word inputs: field i of
word j is input i * SLAB + j of them, so that taking one field of each word gives SLAB inputs in a row. This is the
order in which a tensor core wants them, and no code has to move between threads. Nothing is rounded on the way here.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

__all__ = [
    "SLAB",
    "SUPER_GROUP",
    "GroupNumbers",
    "QuantizedMatrix",
    "beside_each_other",
    "packed_codes",
    "packed_high_bits",
]

# Inputs that one field of the words holds.
SLAB = 16
# Inputs that share a factor of their groups' numbers, in GGUF's K types.
SUPER_GROUP = 256

_WORD_BITS = 32


@dataclass(frozen=True, slots=True)
class GroupNumbers:
    """A number for each group and output: values [G, N], times factors [K / SUPER_GROUP, N] if they are there."""

    values: Tensor
    factors: Tensor | None = None

    def dense(self, group_size: int) -> Tensor:
        """[G, N] float32."""
        numbers = self.values.float()
        if self.factors is None:
            return numbers
        return numbers * self.factors.float().repeat_interleave(SUPER_GROUP // group_size, 0)[: len(numbers)]


@dataclass(frozen=True, slots=True)
class QuantizedMatrix:
    """Codes and what makes them numbers; see the module for the layout.

    low: [W, N] int32, the lowest `bits` (2, 4 or 8) of each code. high: [W, N] int8 or int16, the bits above: 1 or 2 of
    each code in the same order; None if there are none. is_float: codes are floats of 8 bits (E4M3), else integers.
    group_size: a multiple of SLAB that divides the inputs of SLAB words (`tile`) or is a multiple of them; with minima
    it divides both them and the inputs.
    scale_width: outputs that share a scale, scales then being [G, N / scale_width, rounded up].
    zeros: [G, N] uint8, in place of `zero`. order: [K] int64, which input each of ours is; None if they are in order.
    """

    low: Tensor
    scales: GroupNumbers
    num_inputs: int
    bits: int
    group_size: int
    high: Tensor | None = None
    is_float: bool = False
    scale_width: int = 1
    zero: int = 0
    zeros: Tensor | None = None
    minima: GroupNumbers | None = None
    order: Tensor | None = None

    def __post_init__(self) -> None:
        if self.group_size % SLAB or (self.tile % self.group_size and self.group_size % self.tile):
            raise ValueError(
                f"group_size: expected a multiple of {SLAB} that divides {self.tile} or a multiple of {self.tile}, "
                f"got {self.group_size}"
            )

        if self.minima is not None and (self.tile % self.group_size or self.num_inputs % self.group_size):
            raise ValueError(f"minima: expected whole groups within {self.tile} inputs, got {self.group_size}")

    @property
    def tile(self) -> int:
        """Inputs of SLAB words."""
        return SLAB * (_WORD_BITS // self.bits)

    @property
    def high_bits(self) -> int:
        """Bits of a code that `high` has."""
        return 0 if self.high is None else self.high.element_size() * 8 // (_WORD_BITS // self.bits)

    @property
    def num_outputs(self) -> int:
        return self.low.shape[1]

    @property
    def num_bytes(self) -> int:
        """What one pass over the matrix reads."""
        numbers = [self.scales] if self.minima is None else [self.scales, self.minima]
        tensors = [self.low, self.high, self.zeros, *(part for of in numbers for part in (of.values, of.factors))]
        return sum(tensor.nbytes for tensor in tensors if tensor is not None)

    def dense(self) -> Tensor:
        """[N, K] float32: the reference of what the kernels compute with."""
        codes = _fields(self.low, self.bits)
        if self.high is not None:
            codes |= _fields(self.high.to(torch.int32), self.high_bits, _WORD_BITS // self.bits) << self.bits
        codes = codes[: self.num_inputs]
        groups = torch.arange(self.num_inputs, device=codes.device) // self.group_size
        if self.is_float:
            values = codes.to(torch.uint8).view(torch.float8_e4m3fn).float()
        elif self.zeros is None:
            values = (codes - self.zero).float()
        else:
            values = (codes - self.zeros.to(torch.int32)[groups]).float()
        scales = self.scales.dense(self.group_size).repeat_interleave(self.scale_width, 1)[:, : self.num_outputs]
        values *= scales[groups]
        if self.minima is not None:
            values += self.minima.dense(self.group_size)[groups]
        if self.order is not None:
            values = torch.empty_like(values).index_copy_(0, self.order, values)
        return values.T


def covering_group(num_inputs: int, bits: int) -> int:
    """The group size that puts all inputs in one group."""
    tile = SLAB * (_WORD_BITS // bits)
    return -(-num_inputs // tile) * tile


def packed_codes(codes: Tensor, bits: int) -> Tensor:
    """[K, N] uint8 codes of `bits` bits -> [W, N] int32, K filled up with zeros to whole tiles; see the module."""
    per_word = _WORD_BITS // bits
    codes = F.pad(codes, (0, 0, 0, -len(codes) % (SLAB * per_word)))
    return _words(codes, bits, per_word, torch.int32)


def packed_high_bits(codes: Tensor, bits: int, low_bits: int) -> Tensor:
    """[K, N] uint8, `bits` bits of each code that lie above `low_bits` -> [W, N] int8 or int16."""
    per_word = _WORD_BITS // low_bits
    codes = F.pad(codes, (0, 0, 0, -len(codes) % (SLAB * per_word)))
    return _words(codes, bits, per_word, {8: torch.int8, 16: torch.int16}[bits * per_word])


def beside_each_other(matrices: Sequence[QuantizedMatrix]) -> QuantizedMatrix:
    """The outputs of all of them in order, over the same inputs, as one matrix. Raises ValueError if forms differ."""
    first = matrices[0]
    if len(matrices) == 1:
        return first
    for matrix in matrices:
        if _form(matrix) != _form(first) or matrix.order is not None:
            raise ValueError(f"matrices of one form are expected, got {_form(first)} and {_form(matrix)}")
    if any(matrix.num_outputs % matrix.scale_width for matrix in matrices[:-1]):
        raise ValueError(f"scale_width: expected to divide the outputs, got {first.scale_width}")
    minima = [matrix.minima for matrix in matrices if matrix.minima is not None]
    return replace(
        first,
        low=torch.cat([matrix.low for matrix in matrices], 1),
        high=_cat([matrix.high for matrix in matrices]),
        scales=_cat_numbers([matrix.scales for matrix in matrices]),
        zeros=_cat([matrix.zeros for matrix in matrices]),
        minima=_cat_numbers(minima) if minima else None,
    )


def _form(matrix: QuantizedMatrix) -> tuple[object, ...]:
    numbers = (matrix.scales, *(() if matrix.minima is None else (matrix.minima,)))
    tensors = [matrix.high, matrix.zeros, *(part for of in numbers for part in (of.values, of.factors))]
    sizes = matrix.num_inputs, matrix.bits, matrix.group_size, matrix.is_float, matrix.scale_width, matrix.zero
    return (*sizes, *(None if tensor is None else tensor.dtype for tensor in tensors))


def _cat(tensors: Sequence[Tensor | None]) -> Tensor | None:
    present = [tensor for tensor in tensors if tensor is not None]
    return torch.cat(present, 1) if present else None


def _cat_numbers(numbers: Sequence[GroupNumbers]) -> GroupNumbers:
    return GroupNumbers(torch.cat([of.values for of in numbers], 1), _cat([of.factors for of in numbers]))


def _words(codes: Tensor, bits: int, per_word: int, dtype: torch.dtype) -> Tensor:
    fields = codes.view(-1, per_word, SLAB, codes.shape[1])
    words = torch.zeros(len(fields), SLAB, codes.shape[1], dtype=torch.int64, device=codes.device)
    for index in range(per_word):
        words |= fields[:, index].to(torch.int64) << (index * bits)
    # The highest bit of a word is a sign to torch.
    span = 1 << (bits * per_word)
    words = torch.where(words >= span // 2, words - span, words)
    return words.flatten(0, 1).to(dtype)


def _fields(words: Tensor, bits: int, per_word: int | None = None) -> Tensor:
    """[W, N] int32 words of codes of `bits` bits -> [W * codes a word, N] int32, in the order of inputs."""
    count = _WORD_BITS // bits if per_word is None else per_word
    shifts = torch.arange(0, count * bits, bits, dtype=torch.int32, device=words.device)
    fields = words.view(-1, 1, SLAB, words.shape[1]) >> shifts.view(-1, 1, 1)
    return (fields & ((1 << bits) - 1)).flatten(0, 2)
