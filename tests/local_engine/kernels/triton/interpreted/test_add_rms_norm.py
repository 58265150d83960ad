"""Residual add and RMS norm against the twin."""

import pytest
import torch
from torch import Tensor

from local_engine.kernels.triton.add_rms_norm import (
    MAX_HIDDEN_SIZE,
    add_rms_norm,
    add_rms_norm_quantized,
    add_rms_norm_quantized_twin,
    add_rms_norm_twin,
)

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


@pytest.mark.parametrize(("num_rows", "hidden_size"), [(3, 576), (2, 1000), (0, 64)])
@pytest.mark.parametrize("is_gemma", [False, True])
def test_a_norm_in_eight_bits_is_that_of_the_twin(num_rows: int, hidden_size: int, is_gemma: bool) -> None:
    x, residual, inner, weight = _tensors(num_rows, hidden_size, torch.float16)
    expected_residual = residual.clone()
    inner_weight, offset = (inner, 1.0) if is_gemma else (None, 0.0)
    expected, expected_scales = add_rms_norm_quantized_twin(
        x, expected_residual, weight, 1e-5, dtype=torch.int8, inner_weight=inner_weight, weight_offset=offset
    )
    codes, scales = add_rms_norm_quantized(
        x, residual, weight, 1e-5, dtype=torch.int8, inner_weight=inner_weight, weight_offset=offset
    )
    torch.testing.assert_close(residual, expected_residual, rtol=2e-3, atol=2e-3)
    torch.testing.assert_close(scales, expected_scales, rtol=2e-3, atol=0.0)
    # Where the sum is rounded to the neighbouring half, a number may fall to the neighbouring step.
    assert ((codes.int() - expected.int()).abs() <= 1).all()
    if num_rows:
        assert codes.abs().amax() == 127


def test_a_norm_in_fp8_has_the_scales_of_the_twin() -> None:
    x, residual, _, weight = _tensors(3, 576, torch.float32)
    expected, expected_scales = add_rms_norm_quantized_twin(
        x, residual.clone(), weight, 1e-5, dtype=torch.float8_e4m3fn
    )
    codes, scales = add_rms_norm_quantized(x, residual, weight, 1e-5, dtype=torch.float8_e4m3fn)
    torch.testing.assert_close(scales, expected_scales)
    # The interpreter's cast to fp8 loses the carry into the exponent: such a number comes out as half of what it is.
    carried = expected.float().abs() >= 2 * codes.float().abs()
    assert carried.float().mean() < 0.1
    torch.testing.assert_close(codes.float()[~carried], expected.float()[~carried], rtol=0.13, atol=0.02)


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
    with pytest.raises(ValueError, match="dtype: expected"):
        add_rms_norm_quantized(x, residual, weight, 1e-5, dtype=torch.float16)
    with pytest.raises(ValueError, match=r"x: expected \[T, up to"):
        add_rms_norm(torch.empty(1, MAX_HIDDEN_SIZE + 1), residual, weight, 1e-5)
