"""The packed linear layer against its plain twin, at row counts on both sides of its padding."""

import pytest
import torch

from local_engine.layers.linear import DenseLinear
from local_engine.layers.packed_linear import PackedLinear, computed_rows


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 17, 64])
@pytest.mark.parametrize(("outputs", "inputs"), [(48, 32), (7, 5), (130, 96)])
@pytest.mark.parametrize("biased", [False, True])
def test_the_product_equals_that_of_the_dense_layer(rows: int, outputs: int, inputs: int, biased: bool) -> None:
    torch.manual_seed(rows)
    weight, x = torch.randn(outputs, inputs), torch.randn(rows, inputs)
    bias = torch.randn(outputs) if biased else None
    with torch.inference_mode():
        y = PackedLinear(weight, bias)(x)
        expected = DenseLinear(weight, bias)(x)
        bound = 1e-5 * (x.abs() @ weight.abs().T + 1)
    assert y.shape == (rows, outputs)
    assert bool(((y - expected).abs() <= bound).all())


def test_few_numbers_of_rows_are_computed_and_never_many_more_than_there_are() -> None:
    computed = [computed_rows(rows) for rows in range(1, 4097)]
    assert len(set(computed)) <= 80
    assert all(rows <= found <= max(4, rows * 9 // 8) for rows, found in enumerate(computed, 1))
