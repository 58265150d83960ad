"""The compiled kernels: which builds are there, which one this CPU runs, and their functions with types.

A build is a plain C library for one instruction set, beside this file. Calls through ctypes release the GIL.
"""

import ctypes
import importlib.machinery
import logging
from ctypes import POINTER, c_char_p, c_int32, c_int64, c_void_p
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from local_engine.kernels.cpu.structures import DecoderStruct, MatrixStruct, RoutingStruct, StepStruct

__all__ = [
    "CHOICE",
    "DRAW_RULE",
    "INSTRUCTION_SETS",
    "Library",
    "best_library",
    "open_library",
]

_logger = logging.getLogger(__name__)

INSTRUCTION_SETS: Final = ("avx512bf16", "avx512", "avx2vnni", "avx2", "neon", "portable")
"""Of all builds, the best one first."""

# Of the functions and structures below and of the packed layout; the same as kernels_version in api.cpp.
_VERSION = 13

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int64]


DRAW_RULE = np.dtype(
    [
        ("noise", np.float64),
        ("top_p", np.float64),
        ("temperature", np.float32),
        ("log_min_p", np.float32),
        ("top_k", np.int32),
        ("unused", np.int32),
    ]
)
"""As draw.h has it."""

CHOICE = np.dtype([("expert", np.int32), ("share", np.float32)])
"""As routing.h has it."""

# name: result, arguments
_FUNCTIONS: Final = {
    "kernels_cpu_runs": (c_int32, (c_char_p,)),
    "kernels_packed_format": (c_int32, (c_int32,)),
    "kernels_file_row_bytes": (c_int64, (c_int32, c_int32)),
    "kernels_tile_bytes": (c_int64, (c_int32, c_int32)),
    "kernels_pack_rows": (None, (c_int32, c_void_p, c_int32, c_int32, c_void_p)),
    "kernels_quantise_rows": (None, (c_int32, c_void_p, c_int32, c_int32, c_int32, c_void_p)),
    "kernels_unpack_row": (None, (POINTER(MatrixStruct), c_int32, c_void_p)),
    "kernels_multiply": (c_int32, (POINTER(MatrixStruct), c_void_p, c_int32, c_int32, c_void_p)),
    "kernels_choose_experts": (c_int32, (POINTER(RoutingStruct), c_void_p, c_void_p, c_int32, c_void_p)),
    "kernels_open": (c_void_p, (POINTER(DecoderStruct), c_int32, c_int32, c_int32, c_int32)),
    "kernels_close": (None, (c_void_p,)),
    "kernels_block_bytes": (c_int64, (POINTER(DecoderStruct), c_int32, c_int32)),
    "kernels_forward": (c_int32, (c_void_p, POINTER(StepStruct), c_void_p)),
    "kernels_touch_ahead": (c_int32, (c_void_p,)),
    "kernels_copy_blocks": (c_int32, (c_void_p, c_void_p, c_int32)),
    "kernels_logits": (c_int32, (c_void_p, c_void_p, c_int32, c_void_p)),
    "kernels_likeliest": (None, (c_void_p, c_int32, c_int32, c_void_p, c_void_p)),
    "kernels_top_logits": (c_int32, (c_void_p, c_int32, c_int32, c_int32, c_void_p, c_void_p, c_void_p)),
    "kernels_draw": (c_int32, (c_void_p, c_int32, c_int32, c_void_p, c_void_p)),
}


class Library:
    """One build. Raises OSError where it cannot be loaded or is of another version."""

    def __init__(self, path: Path, instruction_set: str) -> None:
        self.instruction_set = instruction_set
        self._functions = ctypes.CDLL(str(path))
        version = self._functions.kernels_version()
        if version != _VERSION:
            raise OSError(f"{path.name} is version {version} of the kernels, expected {_VERSION}: build it again")
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(self._functions, name)
            function.restype, function.argtypes = result, arguments

    def runs(self, instruction_set: str) -> bool:
        """Whether this CPU can run the build of that name. The portable build may be asked on any."""
        return bool(self._functions.kernels_cpu_runs(instruction_set.encode()))

    def packed_format(self, file_type: int) -> int | None:
        """How matrices of a type of GGUF's table are packed; None for a type that the kernels do not know."""
        found: int = self._functions.kernels_packed_format(file_type)
        return None if found < 0 else found

    def file_row_bytes(self, file_type: int, columns: int) -> int | None:
        """Bytes of a row in a file; None where rows of the type cannot be so long."""
        found: int = self._functions.kernels_file_row_bytes(file_type, columns)
        return None if found < 0 else found

    def matrix_bytes(self, packed_format: int, rows: int, columns: int) -> int:
        """Bytes of a packed matrix."""
        tile: int = self._functions.kernels_tile_bytes(packed_format, columns)
        return tile * -(-rows // 16)

    def pack_rows(self, file_type: int, rows: Bytes, columns: int, out: Bytes) -> None:
        """rows [R, bytes a row], contiguous, the first a multiple of 16 of its matrix; out: where their tiles begin."""
        self._functions.kernels_pack_rows(file_type, rows.ctypes.data, len(rows), columns, out.ctypes.data)

    def quantise_rows(self, file_type: int, rows: Bytes, columns: int, to: int) -> Bytes:
        """Rows of F32, F16 or BF16 rounded to rows of the file type `to`, Q8_0 or Q4_1."""
        row_bytes = self.file_row_bytes(to, columns)
        if row_bytes is None:
            raise ValueError(f"rows of {columns} cannot be of type {to}")
        out = np.empty((len(rows), row_bytes), dtype=np.uint8)
        self._functions.kernels_quantise_rows(file_type, rows.ctypes.data, len(rows), columns, to, out.ctypes.data)
        return out

    def unpack_row(self, matrix: MatrixStruct, row: int) -> Floats:
        out = np.empty(matrix.columns, dtype=np.float32)
        self._functions.kernels_unpack_row(matrix, row, out.ctypes.data)
        return out

    def multiply(self, matrix: MatrixStruct, x: Floats, *, fine: bool = False) -> Floats:
        """x [T, columns], contiguous -> [T, rows]: what a step computes, on one thread. fine: as for logits."""
        padded = -(-matrix.rows // 16) * 16
        out = np.empty((len(x), padded), dtype=np.float32)
        if self._functions.kernels_multiply(matrix, x.ctypes.data, len(x), fine, out.ctypes.data):
            raise MemoryError
        return out[:, : matrix.rows]

    def choose_experts(
        self, routing: RoutingStruct, logits: Floats, correction: Floats | None = None
    ) -> npt.NDArray[np.void]:
        """logits [T, experts], contiguous -> of each row `CHOICE`s by expert, [T, per_token]: what a step does."""
        chosen = np.empty((len(logits), routing.per_token), dtype=CHOICE)
        address = None if correction is None else correction.ctypes.data
        if self._functions.kernels_choose_experts(
            routing, address, logits.ctypes.data, len(logits), chosen.ctypes.data
        ):
            raise MemoryError
        return chosen

    def block_bytes(self, decoder: DecoderStruct, block_size: int, cache_bytes: int) -> int:
        """Bytes of one KV block over all layers. cache_bytes: of one number, 4 or 2."""
        size: int = self._functions.kernels_block_bytes(decoder, block_size, cache_bytes)
        return size

    def open(self, decoder: DecoderStruct, *, block_size: int, num_blocks: int, cache_bytes: int, threads: int) -> int:
        """A session, to be closed with `close`. Raises MemoryError."""
        session: int | None = self._functions.kernels_open(decoder, block_size, num_blocks, cache_bytes, threads)
        if session is None:
            raise MemoryError
        return session

    def close(self, session: int) -> None:
        self._functions.kernels_close(session)

    def forward(self, session: int, step: StepStruct, hidden: int) -> None:
        """hidden: address of [num_rows, hidden] float32, of which the wanted rows are written. Raises MemoryError."""
        if self._functions.kernels_forward(session, step, hidden):
            raise MemoryError

    def touch_ahead(self, session: int) -> bool:
        """Gets a piece of the KV pool from the system before a step needs it; False where enough of it is there."""
        return bool(self._functions.kernels_touch_ahead(session))

    def copy_blocks(self, session: int, pairs: npt.NDArray[np.int32]) -> None:
        """pairs: [N, 2] of (from, to), contiguous. Raises MemoryError."""
        if self._functions.kernels_copy_blocks(session, pairs.ctypes.data, len(pairs)):
            raise MemoryError

    def logits(self, session: int, hidden: int, count: int, logits: int) -> None:
        """Addresses of [count, hidden] and [count, vocabulary] float32. Raises MemoryError."""
        if self._functions.kernels_logits(session, hidden, count, logits):
            raise MemoryError

    def likeliest(self, logits: int, count: int, vocabulary: int, largest: int, tokens: int) -> None:
        """Addresses of [count, vocabulary] float32, and of [count] float32 and int64 for the results."""
        self._functions.kernels_likeliest(logits, count, vocabulary, largest, tokens)

    def top_logits(self, logits: int, vocabulary: int, normalisers: Floats, values: Floats, tokens: Ids) -> None:
        """normalisers [N, 2], values and tokens [N, top] of rows at `logits`: as draw.h says. Raises MemoryError."""
        count, top = values.shape
        outs = (array.ctypes.data for array in (normalisers, values, tokens))
        if self._functions.kernels_top_logits(logits, count, vocabulary, top, *outs):
            raise MemoryError

    def draw(self, logits: int, vocabulary: int, rules: npt.NDArray[np.void], tokens: int) -> None:
        """rules: one a row, of `DRAW_RULE`; addresses as above. Raises MemoryError."""
        if self._functions.kernels_draw(logits, len(rules), vocabulary, rules.ctypes.data, tokens):
            raise MemoryError


@cache
def open_library(instruction_set: str) -> Library | None:
    """The build for an instruction set; None where it was not built or cannot be loaded. Does not ask the CPU."""
    for suffix in importlib.machinery.EXTENSION_SUFFIXES:
        path = Path(__file__).with_name(f"_kernels_{instruction_set}{suffix}")
        if path.is_file():
            try:
                return Library(path, instruction_set)
            except OSError as error:
                _logger.warning("the CPU kernels for %s cannot be used: %s", instruction_set, error)
    return None


@cache
def best_library() -> Library | None:
    """The best build that this CPU runs; None where there is none."""
    portable = open_library("portable")
    if portable is None:
        return None
    found = (open_library(name) for name in INSTRUCTION_SETS if portable.runs(name))
    return next((library for library in found if library is not None), None)
