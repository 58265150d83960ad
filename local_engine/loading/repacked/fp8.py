"""Weights in floats of 8 bits (E4M3) as a `QuantizedMatrix`; `loading.packed.fp8` says how their files lie."""

import torch
from torch import Tensor

from local_engine.layers.quantized_matrix import GroupNumbers, QuantizedMatrix, covering_group, packed_codes

__all__ = ["fp8_matrix"]


def fp8_matrix(weight: Tensor, scales: Tensor, cell: tuple[int, int] | None = None) -> QuantizedMatrix:
    """weight: [N, K] float8_e4m3fn. cell: outputs and inputs that share a scale; None is the whole matrix.

    scales: one for each cell, row after row of the grid, in any float type. Kernels read what is not a number as 480.
    Raises ValueError for other shapes and types, and for cells whose inputs are no multiple of 16.
    """
    if weight.ndim != 2 or weight.dtype != torch.float8_e4m3fn:
        raise ValueError(f"weight: expected float8_e4m3fn [N, K], got {weight.dtype} {tuple(weight.shape)}")
    num_outputs, num_inputs = weight.shape
    height, width = weight.shape if cell is None else cell
    grid = -(-num_outputs // height), -(-num_inputs // width)
    if scales.numel() != grid[0] * grid[1]:
        raise ValueError(f"scales: expected {grid[0]} times {grid[1]}, got {tuple(scales.shape)}")
    return QuantizedMatrix(
        packed_codes(weight.view(torch.uint8).T, 8),
        GroupNumbers(scales.float().reshape(grid).T.contiguous()),
        num_inputs,
        8,
        covering_group(num_inputs, 8) if width >= num_inputs else width,
        is_float=True,
        scale_width=height,
    )
