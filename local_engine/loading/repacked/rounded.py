"""Weights of full precision, rounded at load to fewer bits: what `QuantizedMatrix` is for files that are not packed."""

import torch
from torch import Tensor

from local_engine.layers.quantized_matrix import GroupNumbers, QuantizedMatrix, covering_group, packed_codes
from local_engine.loading.repacked.fp8 import fp8_matrix

__all__ = ["rounded_fp8_matrix", "rounded_matrix"]

_LEAST_SCALE = 1e-30


def rounded_matrix(weight: Tensor, *, bits: int, group_size: int | None) -> QuantizedMatrix:
    """weight [N, K], in any float type, as integers of 4 or 8 bits to the nearest, symmetric around zero.

    group_size: inputs that share a scale; None is a scale an output. An error is at most 0.51 of a group's largest
    number over 7, or over 127.
    """
    num_outputs, num_inputs = weight.shape
    size = group_size or num_inputs
    numbers = torch.nn.functional.pad(weight.float(), (0, -num_inputs % size)).view(num_outputs, -1, size)
    most = (1 << bits - 1) - 1
    # A scale a group is kept in 16 bits, and the codes are of the scale that is kept.
    scales = (numbers.abs().amax(-1) / most).clamp_min(_LEAST_SCALE)
    scales = scales if group_size is None else scales.to(torch.bfloat16)
    codes = (numbers / scales.float().unsqueeze(-1)).round_().clamp_(-most - 1, most) + (most + 1)
    return QuantizedMatrix(
        packed_codes(codes.flatten(1)[:, :num_inputs].T.to(torch.uint8), bits),
        GroupNumbers(scales.T.contiguous()),
        num_inputs,
        bits,
        group_size or covering_group(num_inputs, bits),
        zero=most + 1,
    )


def rounded_fp8_matrix(weight: Tensor) -> QuantizedMatrix:
    """weight [N, K] as floats of 8 bits (E4M3) with a scale an output."""
    numbers = weight.float()
    scales = (numbers.abs().amax(1) / torch.finfo(torch.float8_e4m3fn).max).clamp_min(_LEAST_SCALE)
    return fp8_matrix((numbers / scales[:, None]).to(torch.float8_e4m3fn), scales, (1, weight.shape[1]))
