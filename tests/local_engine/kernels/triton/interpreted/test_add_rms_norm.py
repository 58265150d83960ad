"""Residual add and RMS norm against the twin."""

import pytest
import torch
from torch import Tensor

from local_engine.kernels.triton.add_rms_norm import MAX_HIDDEN_SIZE, add_rms_norm, add_rms_norm_twin

_TOLERANCE = {torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 2e-2}


def _tensors(num_rows: int, hidden_size: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(7)
    x, residual, inner, weight = (
        torch.randn(shape, generator=generator).to(dtype)
        for shape in ((num_rows, hidden_size), (num_rows, hidden_size), (hidden_size,), (hidden_size,))
    )
    return x, residual, inner, weight


@pytest.mark.parametrize("dtype", _TOLERANCE)
@pytest.mark.parametrize(("num_rows", "hidden_size"), [(1, 64), (3, 576), (2, 1000), (5, 1), (0, 64)])
@pytest.mark.parametrize("is_gemma", [False, True])
def test_sum_and_norm_are_those_of_the_twin(
    num_rows: int, hidden_size: int, dtype: torch.dtype, is_gemma: bool
) -> None:
    x, residual, inner, weight = _tensors(num_rows, hidden_size, dtype)
    expected_residual = residual.clone()
    inner_weight, weight_offset = (inner, 1.0) if is_gemma else (None, 0.0)

    expected = add_rms_norm_twin(
        x, expected_residual, weight, 1e-5, inner_weight=inner_weight, weight_offset=weight_offset
    )
    out = add_rms_norm(x, residual, weight, 1e-5, inner_weight=inner_weight, weight_offset=weight_offset)

    tolerance = _TOLERANCE[dtype]
    torch.testing.assert_close(residual, expected_residual, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(out, expected, rtol=tolerance, atol=2 * tolerance)


def test_a_row_of_zeros_stays_zero() -> None:
    x, residual, weight = torch.zeros(2, 48), torch.zeros(2, 48), torch.ones(48)
    assert not add_rms_norm(x, residual, weight, 1e-6).any()


def test_a_row_that_is_not_a_number_spoils_no_other() -> None:
    x, residual, _, weight = _tensors(3, 100, torch.float32)
    x[1] = float("nan")
    out = add_rms_norm(x, residual, weight, 1e-6)
    assert out[1].isnan().all()
    assert out[[0, 2]].isfinite().all()


def test_wrong_shapes_are_refused_by_name() -> None:
    x, residual, inner, weight = _tensors(3, 64, torch.float32)
    with pytest.raises(ValueError, match="weight: expected the shape"):
        add_rms_norm(x, residual, weight[:32], 1e-5)
    with pytest.raises(ValueError, match="residual: expected the shape"):
        add_rms_norm(x, residual[:2], weight, 1e-5)
    with pytest.raises(ValueError, match=r"residual: expected torch\.float32"):
        add_rms_norm(x, residual.half(), weight, 1e-5)
    with pytest.raises(ValueError, match="inner_weight: expected the shape"):
        add_rms_norm(x, residual, weight, 1e-5, inner_weight=inner[:1])
    with pytest.raises(ValueError, match="x: expected a contiguous tensor"):
        add_rms_norm(x.T.contiguous().T, residual, weight, 1e-5)
    with pytest.raises(ValueError, match=r"x: expected \[T, up to"):
        add_rms_norm(torch.empty(1, MAX_HIDDEN_SIZE + 1), residual, weight, 1e-5)
