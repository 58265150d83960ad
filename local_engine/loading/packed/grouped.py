"""GPTQ and AWQ: weights as integers of a few bits, several in a 32-bit word, with a scale and a zero for each group.

The value is (integer - zero) * scale, of the group that the input belongs to. With K inputs, N outputs, G groups and
n = 32 / bits integers a word:

    GPTQ   qweight [K / n, N], qzeros [G, N / n], scales [G, N], g_idx [K] (the group of each input; absent: in order).
           Integers lie in a word from the lowest bits up. Zeros are stored less one, which format `gptq_v2` ended.
    AWQ    qweight [K, N / 8], qzeros [G, N / 8], scales [G, N]; four bits, with output i of eight at nibble
           0, 4, 1, 5, 2, 6, 3, 7 (the `gemm` layout of AutoAWQ).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from local_engine.errors import ModelLoadError
from local_engine.layers.quantized_matrix import QuantizedMatrix
from local_engine.layers.share import WHOLE, Share
from local_engine.loading.plain_source import PIECE_ITEMS, HfName, StoredTensor
from local_engine.loading.repacked.grouped import AWQ_NIBBLES, awq_matrix, gptq_matrix
from local_engine.loading.safetensors import SafetensorsSource
from local_engine.loading.weights import StoredRows

__all__ = ["GroupedPacking", "awq_packing", "gptq_packing"]

_WORD_BITS = 32
_PARTS = ("qweight", "qzeros", "scales")


@dataclass(frozen=True, slots=True)
class _Layout:
    """shifts: where in a word its integers lie, in their order."""

    shifts: tuple[int, ...]
    words_along_inputs: bool
    less_one: bool

    @property
    def bits(self) -> int:
        return _WORD_BITS // len(self.shifts)

    def integers(self, words: Tensor) -> Tensor:
        """[W, m] words to [W * n, m] integers, of the words' type."""
        shifts = torch.tensor(self.shifts, dtype=words.dtype, device=words.device)
        return ((words.unsqueeze(1) >> shifts[:, None]) & ((1 << self.bits) - 1)).flatten(0, 1)


_AWQ = _Layout(tuple(4 * nibble for nibble in AWQ_NIBBLES), words_along_inputs=False, less_one=False)


@dataclass(frozen=True, slots=True)
class GroupedPacking:
    """Implements `Packing`. group_size: inputs a group, None is all of them."""

    layout: _Layout
    group_size: int | None

    def tensors(self, file: SafetensorsSource) -> dict[str, StoredTensor]:
        return {f"{base}.weight": self._tensor(file, base) for base in _bases(file)}

    def stacked(self, file: SafetensorsSource, name: HfName) -> StoredTensor | None:
        return None

    def unused(self, name: str) -> bool:
        return False

    def stored_name(self, name: str) -> str:
        return name.removesuffix("weight") + "qweight" if name.endswith("_proj.weight") else name

    def _tensor(self, file: SafetensorsSource, base: str) -> StoredTensor:
        layout, per_word = self.layout, len(self.layout.shifts)
        parts = tuple(f"{base}.{part}" for part in _PARTS)
        inputs, outputs = _matrix(file, parts[0], "I32")
        if layout.words_along_inputs:
            inputs *= per_word
        else:
            outputs *= per_word
        group_size = self.group_size or inputs
        groups = -(-inputs // group_size)
        _expect(file, parts[1], "I32", (groups, -(-outputs // per_word)))
        _expect(file, parts[2], None, (groups, outputs))
        order = f"{base}.g_idx"
        if layout.words_along_inputs and order in file.shapes:
            _expect(file, order, "I32", (inputs,))
            parts += (order,)
        return _GroupedTensor(file, parts, (outputs, inputs), group_size, layout)


def gptq_packing(bits: int, group_size: int | None, *, zeros_less_one: bool = True) -> GroupedPacking:
    """bits: 2, 4 or 8."""
    layout = _Layout(tuple(range(0, _WORD_BITS, bits)), words_along_inputs=True, less_one=zeros_less_one)
    return GroupedPacking(layout, group_size)


def awq_packing(group_size: int | None) -> GroupedPacking:
    return GroupedPacking(_AWQ, group_size)


@dataclass(frozen=True, slots=True)
class _GroupedTensor:
    """parts: integers, zeros, scales and perhaps the group of each input. shape: [outputs, inputs]."""

    file: SafetensorsSource
    parts: tuple[str, ...]
    shape: tuple[int, int]
    group_size: int
    layout: _Layout

    @property
    def num_bytes(self) -> int:
        return sum(map(self.file.num_bytes, self.parts))

    def quantized(self, device: torch.device, share: Share = WHOLE) -> QuantizedMatrix | None:
        group_size = None if self.group_size >= self.shape[1] else self.group_size
        try:
            words, zeros, scales, *order = self._cut_parts(device, share)
            if not self.layout.words_along_inputs:
                return awq_matrix(words, zeros, scales, group_size=group_size)
            return gptq_matrix(
                words,
                zeros,
                scales,
                order[0] if order else None,
                bits=self.layout.bits,
                group_size=group_size,
                zeros_less_one=self.layout.less_one,
            )
        except ValueError:  # groups that the kernels cannot follow: of an odd size, unequal, or cut by the share
            return None

    def _cut_parts(self, device: torch.device, share: Share) -> Iterator[Tensor]:
        """The parts of a share. Raises ValueError where it would begin or end within a word or a group."""
        per_word = len(self.layout.shifts)
        # One group of all inputs is that of every part of them.
        grouped = (0, self.group_size) if self.group_size < self.shape[1] else None
        words, zeros, scales, *order = map(self.file.stored, self.parts)
        if self.layout.words_along_inputs:
            yield share.cut(words, rows=(1, 1), columns=(0, per_word)).to(device)
        else:
            yield share.cut(words, rows=(1, per_word), columns=(0, 1)).to(device)
        yield share.cut(zeros, rows=(1, per_word), columns=grouped).to(device)
        yield share.cut(scales, rows=(1, 1), columns=grouped).to(device)
        for groups in order:
            cut = share.cut(groups, columns=(0, 1)).to(device)
            first = 0 if share.columns is None else share.columns.start // self.group_size
            yield cut - first

    def stored_rows(self) -> StoredRows | None:
        return None

    def read_into(self, out: Tensor, share: Share = WHOLE) -> None:
        words, zeros, scales = (self.file.stored(part) for part in self.parts[:3])
        groups = self._groups(out.device, len(scales))
        layout, per_word = self.layout, len(self.layout.shifts)
        for start, stop in self._pieces():
            if not share.meets(start, stop):
                continue
            first, last = start // per_word, -(-stop // per_word)
            zero = layout.integers(self._plus_one(zeros[:, first:last].to(out.device)).T)[: stop - start].T
            scale = scales[:, start:stop].to(out.device, torch.float32)
            if layout.words_along_inputs:
                values = layout.integers(words[:, start:stop].to(out.device)).to(torch.float32)
                values.sub_(zero.to(torch.float32).index_select(0, groups)).mul_(scale.index_select(0, groups))
                share.write(out, start, values.T)
            else:
                values = layout.integers(words[:, first:last].to(out.device).T.contiguous()).to(torch.float32)
                values.sub_(zero.T.to(torch.float32).index_select(1, groups)).mul_(scale.T.index_select(1, groups))
                share.write(out, start, values)

    def _pieces(self) -> Iterator[tuple[int, int]]:
        """Outputs in order, whole words of them."""
        per_word = len(self.layout.shifts)
        outputs, inputs = self.shape
        step = max(1, PIECE_ITEMS // inputs // per_word) * per_word
        for start in range(0, outputs, step):
            yield start, min(start + step, outputs)

    def _plus_one(self, words: Tensor) -> Tensor:
        """Whole words, so that a carry goes the way the borrow came when the ones were subtracted."""
        if not self.layout.less_one:
            return words
        ones = sum(1 << shift for shift in self.layout.shifts)
        return words.to(torch.int64).add_(ones)

    def _groups(self, device: torch.device, num_groups: int) -> Tensor:
        """The group of each input: [K] int64."""
        if len(self.parts) == len(_PARTS):
            return torch.arange(self.shape[1], device=device) // self.group_size
        groups = self.file.stored(self.parts[3])
        if int(groups.min()) < 0 or int(groups.max()) >= num_groups:
            raise ModelLoadError(
                self.file.path,
                f"tensor {self.parts[3]!r} names groups {int(groups.min())} to {int(groups.max())} of {num_groups}",
            )
        return groups.to(device, torch.int64)


def _bases(file: SafetensorsSource) -> list[str]:
    return [name.removesuffix(".qweight") for name in file.shapes if name.endswith(".qweight")]


def _matrix(file: SafetensorsSource, name: str, kind: str) -> tuple[int, int]:
    shape = file.shapes[name]
    if len(shape) != 2 or 0 in shape or file.types[name] != kind:
        raise ModelLoadError(
            file.path, f"tensor {name!r} is {file.types[name]} of shape {list(shape)}, expected an {kind} matrix"
        )
    return shape[0], shape[1]


def _expect(file: SafetensorsSource, name: str, kind: str | None, shape: tuple[int, ...]) -> None:
    """Raises ModelLoadError unless the tensor is there, of that shape and type (None: a float)."""
    if name not in file.shapes:
        raise ModelLoadError(file.path, f"tensor {name!r} is missing")
    if file.shapes[name] != shape:
        raise ModelLoadError(file.path, f"tensor {name!r} has shape {list(file.shapes[name])}, expected {list(shape)}")
    kinds = ("F16", "BF16", "F32") if kind is None else (kind,)
    if file.types[name] not in kinds:
        raise ModelLoadError(file.path, f"tensor {name!r} is of type {file.types[name]}, expected {' or '.join(kinds)}")
