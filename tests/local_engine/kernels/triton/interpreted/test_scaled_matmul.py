"""Products in 8 bits against the twin."""

import pytest
import torch

from local_engine.kernels.triton.add_rms_norm import add_rms_norm_quantized
from local_engine.kernels.triton.scaled_matmul import scaled_matmul, scaled_matmul_twin


def _inputs(rows: int, outputs: int, inputs: int, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(8)
    x, weight = (40 * torch.randn(shape, inputs, generator=generator) for shape in (rows, outputs))
    x, weight = (side.clamp(-127, 127).round().to(dtype) for side in (x, weight))
    return x, torch.rand(rows, generator=generator), weight, torch.rand(outputs, generator=generator)


@pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e4m3fn])
@pytest.mark.parametrize("sizes", [(3, 40, 64), (70, 140, 100), (1, 1, 1), (0, 8, 16), (2, 0, 16)])
def test_products_are_those_of_the_twin(sizes: tuple[int, int, int], dtype: torch.dtype) -> None:
    tensors = _inputs(*sizes, dtype)
    bias = torch.randn(sizes[1], generator=torch.Generator().manual_seed(9)) if sizes[0] == 3 else None
    expected = scaled_matmul_twin(*tensors, dtype=torch.float32, bias=bias)
    out = scaled_matmul(*tensors, dtype=torch.float32, bias=bias)
    torch.testing.assert_close(out, expected, rtol=1e-5, atol=0.5 if sizes[2] > 1 else 1e-5)


def test_a_norm_in_eight_bits_multiplies_as_the_norm_nearly_does() -> None:
    generator = torch.Generator().manual_seed(3)
    x, residual = torch.randn(2, 4, 128, generator=generator)
    weight = torch.randint(-127, 128, (16, 128), generator=generator, dtype=torch.int8)
    scales = torch.full((16,), 1 / 127)
    codes, row_scales = add_rms_norm_quantized(x, residual, torch.ones(128), 1e-5, dtype=torch.int8)
    out = scaled_matmul(codes, row_scales, weight, scales, dtype=torch.float32)
    normed = torch.nn.functional.rms_norm(residual, (128,), eps=1e-5)
    torch.testing.assert_close(out, normed @ weight.float().T / 127, rtol=0.05, atol=0.3)


def test_wrong_shapes_and_types_are_refused_by_name() -> None:
    x, x_scales, weight, scales = _inputs(2, 8, 16, torch.int8)
    with pytest.raises(ValueError, match=r"weight: expected torch\.int8"):
        scaled_matmul(x, x_scales, weight.to(torch.float8_e4m3fn), scales, dtype=torch.float32)
    with pytest.raises(ValueError, match="x_scales: expected the shape"):
        scaled_matmul(x, x_scales[:1], weight, scales, dtype=torch.float32)
