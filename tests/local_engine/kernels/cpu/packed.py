"""Packed matrices for tests."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from local_engine.kernels.cpu.library import Library
from local_engine.kernels.cpu.structures import MatrixStruct

__all__ = ["PackedMatrix", "pack"]


@dataclass(frozen=True)
class PackedMatrix:
    """A matrix with the memory that it lies in."""

    library: Library
    struct: MatrixStruct
    memory: tuple[npt.NDArray[np.generic], ...]

    def times(self, x: npt.NDArray[np.float32], *, fine: bool = False) -> npt.NDArray[np.float32]:
        """[T, columns] -> [T, rows]."""
        return self.library.multiply(self.struct, x, fine=fine)

    def row(self, index: int) -> npt.NDArray[np.float32]:
        return self.library.unpack_row(self.struct, index)


def pack(
    library: Library,
    kind: int,
    rows: npt.NDArray[np.uint8],
    columns: int,
    *,
    bias: npt.NDArray[np.float32] | None = None,
) -> PackedMatrix:
    """kind: of the rows, as `StoredRows.type`."""
    packed_format = library.packed_format(kind)
    assert packed_format is not None
    size = library.matrix_bytes(packed_format, len(rows), columns)
    memory = np.full(size + 64, 0xA5, dtype=np.uint8)
    start = -memory.ctypes.data % 64
    out = memory[start : start + size]
    library.pack_rows(kind, rows, columns, out)
    address = None if bias is None else bias.ctypes.data
    struct = MatrixStruct(out.ctypes.data, address, packed_format, len(rows), columns, 0)
    return PackedMatrix(library, struct, (memory, *(() if bias is None else (bias,))))
