"""Named tensors of a file, read straight into the matrices that a model computes with.

A model asks by name and shape; what a file lacks, has in another shape or has left over is one ModelLoadError.
Shapes are held against the file before memory is taken, so no number in a header can ask for more than the file has.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from local_engine.errors import ModelLoadError
from local_engine.layers.linear import Linear
from local_engine.layers.lora import LoraSites
from local_engine.layers.quantized_matrix import QuantizedMatrix
from local_engine.layers.ranks import ALONE, SummedLinear, VocabularyShare
from local_engine.layers.share import WHOLE, Share
from local_engine.loading.shares import Shares

__all__ = ["PAIRED_MXFP4", "GgufName", "Progress", "StoredRows", "TensorSource", "Weights"]

PAIRED_MXFP4 = 1039
"""Beside GGUF's types: MXFP4 with neighbours in the halves of a byte, as safetensors have it."""

# Called with bytes read so far and bytes in all, as the file counts them.
Progress = Callable[[int, int], None]


class GgufName(NamedTuple):
    """A tensor's name in a GGUF; interleaved_heads is how many heads its rows hold pair by pair, 0 for none.

    turning: how many of such a head's first rows turn, and lie so; 0 is all of them.
    expert: which one of a tensor that stacks the experts' matrices; None is the whole tensor.
    parts: rows lie in groups of so many of each part, and ours part by part; empty for none.
    added: what the file's values are above ours, as with norms that multiply by 1 + weight and are stored as that sum.
    """

    name: str
    interleaved_heads: int = 0
    expert: int | None = None
    added: float = 0.0
    turning: int = 0
    parts: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class StoredRows:
    """A matrix as the file has it, for kernels that compute with it so.

    type, type_name: of its numbers, as GGUF's table of types has them, or PAIRED_MXFP4. pieces: reads the rows in
    order, [rows, bytes a row] each, a multiple of 16 of them save for the last; raises ModelLoadError.
    """

    type: int
    type_name: str
    pieces: Callable[[], Iterator[npt.NDArray[np.uint8]]]


class TensorSource(Protocol):
    """An open file of tensors under our names."""

    @property
    def path(self) -> Path: ...

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Every tensor, with its shape as torch has it."""

    def num_bytes(self, name: str) -> int:
        """Bytes that the tensor takes in the file."""

    def stored_name(self, name: str) -> str:
        """What the file calls the tensor, or would call one that it lacks."""

    def read_into(self, name: str, out: Tensor, share: Share = WHOLE) -> None:
        """Fills `out`, of the share's shape, converting to its dtype a piece at a time. Raises ModelLoadError."""

    def quantized(self, name: str, device: torch.device, share: Share = WHOLE) -> QuantizedMatrix | None:
        """The matrix as the kernels of GPUs read it; None where it is not packed, or in a way that they lack."""

    def stored_rows(self, name: str) -> StoredRows | None:
        """The matrix as it is stored; None where it is no plain rows of numbers."""


class Weights:
    """What a model's constructor reads from. Call `finish` when it has all.

    shares: what this rank has, where several share the model; a model asks by the shapes of its own part.
    lora_sites: the linear layers made of what was read, for adapters to change; `models.projection` fills it.
    """

    def __init__(
        self,
        source: TensorSource,
        *,
        device: torch.device,
        dtype: torch.dtype,
        progress: Progress | None = None,
        shares: Shares | None = None,
    ) -> None:
        self._shares = shares
        self._share: Callable[[str], Share] = (lambda _: WHOLE) if shares is None else shares.of
        self.lora_sites = LoraSites(share_of=self._share)  # no method of ours: it outlives the file's metadata
        self._source = source
        self._device = device
        self._dtype = dtype
        self._progress = progress
        self._unread = {name for name in source.shapes if not self._share(name).absent}
        self._total_bytes = sum(map(source.num_bytes, source.shapes))
        self._done_bytes = 0

    def summed(self, linear: Linear, parts: Iterable[str]) -> Linear:
        """The layer over these matrices, with what the other ranks have of its inputs."""
        if self._shares is None or not any(self._shares.is_summed(part) for part in parts):
            return linear
        return SummedLinear(linear, self._shares.ranks)

    def vocabulary(self, vocab_size: int) -> VocabularyShare:
        """The rows of the embedding and of the head that are read here."""
        return VocabularyShare(vocab_size, ALONE if self._shares is None else self._shares.ranks)

    def of_file(self, source: TensorSource) -> "Weights":
        """The whole of another file, on the same device and in the same type."""
        return Weights(source, device=self._device, dtype=self._dtype)

    def has(self, name: str) -> bool:
        return name in self._source.shapes

    def stacked(self, names: Sequence[str], rows: Sequence[int], columns: int) -> Tensor:
        """Matrices [rows[i], columns] one under the other: [sum of rows, columns]."""
        return self._read(names, [(count, columns) for count in rows])

    def joined(self, names: Sequence[str], sizes: Sequence[int]) -> Tensor:
        """Vectors one after the other: [sum of sizes]."""
        return self._read(names, [(size,) for size in sizes])

    def row(self, name: str, columns: int) -> Tensor:
        """A matrix of one row, which a GGUF has as a vector: [1, columns]."""
        shape = (columns,) if self._source.shapes.get(name) == (columns,) else (1, columns)
        return self._read([name], [shape]).view(1, columns)

    def flat(self, name: str, size: int) -> Tensor:
        """A tensor of so many numbers as a vector, whatever dimensions a file gives it."""
        shape = self._source.shapes.get(name, ())
        return self._read([name], [shape if math.prod(shape) == size and shape else (size,)]).view(size)

    def scalar(self, name: str) -> float:
        """A tensor of one number, with one dimension or none."""
        shape = () if self._source.shapes.get(name) == () else (1,)
        self._check_shape(name, shape)
        out = torch.empty(shape, dtype=torch.float32)
        self._source.read_into(name, out)
        self.mark_read(name)
        return float(out)

    def taps(self, name: str, channels: int, count: int) -> Tensor:
        """A convolution that each channel has by itself: [count, channels]. Files have it as [channels, 1, count]."""
        shape = (channels, count) if self._source.shapes.get(name) == (channels, count) else (channels, 1, count)
        return self._read([name], [shape]).view(channels, count).T.contiguous()

    def tensor(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """One tensor of any number of dimensions."""
        return self._read([name], [shape])

    def stored(self, name: str, shape: tuple[int, ...]) -> StoredRows | None:
        """A matrix as the file has it, or None; `mark_read` says that it was used."""
        self._check_shape(name, shape)
        return self._source.stored_rows(name)

    def quantized(self, name: str, shape: tuple[int, ...]) -> QuantizedMatrix | None:
        """A matrix in few bits as the file has it, or None; `mark_read` says that it was used."""
        self._check_shape(name, shape)
        return self._source.quantized(name, self._device, self._share(name))

    def mark_read(self, name: str) -> None:
        self._unread.discard(name)
        self._done_bytes += self._source.num_bytes(name)
        if self._progress is not None:
            self._progress(self._done_bytes, self._total_bytes)

    def skip(self, name: str) -> None:
        """A tensor that files may carry and this model has no use for."""
        self._unread.discard(name)

    def skip_under(self, prefix: str) -> None:
        """The same of all tensors whose names begin so."""
        self._unread = {name for name in self._unread if not name.startswith(prefix)}

    def finish(self) -> None:
        """Raises ModelLoadError naming a tensor that nobody asked for: the model would not be what the file says."""
        if self._unread:
            names = sorted(self._unread)
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            reason = f"tensor {names[0]!r}{more} has no place in this architecture{self._in_file(names[0])}"
            raise ModelLoadError(self._source.path, reason)
        if self._progress is not None:
            self._progress(self._total_bytes, self._total_bytes)

    def _read(self, names: Sequence[str], shapes: Sequence[tuple[int, ...]]) -> Tensor:
        for name, expected in zip(names, shapes, strict=True):
            self._check_shape(name, expected)
        total = sum(shape[0] for shape in shapes)
        try:
            out = torch.empty((total, *shapes[0][1:]), dtype=self._dtype, device=self._device)
        except (MemoryError, RuntimeError) as error:
            raise ModelLoadError(self._source.path, f"no memory on {self._device} for tensor {names[0]!r}") from error
        row = 0
        for name, shape in zip(names, shapes, strict=True):
            share = self._share(name)
            if share.zero:
                out[row : row + shape[0]] = 0
            else:
                self._source.read_into(name, out[row : row + shape[0]], share)
            row += shape[0]
            self.mark_read(name)
        return out

    def _check_shape(self, name: str, expected: tuple[int, ...]) -> None:
        stored, share = self._source.shapes.get(name), self._share(name)
        shape = None if stored is None else share.shape(stored)
        if shape != expected:
            of_rank = "" if share.is_whole else " after it is cut for the ranks"
            found = "is missing" if shape is None else f"has shape {list(shape)}, expected {list(expected)}{of_rank}"
            raise ModelLoadError(self._source.path, f"tensor {name!r} {found}{self._in_file(name)}")

    def _in_file(self, name: str) -> str:
        """The tensor's other name, for errors."""
        stored = self._source.stored_name(name)
        return "" if stored == name else f" (in the file: {stored!r})"
