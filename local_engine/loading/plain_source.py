"""Safetensors files as plain tensors under the names that models ask for, whatever they are packed in.

A packing (loading/packed) finds the tensors of its format and presents each group of parts as one `StoredTensor`;
what no packing claims must be a float. A file that stacks its experts is cut into matrices by `HfName`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

import torch
from gguf import GGMLQuantizationType
from torch import Tensor

from local_engine.errors import ModelLoadError
from local_engine.layers.quantized_matrix import QuantizedMatrix
from local_engine.layers.share import WHOLE, Share
from local_engine.loading.interleaved import grouped_order, in_our_order
from local_engine.loading.safetensors import SafetensorsSource
from local_engine.loading.weights import StoredRows

__all__ = ["PIECE_ITEMS", "HfName", "HfRows", "Packing", "PlainSource", "StoredTensor"]

PIECE_ITEMS = 1 << 20
"""Numbers that are unpacked at once: some MB in float32, and the caches still hold what the next operation reads."""

_FLOATS = ("F64", "F32", "F16", "BF16")
_STORED_TYPES = {
    "F32": GGMLQuantizationType.F32,
    "F16": GGMLQuantizationType.F16,
    "BF16": GGMLQuantizationType.BF16,
}


class HfName(NamedTuple):
    """A matrix [out, in] of a stack in a file: that of `expert`, its rows from `start` to `stop`, every `step`-th.

    A stack of plain numbers is [experts, in, out], or [experts, out] for biases, as transformers keeps fused experts;
    rows_first: [experts, out, in]. inputs: of a matrix that files have either way: rows are first where these are last.
    """

    name: str
    expert: int
    start: int = 0
    step: int = 1
    stop: int | None = None
    rows_first: bool = False
    inputs: int | None = None


class HfRows(NamedTuple):
    """A whole tensor that a file has by another name, or in another order: heads and turning are as in `GgufName`.

    factors: so many rows one after the other, and what they are multiplied with; they are all rows.
    parts: as in `GgufName`.
    """

    name: str
    heads: int = 0
    turning: int = 0
    factors: tuple[tuple[int, float], ...] = ()
    parts: tuple[int, ...] = ()

    def ordered(self, rows: Tensor) -> Tensor:
        """All rows of the file's tensor as ours: each in its place, in the same type."""
        if self.heads:
            rows = in_our_order(rows, self.heads, self.turning)
        if self.parts:
            rows = rows[grouped_order(rows.shape[0], self.parts)]
        if not self.factors:
            return rows
        counts, factors = zip(*self.factors, strict=True)
        each = torch.repeat_interleave(torch.tensor(factors), torch.tensor(counts)).to(rows.device)
        return (rows * each.view(-1, *[1] * (rows.ndim - 1))).to(rows.dtype)


class StoredTensor(Protocol):
    """One plain tensor, wherever its numbers lie. parts: the names of what it is made of in the file."""

    @property
    def parts(self) -> tuple[str, ...]: ...

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def num_bytes(self) -> int:
        """Bytes of all its parts in the file."""

    def read_into(self, out: Tensor, share: Share = WHOLE) -> None:
        """Fills `out`, of the share's shape, on any device and in any float type, a piece at a time.

        Raises ModelLoadError.
        """

    def quantized(self, device: torch.device, share: Share = WHOLE) -> QuantizedMatrix | None:
        """As the kernels of GPUs read it; None where it is not packed, or in a way that they lack."""

    def stored_rows(self) -> StoredRows | None:
        """See `TensorSource.stored_rows`."""


class Packing(Protocol):
    """One way to pack weights."""

    def tensors(self, file: SafetensorsSource) -> dict[str, StoredTensor]:
        """Its tensors in the file by their plain names. Raises ModelLoadError naming a part that is missing or odd."""

    def stacked(self, file: SafetensorsSource, name: HfName) -> StoredTensor | None:
        """The matrix, where the stack is packed in this way."""

    def unused(self, name: str) -> bool:
        """Whether the file's tensor says nothing about weights, such as scales of activations."""

    def stored_name(self, name: str) -> str:
        """What a file would call the main part of the plain tensor, for the error that it is missing."""


@dataclass(frozen=True, slots=True)
class _Plain:
    file: SafetensorsSource
    name: str

    @property
    def parts(self) -> tuple[str, ...]:
        return (self.name,)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.file.shapes[self.name]

    @property
    def num_bytes(self) -> int:
        return self.file.num_bytes(self.name)

    @property
    def matrix(self) -> Tensor:
        return self.file.stored(self.name)

    def read_into(self, out: Tensor, share: Share = WHOLE) -> None:
        out.copy_(share.cut(self.matrix, rows=(0, 1), columns=(1, 1)))

    def quantized(self, device: torch.device, share: Share = WHOLE) -> QuantizedMatrix | None:
        return None

    def stored_rows(self) -> StoredRows | None:
        return _float_rows(self, lambda: self.matrix)


@dataclass(frozen=True, slots=True)
class _Stacked:
    """One matrix of a stack of floats."""

    file: SafetensorsSource
    at: HfName

    @property
    def parts(self) -> tuple[str, ...]:
        return (self.at.name,)

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(range(self._all_rows)[self._rows]), *self._inputs)

    @property
    def num_bytes(self) -> int:
        experts = self.file.shapes[self.at.name][0]
        return self.file.num_bytes(self.at.name) // (experts * self._all_rows) * self.shape[0]

    @property
    def _rows(self) -> slice:
        return slice(self.at.start, self.at.stop, self.at.step)

    @property
    def _rows_first(self) -> bool:
        return self.at.rows_first or self.file.shapes[self.at.name][-1] == self.at.inputs

    @property
    def _all_rows(self) -> int:
        return self.file.shapes[self.at.name][1 if self._rows_first else -1]

    @property
    def _inputs(self) -> tuple[int, ...]:
        _, *rest = self.file.shapes[self.at.name]
        return tuple(rest[1:] if self._rows_first else rest[:-1])

    @property
    def matrix(self) -> Tensor:
        stack = self.file.stored(self.at.name)[self.at.expert]
        return (stack if self._rows_first else stack.movedim(-1, 0))[self._rows]

    def read_into(self, out: Tensor, share: Share = WHOLE) -> None:
        out.copy_(share.cut(self.matrix, rows=(0, 1), columns=(1, 1)))

    def quantized(self, device: torch.device, share: Share = WHOLE) -> QuantizedMatrix | None:
        return None

    def stored_rows(self) -> StoredRows | None:
        return _float_rows(self, lambda: self.matrix)


@dataclass(frozen=True, slots=True)
class _Ordered:
    """A tensor whose rows lie otherwise in the file, or are multiplied with something there."""

    stored: StoredTensor
    at: HfRows

    @property
    def parts(self) -> tuple[str, ...]:
        return self.stored.parts

    @property
    def shape(self) -> tuple[int, ...]:
        return self.stored.shape

    @property
    def num_bytes(self) -> int:
        return self.stored.num_bytes

    def read_into(self, out: Tensor, share: Share = WHOLE) -> None:
        whole = out.new_empty(self.shape)
        self.stored.read_into(whole)
        out.copy_(share.cut(self.at.ordered(whole), rows=(0, 1), columns=(1, 1)))

    def quantized(self, device: torch.device, share: Share = WHOLE) -> QuantizedMatrix | None:
        return None

    def stored_rows(self) -> StoredRows | None:
        plain = self.stored
        return _float_rows(plain, lambda: self.at.ordered(plain.matrix)) if isinstance(plain, _Plain) else None


def _float_rows(tensor: _Plain | _Stacked, matrix: Callable[[], Tensor]) -> StoredRows | None:
    """All rows at once: they are a view of the mapped file, or a copy where they change places."""
    kind = _STORED_TYPES.get(tensor.file.types[tensor.parts[0]])
    if kind is None or len(tensor.shape) != 2:
        return None
    return StoredRows(kind.value, kind.name, lambda: iter((matrix().contiguous().view(torch.uint8).numpy(),)))


class PlainSource:
    """A TensorSource over open safetensors files. `names` maps our names to their places; others are the file's own.

    Raises ModelLoadError for a tensor that is no float and that no packing knows.
    """

    def __init__(
        self,
        file: SafetensorsSource,
        *,
        packing: Packing | None = None,
        names: Mapping[str, HfName | HfRows] | None = None,
    ) -> None:
        self._file = file
        self._packing = packing
        self._names = names or {}
        tensors: dict[str, StoredTensor] = {} if packing is None else packing.tensors(file)
        tensors |= self._cut_stacks()
        used = {part for tensor in tensors.values() for part in tensor.parts}
        for name, kind in file.types.items():
            if name in used or (packing is not None and packing.unused(name)):
                continue
            if kind not in _FLOATS:
                known = "" if packing else ", and config.json has no quantization_config"
                raise ModelLoadError(
                    file.path, f"tensor {name!r} is of type {kind}, expected one of {', '.join(_FLOATS)}{known}"
                )
            if name in tensors:
                raise ModelLoadError(
                    file.path, f"tensor {name!r} is there twice: as it is and in {tensors[name].parts}"
                )
            tensors[name] = _Plain(file, name)
        self._tensors = self._renamed(tensors)
        self.shapes: Mapping[str, tuple[int, ...]] = {name: tensor.shape for name, tensor in self._tensors.items()}

    @property
    def path(self) -> Path:
        return self._file.path

    def num_bytes(self, name: str) -> int:
        return self._tensors[name].num_bytes

    def stored_name(self, name: str) -> str:
        """What the file calls the tensor, or would call it."""
        if name in self._tensors:
            return self._tensors[name].parts[0]
        if name in self._names:
            return self._names[name].name
        return name if self._packing is None else self._packing.stored_name(name)

    def read_into(self, name: str, out: Tensor, share: Share = WHOLE) -> None:
        self._tensors[name].read_into(out, share)

    def quantized(self, name: str, device: torch.device, share: Share = WHOLE) -> QuantizedMatrix | None:
        return self._tensors[name].quantized(device, share)

    def stored_rows(self, name: str) -> StoredRows | None:
        return self._tensors[name].stored_rows()

    def _renamed(self, tensors: dict[str, StoredTensor]) -> dict[str, StoredTensor]:
        """With those that the file has under another name, or in another order, as they are with us."""
        moved: dict[str, StoredTensor] = {}
        for ours, at in self._names.items():
            if isinstance(at, HfRows) and (tensor := tensors.get(at.name)) is not None:
                if at.heads and (tensor.shape[0] % (2 * at.heads) or at.turning > tensor.shape[0] // at.heads):
                    reason = f"tensor {at.name!r} has {tensor.shape[0]} rows for {at.heads} heads"
                    raise ModelLoadError(self.path, reason)
                if at.factors and tensor.shape[0] != (rows := sum(count for count, _ in at.factors)):
                    raise ModelLoadError(self.path, f"tensor {at.name!r} has {tensor.shape[0]} rows, expected {rows}")
                moved[ours] = _Ordered(tensor, at) if at.heads or at.factors or at.parts else tensor
        left = {at.name for at in self._names.values() if isinstance(at, HfRows)}
        return {name: tensor for name, tensor in tensors.items() if name not in left} | moved

    def _cut_stacks(self) -> dict[str, StoredTensor]:
        """The tensors of `names` that the file has; a stack must be used up, or the model is not what the file says."""
        found: dict[str, StoredTensor] = {}
        used: dict[tuple[str, ...], int] = {}
        for ours, at in self._names.items():
            if isinstance(at, HfRows):
                continue
            tensor = None if self._packing is None else self._packing.stacked(self._file, at)
            shape = self._file.shapes.get(at.name)
            if tensor is None and shape is not None and len(shape) > 1 and at.expert < shape[0]:
                tensor = _Stacked(self._file, at)
            if tensor is not None:
                found[ours] = tensor
                used[tensor.parts] = used.get(tensor.parts, 0) + tensor.num_bytes
        for parts, num_bytes in used.items():
            if num_bytes != sum(map(self._file.num_bytes, parts)):
                reason = f"has shape {list(self._file.shapes[parts[0]])}, more than this architecture uses"
                raise ModelLoadError(self.path, f"tensor {parts[0]!r} {reason}")
        return found
