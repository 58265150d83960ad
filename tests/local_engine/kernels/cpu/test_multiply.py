"""Products of packed weights: bit by bit those of the twin, and those of float32 within what rounding explains."""

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType as FileType
from hypothesis import given, settings
from hypothesis import strategies as st

from local_engine.kernels.cpu.library import Library
from tests.local_engine.kernels.cpu import twin
from tests.local_engine.kernels.cpu.libraries import runnable_libraries
from tests.local_engine.kernels.cpu.packed import pack

LIBRARIES = [pytest.param(library, id=library.instruction_set) for library in runnable_libraries()]
K_TYPES = (FileType.Q4_K, FileType.Q5_K, FileType.Q6_K)
TYPES = [pytest.param(kind, id=kind.name) for kind in (*twin.QUANTISED_TYPES, *twin.DENSE_TYPES)]


def activations(rng: np.random.Generator, rows: int, columns: int) -> twin.Floats:
    """Ordinary numbers with some outliers, and a group of zeros."""
    x = rng.normal(0, 1, (rows, columns)).astype(np.float32)
    x[:, :: max(columns // 3, 1)] *= 30
    x[0, :32] = 0
    return x


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize(("rows", "groups", "count"), [(16, 8, 1), (33, 8, 13), (5, 16, 3), (48, 24, 8)])
def test_a_product_is_the_twins_bit_by_bit(
    library: Library, kind: FileType, rows: int, groups: int, count: int
) -> None:
    rng = np.random.default_rng(rows * groups + count)
    columns = 32 * groups
    stored = twin.random_rows(kind, rows, columns, rng)
    x = activations(rng, count, columns)
    bias = rng.normal(0, 1, rows).astype(np.float32)
    weights = gguf.quants.dequantize(stored, kind).reshape(rows, columns).astype(np.float64)
    got = pack(library, kind, stored, columns, bias=bias).times(x)
    exact = x.astype(np.float64) @ weights.T + bias
    if kind in twin.DENSE_TYPES:
        # Two sums of float32, each rounded once a term: 2^-24 a term at most, and in truth far less.
        slack = 2e-6 * (np.abs(x).astype(np.float64) @ np.abs(weights).T + np.abs(bias))
        assert (np.abs(got - exact) <= slack).all()
        return
    groups_of = twin.decode(kind, stored)
    np.testing.assert_array_equal(got, twin.multiply(groups_of, x, bias))
    fine = pack(library, kind, stored, columns, bias=bias).times(x, fine=True)
    np.testing.assert_array_equal(fine, twin.multiply(groups_of, x, bias, fine=True))
    # Half a step of each activation, and for K types half a unit of a half-precision scale.
    steps = np.repeat(np.abs(x.reshape(count, -1, 16)).max(-1) / 254, 16, axis=-1)
    slack = (steps + 2.0**-11 * np.abs(x)) @ np.abs(weights).T * 1.01
    if kind in K_TYPES:
        slack += 2.0**-11 * np.abs(x) @ np.full(weights.shape, 0.02 * 63 * 2).T
    assert (np.abs(got - exact) <= slack + 1e-4).all()
    if kind not in K_TYPES:  # whose scales are rounded
        assert np.abs(fine - exact).max() <= np.abs(got - exact).max() / 20 + 1e-4


@pytest.mark.parametrize("kind", TYPES)
def test_all_instruction_sets_compute_the_same_bits(kind: FileType) -> None:
    rng = np.random.default_rng(1)
    stored = twin.random_rows(kind, 40, 512, rng)
    x = activations(rng, 11, 512)
    products = [pack(library, kind, stored, 512).times(x) for library in runnable_libraries()]
    for product in products[1:]:
        np.testing.assert_array_equal(product, products[0])


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("kind", TYPES)
def test_a_rows_product_is_the_same_in_any_company(library: Library, kind: FileType) -> None:
    rng = np.random.default_rng(2)
    matrix = pack(library, kind, twin.random_rows(kind, 16, 256, rng), 256)
    x = activations(rng, 23, 256)
    together = matrix.times(x)
    for start, stop in ((0, 1), (1, 3), (3, 10), (10, 23)):
        np.testing.assert_array_equal(matrix.times(x[start:stop].copy()), together[start:stop])


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_does_not_come_out_as_one(library: Library, bad: float) -> None:
    rng = np.random.default_rng(3)
    for kind in (FileType.Q4_1, FileType.Q8_0, FileType.BF16):
        matrix = pack(library, kind, twin.random_rows(kind, 16, 64, rng), 64)
        x = activations(rng, 3, 64)
        x[1, 40] = bad
        product = matrix.times(x)
        assert not np.isfinite(product[1]).any()
        assert np.isfinite(product[[0, 2]]).all()


@settings(max_examples=60)
@given(
    kind=st.sampled_from((*twin.QUANTISED_TYPES, *twin.DENSE_TYPES)),
    rows=st.integers(1, 70),
    groups=st.integers(1, 12),
    count=st.integers(1, 40),
    seed=st.integers(0, 2**32 - 1),
)
def test_products_of_any_shape_are_the_twins(kind: FileType, rows: int, groups: int, count: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    columns = groups * max(32, gguf.GGML_QUANT_SIZES[kind][0])
    stored = twin.random_rows(kind, rows, columns, rng)
    x = activations(rng, count, columns)
    for library in runnable_libraries():
        got = pack(library, kind, stored, columns).times(x)
        if kind in twin.DENSE_TYPES:
            weights = gguf.quants.dequantize(stored, kind).reshape(rows, columns)
            np.testing.assert_allclose(got, x @ weights.T, rtol=1e-4, atol=1e-3)
        else:
            np.testing.assert_array_equal(got, twin.multiply(twin.decode(kind, stored), x))
