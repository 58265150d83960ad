"""The gate of a feed-forward block against the twin."""

from typing import get_args

import pytest
import torch

from local_engine.kernels.operations import Activation
from local_engine.kernels.triton.gated_activation import gated_activation, gated_activation_twin

# The interpreter's sigmoid is numpy's 1 / (1 + exp(-x)): the infinity of large gates becomes the 0 that is meant.
pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered in exp:RuntimeWarning")

_TOLERANCE = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}


@pytest.mark.parametrize("dtype", _TOLERANCE)
@pytest.mark.parametrize(("num_rows", "width"), [(1, 64), (3, 1536), (2, 1025), (4, 1), (0, 64), (3, 0)])
@pytest.mark.parametrize("activation", get_args(Activation))
def test_gate_times_up_is_that_of_the_twin(
    num_rows: int, width: int, dtype: torch.dtype, activation: Activation
) -> None:
    gate_up = (4 * torch.randn(num_rows, 2 * width, generator=torch.Generator().manual_seed(3))).to(dtype)
    expected = gated_activation_twin(gate_up, activation)
    tolerance = _TOLERANCE[dtype]
    torch.testing.assert_close(gated_activation(gate_up, activation), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("activation", get_args(Activation))
def test_large_gates_neither_overflow_nor_leave_a_trace(activation: Activation) -> None:
    gate_up = torch.tensor([[-1e4, 1e4, -90.0, 90.0, 2.0, 2.0, 2.0, 2.0]])
    out = gated_activation(gate_up, activation)
    expected = [0.0, 21.0, 0.0, 21.0] if activation == "clamped_swiglu" else [0.0, 2e4, 0.0, 180.0]
    torch.testing.assert_close(out, torch.tensor([expected]), rtol=1e-4, atol=1e-5)


def test_wrong_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="gate_up: expected"):
        gated_activation(torch.zeros(3, 5), "silu")
    with pytest.raises(ValueError, match="contiguous"):
        gated_activation(torch.zeros(8, 4).T, "silu")
