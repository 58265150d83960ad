"""Packing loses nothing, and rounding floats loses no more than half a step."""

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType as FileType

from local_engine.kernels.cpu.library import open_library
from local_engine.loading.weights import PAIRED_MXFP4
from tests.local_engine.kernels.cpu import twin
from tests.local_engine.kernels.cpu.libraries import runnable_libraries
from tests.local_engine.kernels.cpu.packed import pack

LIBRARY = runnable_libraries()[0]
TYPES = [pytest.param(kind, id=kind.name) for kind in (*twin.QUANTISED_TYPES, *twin.DENSE_TYPES)]
K_TYPES = (FileType.Q4_K, FileType.Q5_K, FileType.Q6_K)


@pytest.mark.parametrize("kind", TYPES)
def test_rows_come_back_as_the_file_has_them(kind: FileType) -> None:
    stored = twin.random_rows(kind, 37, 512, np.random.default_rng(0))
    matrix = pack(LIBRARY, kind, stored, 512)
    weights = gguf.quants.dequantize(stored, kind).reshape(37, 512)
    # K types have scales of more bits than a half: relative to the largest numbers that they make.
    slack = 2.0**-11 * np.abs(weights).max() * 2 if kind in K_TYPES else 0.0
    for row in (0, 15, 16, 36):
        assert np.abs(matrix.row(row) - weights[row]).max() <= slack


def test_four_bit_floats_have_any_exponent_and_either_order() -> None:
    rng = np.random.default_rng(2)
    stored = twin.random_rows(FileType.MXFP4, 253, 64, rng)
    stored.reshape(253, 2, 17)[..., 0] = np.arange(253)[:, None]
    weights = gguf.quants.dequantize(stored, FileType.MXFP4)
    weights[:2] = 0  # below 2^-126
    matrix = pack(LIBRARY, FileType.MXFP4, stored, 64)
    np.testing.assert_array_equal(np.stack([matrix.row(row) for row in range(253)]), weights)
    codes = twin.nibbles(stored.reshape(253, 2, 17)[..., 1:]).astype(np.uint8)
    stored.reshape(253, 2, 17)[..., 1:] = codes[..., 0::2] | codes[..., 1::2] << 4
    paired = pack(LIBRARY, PAIRED_MXFP4, stored, 64)
    np.testing.assert_array_equal(np.stack([paired.row(row) for row in range(253)]), weights)


@pytest.mark.parametrize("source", [pytest.param(kind, id=kind.name) for kind in twin.DENSE_TYPES])
@pytest.mark.parametrize(("target", "levels"), [(FileType.Q8_0, 254), (FileType.Q4_1, 15)], ids=["int8", "int4"])
def test_rounded_floats_are_within_half_a_step(source: FileType, target: FileType, levels: int) -> None:
    rows = twin.random_rows(source, 20, 96, np.random.default_rng(1))
    weights = gguf.quants.dequantize(rows, source).reshape(20, 96)
    rounded = gguf.quants.dequantize(LIBRARY.quantise_rows(source.value, rows, 96, target.value), target)
    groups = weights.reshape(20, 3, 32)
    span = 2 * np.abs(groups).max(-1) if target is FileType.Q8_0 else groups.max(-1) - groups.min(-1)
    # Half a step, and what rounding the scale and the offset to half precision moves the ends by.
    slack = span / levels * 0.51 + np.abs(groups).max(-1) * 2.0**-10
    assert (np.abs(rounded.reshape(20, 3, 32) - groups).max(-1) <= slack).all()


def test_rows_of_zeros_stay_zeros() -> None:
    rows = np.zeros((3, 64 * 4), dtype=np.uint8)
    for target in (FileType.Q8_0, FileType.Q4_1):
        rounded = LIBRARY.quantise_rows(FileType.F32.value, rows, 64, target.value)
        assert not gguf.quants.dequantize(rounded, target).any()


def test_types_and_row_lengths_that_the_kernels_lack_are_told_apart() -> None:
    assert LIBRARY.packed_format(FileType.IQ2_XS.value) is None
    assert LIBRARY.file_row_bytes(FileType.Q4_0.value, 33) is None
    assert LIBRARY.file_row_bytes(FileType.Q4_K.value, 288) is None
    assert LIBRARY.file_row_bytes(FileType.F16.value, 33) == 66


def test_a_build_that_is_not_there_is_none() -> None:
    assert open_library("vax") is None
