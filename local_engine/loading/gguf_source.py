"""A GGUF's tensors under our names, dequantised piece by piece. The arithmetic of blocks is the gguf package's.

A GGUF may be split over several files, and may stack the matrices of a layer's experts in one tensor.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from gguf import GGML_QUANT_SIZES
from gguf.quants import dequantize
from torch import Tensor

from local_engine.errors import ModelLoadError
from local_engine.layers.quantized_matrix import QuantizedMatrix
from local_engine.layers.share import WHOLE, Share
from local_engine.loading.gguf import GgufFile, GgufTensor
from local_engine.loading.interleaved import grouped_order, head_order
from local_engine.loading.repacked.gguf import REPACKED_TYPES, gguf_matrix
from local_engine.loading.weights import GgufName, StoredRows

__all__ = ["GgufSource"]

# Bytes of a tensor that are dequantised at once: their float32 form stays below some 16 MB.
_PIECE_BYTES = 2 << 20
# Rows of a piece are a multiple of it, as `StoredRows` wants them.
_ROW_MULTIPLE = 16


@dataclass(frozen=True, slots=True)
class _Place:
    """Where one of our tensors lies: a tensor of the file, or the one at `at.expert` of a stack."""

    file: GgufFile
    stack: GgufTensor
    at: GgufName

    @property
    def tensor(self) -> GgufTensor:
        if self.at.expert is None:
            return self.stack
        num_bytes = self.stack.num_bytes // self.stack.shape[0]
        offset = self.stack.offset + self.at.expert * num_bytes
        return replace(self.stack, shape=self.stack.shape[1:], offset=offset, num_bytes=num_bytes)


class GgufSource:
    """The parts of a GGUF as a TensorSource. `names` maps our names to the file's; others keep the file's name."""

    def __init__(self, files: Sequence[GgufFile], names: Mapping[str, GgufName]) -> None:
        self._files = files
        self._names = names
        files_of = {name: file for file in files for name in file.tensors}
        self._places: dict[str, _Place] = {}
        for ours, at in names.items():
            if at.name in files_of and _holds(stack := files_of[at.name].tensors[at.name], at.expert):
                self._places[ours] = _Place(files_of[at.name], stack, at)
        used = {place.stack.name for place in self._places.values()}
        self._check_stacks()
        for name, file in files_of.items():
            if name not in used:
                self._places[name] = _Place(file, file.tensors[name], GgufName(name))
        self.shapes: Mapping[str, tuple[int, ...]] = {name: place.tensor.shape for name, place in self._places.items()}

    @property
    def path(self) -> Path:
        return self._files[0].path

    def num_bytes(self, name: str) -> int:
        return self._places[name].tensor.num_bytes

    def stored_name(self, name: str) -> str:
        """What the file calls the tensor, or would call it."""
        return self._names[name].name if name in self._names else name

    def read_into(self, name: str, out: Tensor, share: Share = WHOLE) -> None:
        place = self._places[name]
        tensor = place.tensor
        # Rows that are never torn apart: of numbers that stand alone in a vector, else of whole blocks.
        last = tensor.shape[-1] if len(tensor.shape) > 1 or GGML_QUANT_SIZES[tensor.type][0] > 1 else 1
        matrix = replace(tensor, shape=(math.prod(tensor.shape) // last, last))
        rows = out.view(-1, last if share.columns is None else len(share.columns))
        for first, raw in self._pieces(place.file, matrix, place.at, share):
            try:
                values = dequantize(raw, tensor.type)
            except NotImplementedError as error:
                reason = f"tensor {tensor.name!r} is of type {tensor.type.name}, which cannot be read"
                raise ModelLoadError(place.file.path, reason) from error
            piece = torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32)).view(len(raw), -1)
            share.write(rows, first, piece.sub_(place.at.added) if place.at.added else piece)

    def quantized(self, name: str, device: torch.device, share: Share = WHOLE) -> QuantizedMatrix | None:
        place = self._places[name]
        tensor = place.tensor
        if len(tensor.shape) != 2 or place.at.added or tensor.type not in REPACKED_TYPES:
            return None
        num_rows, num_inputs = share.shape(tensor.shape)
        items, num_bytes = GGML_QUANT_SIZES[tensor.type]
        columns = share.columns or range(num_inputs)
        if columns.start % items or columns.stop % items:
            return None
        in_bytes = range(columns.start // items * num_bytes, columns.stop // items * num_bytes)
        rows = torch.empty(num_rows, len(in_bytes), dtype=torch.uint8, device=device)
        of_bytes = replace(share, columns=None if share.columns is None else in_bytes)
        for first, raw in self._pieces(place.file, tensor, place.at, share):
            of_bytes.write(rows, first, torch.from_numpy(np.ascontiguousarray(raw)).view(len(raw), -1).to(device))
        return gguf_matrix(rows, tensor.type)

    def stored_rows(self, name: str) -> StoredRows | None:
        place = self._places[name]
        tensor = place.tensor
        if len(tensor.shape) < 2 or place.at.added:
            return None
        matrix = replace(tensor, shape=(math.prod(tensor.shape[:-1]), tensor.shape[-1]))
        return StoredRows(
            tensor.type.value,
            tensor.type.name,
            lambda: (raw for _, raw in self._pieces(place.file, matrix, place.at, WHOLE)),
        )

    def _check_stacks(self) -> None:
        """A stack must be used up, or the model is not what the file says."""
        used = Counter(place.stack.name for place in self._places.values() if place.at.expert is not None)
        for place in self._places.values():
            stack = place.stack
            if used.get(stack.name, stack.shape[0]) != stack.shape[0]:
                reason = f"tensor {stack.name!r} has shape {list(stack.shape)}, more than this architecture uses"
                raise ModelLoadError(place.file.path, reason)

    def _pieces(
        self, file: GgufFile, matrix: GgufTensor, at: GgufName, share: Share
    ) -> Iterator[tuple[int, npt.NDArray[np.uint8]]]:
        """The rows in order, in pieces small enough to dequantise, each with its first; only those that a share has."""
        num_rows, heads = matrix.shape[0], at.interleaved_heads
        multiple, head_dim = _ROW_MULTIPLE, num_rows
        if heads:
            head_dim = num_rows // heads
            if num_rows % (2 * heads) or at.turning > head_dim:
                raise ModelLoadError(file.path, f"tensor {matrix.name!r} has {num_rows} rows for {heads} heads")
            multiple = math.lcm(multiple, head_dim)
        order = head_order(head_dim, at.turning) if heads else []
        step = max(1, _PIECE_BYTES * num_rows // matrix.num_bytes // multiple) * multiple
        if at.parts:  # from all over the tensor
            step = num_rows
        for first in range(0, num_rows, step):
            stop = min(first + step, num_rows)
            if not share.meets(first, stop):
                continue
            raw = file.read(matrix, first, stop)
            if heads:  # whole rows move, so blocks stay as they are
                raw = raw.reshape(-1, head_dim, raw.shape[1])[:, order].reshape(raw.shape)
            if at.parts:
                raw = raw[grouped_order(num_rows, at.parts)]
            yield first, raw


def _holds(tensor: GgufTensor, expert: int | None) -> bool:
    return expert is None or (len(tensor.shape) > 1 and expert < tensor.shape[0])
