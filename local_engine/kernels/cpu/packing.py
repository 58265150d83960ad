"""Matrices of a file as the kernels want them: read a piece at a time, packed, in one block of memory."""

import math
import mmap
import sys
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import torch
from torch import Tensor

from local_engine.kernels.cpu.library import Bytes, Library
from local_engine.kernels.cpu.structures import MatrixStruct
from local_engine.kernels.cpu.topology import physical_cores
from local_engine.loading.weights import StoredRows, Weights

__all__ = ["MatrixPacker", "NotPackable", "Rounding"]

Rounding = Literal["none", "int8", "int4"]
"""What matrices of floats are rounded to when they are loaded."""

# Numbers of GGUF's table of types.
_F32, _F16, _BF16, _Q4_1, _Q8_0 = 0, 1, 30, 3, 8
_DENSE: Final = {_F32: torch.float32, _F16: torch.float16, _BF16: torch.bfloat16}
_GROUP = 32
_TILE = 16
_ALIGNMENT = 64
_SLAB_BYTES = 64 << 20
_PIECES_AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class _Plan:
    """A matrix before it is read: what its rows are rounded to, and how it is packed."""

    stored: StoredRows
    rows: int
    columns: int
    packed_type: int
    packed_format: int
    num_bytes: int


class NotPackable(Exception):
    """A tensor that the kernels cannot compute with as it is stored. The message says which and why."""


class MatrixPacker:
    """Reads matrices by name. Keep it as long as what it gave is used: it owns the memory."""

    def __init__(self, library: Library, weights: Weights, *, rounding: Rounding) -> None:
        self._library = library
        self._weights = weights
        self._rounding: Rounding = rounding
        self._threads = ThreadPoolExecutor(physical_cores(), thread_name_prefix="packing")
        self._free: Bytes = np.empty(0, dtype=np.uint8)
        self._memory: list[Bytes] = []

    def matrix(self, name: str, *shape: int, finer: bool = False) -> MatrixStruct:
        """The tensor `name` [rows, columns], packed; a stack [.., rows, columns] as one matrix of all rows.

        finer: at least eight bits where floats are rounded.

        Raises ModelLoadError, and NotPackable for a tensor that the kernels cannot compute with.
        """
        (packed,) = self.matrices([name], *shape, finer=finer)
        return packed

    def matrices(self, names: Sequence[str], *shape: int, finer: bool = False) -> list[MatrixStruct]:
        """`matrix` of many, of which small ones are packed at once."""
        structs: list[MatrixStruct] = []
        packing: deque[Future[None]] = deque()
        for name in names:
            plan = self._plan(name, shape, finer=finer)
            memory = self._take(plan.num_bytes)
            tile_bytes = self._library.matrix_bytes(plan.packed_format, _TILE, plan.columns)
            row = 0
            for piece in plan.stored.pieces():
                # The next piece is read meanwhile; more than a few of them would take as much memory as the matrices.
                if len(packing) > _PIECES_AT_ONCE:
                    packing.popleft().result()
                packing.append(self._threads.submit(self._pack, plan, piece, memory[row // _TILE * tile_bytes :]))
                row += len(piece)
            self._weights.mark_read(name)
            structs.append(MatrixStruct(memory.ctypes.data, None, plan.packed_format, plan.rows, plan.columns, 0))
        for piece_packed in packing:
            piece_packed.result()
        return structs

    def exact(self, name: str, rows: int, columns: int) -> MatrixStruct:
        """The tensor `name` in float32, whatever it is stored as. Raises ModelLoadError."""
        return self._floats(self._weights.stacked([name], [rows], columns), _F32)

    def rearranged(
        self, name: str, rows: int, columns: int, arrange: Callable[[Tensor], Sequence[Tensor]]
    ) -> list[MatrixStruct]:
        """What `arrange` makes of the tensor `name`, [.., columns] each. Floats stay what they are, others get 8 bits.

        Raises as `matrix`.
        """
        kind = self._plan(name, (rows, columns), finer=True).packed_type
        parts = arrange(self._weights.stacked([name], [rows], columns))
        return [self._floats(part.flatten(0, -2), kind if kind in _DENSE else _Q8_0) for part in parts]

    def _floats(self, values: Tensor, kind: int) -> MatrixStruct:
        """values [rows, columns] in float32. kind: what they are packed as, of floats or Q8_0."""
        rows, columns = values.shape
        packed = self._library.packed_format(kind)
        assert packed is not None
        memory = self._take(self._library.matrix_bytes(packed, rows, columns))
        stored = values.to(_DENSE.get(kind, torch.float32)).contiguous().view(torch.uint8).numpy()
        if kind not in _DENSE:
            stored = self._library.quantise_rows(_F32, stored, columns, kind)
        self._library.pack_rows(kind, stored, columns, memory)
        return MatrixStruct(memory.ctypes.data, None, packed, rows, columns, 0)

    def _plan(self, name: str, shape: tuple[int, ...], *, finer: bool) -> _Plan:
        stored = self._weights.stored(name, shape)
        if stored is None:
            raise NotPackable(f"tensor {name!r} is not stored as rows of numbers")
        if self._library.packed_format(stored.type) is None:
            raise NotPackable(f"tensor {name!r} is of type {stored.type_name}")
        kind, rows, columns = stored.type, math.prod(shape[:-1]), shape[-1]
        if kind in _DENSE and self._rounding != "none" and columns % _GROUP == 0:
            kind = _Q8_0 if finer or self._rounding == "int8" else _Q4_1
        packed = self._library.packed_format(kind)
        assert packed is not None
        return _Plan(stored, rows, columns, kind, packed, self._library.matrix_bytes(packed, rows, columns))

    def _pack(self, plan: _Plan, piece: Bytes, out: Bytes) -> None:
        """Rows of the matrix to their tiles. Runs on any thread, and without the GIL for nearly all of its time."""
        rows = np.ascontiguousarray(piece)
        if plan.packed_type != plan.stored.type:
            rows = self._library.quantise_rows(plan.stored.type, rows, plan.columns, plan.packed_type)
        self._library.pack_rows(plan.packed_type, rows, plan.columns, out)

    def close(self) -> None:
        """Ends the threads; what was packed stays."""
        self._threads.shutdown()

    def _take(self, num_bytes: int) -> Bytes:
        """Aligned memory that lives as long as the packer."""
        if len(self._free) < num_bytes:
            self._free = _huge_pages(max(num_bytes, _SLAB_BYTES))
            self._memory.append(self._free)
        memory, self._free = self._free[:num_bytes], self._free[-(-num_bytes // _ALIGNMENT) * _ALIGNMENT :]
        return memory


def _huge_pages(num_bytes: int) -> Bytes:
    """Zeroed memory in pages of 2 MB where the system has them: weights are read in order, all of them in each step,
    and small pages cost a third of the bandwidth (2 cores of an AMD EPYC Zen 4, 2026-11).
    """
    memory = mmap.mmap(-1, num_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if sys.platform == "linux":
        memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, dtype=np.uint8)
