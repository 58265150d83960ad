"""Rows times weights in few bits against the twin, which multiplies the dequantised weights."""

import pytest
import torch

from local_engine.kernels.triton import quantized_matmul as module
from local_engine.kernels.triton.dequantize import dequantized, dequantized_twin
from local_engine.kernels.triton.quantized_matmul import matmul_splits, quantized_matmul, quantized_matmul_twin
from tests.local_engine.kernels.triton.interpreted.quantized_matrices import FORMS, quantized_matrix

_TOLERANCE = {torch.float32: 2e-6, torch.float16: 1e-3}


def _assert_equals_twin(form: str, rows: int, sizes: tuple[int, int], dtype: torch.dtype, splits: int = 1) -> None:
    generator = torch.Generator().manual_seed(4)
    matrix = quantized_matrix(form, *sizes)
    x = torch.randn(rows, matrix.num_inputs, generator=generator).to(dtype)
    bias = torch.randn(sizes[0], generator=generator).to(dtype) if rows % 2 else None
    expected = quantized_matmul_twin(x, matrix, bias=bias)
    out = quantized_matmul(x, matrix, bias=bias, splits=splits)
    # The order of sums counts against the sum of absolute products.
    most = float((x.float().abs() @ matrix.dense().T.abs()).max()) if rows else 0.0
    torch.testing.assert_close(out, expected, rtol=_TOLERANCE[dtype], atol=2e-6 * most)


@pytest.mark.parametrize("form", FORMS)
def test_each_form_gives_the_products_of_its_numbers(form: str) -> None:
    _assert_equals_twin(form, 3, (40, 96), torch.float32)
    _assert_equals_twin(form, 2, (40, 160), torch.float16)


@pytest.mark.parametrize(
    ("form", "rows", "sizes"),
    [("Q4_1", 1, (1, 352)), ("Q4_K", 17, (130, 512)), ("Q8_0", 0, (8, 32))],
)
def test_ragged_and_empty_shapes_and_any_number_of_ranges(form: str, rows: int, sizes: tuple[int, int]) -> None:
    for splits in (2, 3):
        _assert_equals_twin(form, rows, sizes, torch.float16, splits)


@pytest.mark.parametrize("form", FORMS)
def test_unpacked_weights_are_those_of_the_twin(form: str) -> None:
    matrix = quantized_matrix(form, 37, 96)
    for dtype, bounds in ((torch.float32, (0, None)), (torch.float16, (5, 30))):
        expected = dequantized_twin(matrix, dtype, *bounds)
        torch.testing.assert_close(dequantized(matrix, dtype, *bounds), expected, rtol=_TOLERANCE[dtype], atol=1e-7)


@pytest.mark.parametrize("form", ["Q4_0", "order"])
def test_many_rows_are_multiplied_with_the_unpacked_matrix(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FUSED_ROWS", 4)
    monkeypatch.setattr(module, "_UNPACKED_ITEMS", 96 * 128)
    _assert_equals_twin(form, 5, (140, 96), torch.float32)
    _assert_equals_twin(form, 6, (140, 96), torch.float32)


def test_a_row_that_is_not_a_number_spoils_no_other() -> None:
    matrix = quantized_matrix("Q4_1", 8, 64)
    x = torch.ones(3, 64)
    x[1] = float("nan")
    out = quantized_matmul(x, matrix)
    assert out[1].isnan().all()
    assert out[[0, 2]].isfinite().all()


def test_inputs_are_split_where_rows_and_outputs_leave_processors_idle() -> None:
    assert matmul_splits(1, 4096, 4096, 132) == 8
    assert matmul_splits(1, 4096, 14336, 132) == 16
    assert matmul_splits(64, 28672, 4096, 132) == 1
    assert matmul_splits(1, 128256, 4096, 132) == 1
    assert matmul_splits(0, 0, 0, 132) == 1


def test_wrong_shapes_are_refused_by_name() -> None:
    matrix = quantized_matrix("Q4_0", 8, 64)
    with pytest.raises(ValueError, match="x: expected the shape"):
        quantized_matmul(torch.zeros(2, 32), matrix)
    with pytest.raises(ValueError, match="bias: expected the shape"):
        quantized_matmul(torch.zeros(2, 64), matrix, bias=torch.zeros(7))
    with pytest.raises(ValueError, match="splits: expected 1 to 32"):
        quantized_matmul(torch.zeros(2, 64), matrix, splits=33)
