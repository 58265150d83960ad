"""Repacked GPTQ and AWQ against the numbers that were packed, to the last bit."""

from collections.abc import Mapping

import pytest
import torch

from local_engine.layers.quantized_matrix import QuantizedMatrix
from local_engine.loading.repacked.grouped import awq_matrix, gptq_matrix
from tests.local_engine.loading.packed.test_grouped import awq, gptq, normal


def _matrix(
    parts: Mapping[str, torch.Tensor], *, bits: int, group_size: int | None, zeros_less_one: bool = True
) -> QuantizedMatrix:
    tensors = parts["qweight"], parts["qzeros"], parts["scales"], parts.get("g_idx")
    return gptq_matrix(*tensors, bits=bits, group_size=group_size, zeros_less_one=zeros_less_one)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("act_order", [False, True])
def test_gptq_stands_for_the_numbers_that_were_packed(bits: int, version: int, act_order: bool) -> None:
    parts, expected = gptq(normal(48, 160), bits=bits, group_size=32, act_order=act_order, version=version)
    matrix = _matrix(parts, bits=bits, group_size=32, zeros_less_one=version == 1)
    assert torch.equal(matrix.dense(), expected)
    assert (matrix.order is not None) == act_order


@pytest.mark.parametrize("group_size", [64, None])
def test_groups_follow_the_inputs_where_the_file_lists_none(group_size: int | None) -> None:
    parts, expected = gptq(normal(16, 128), bits=4, group_size=group_size or 128, listed=False)
    assert torch.equal(_matrix(parts, bits=4, group_size=group_size).dense(), expected)


def test_one_zero_for_all_is_not_read() -> None:
    parts, _ = gptq(normal(16, 64), bits=4, group_size=32)
    parts["qzeros"] = torch.full_like(parts["qzeros"], 0x77777777)
    matrix = _matrix(parts, bits=4, group_size=32)
    assert (matrix.zero, matrix.zeros) == (8, None)


def test_groups_of_other_sizes_are_refused() -> None:
    parts, _ = gptq(normal(16, 64), bits=4, group_size=32)
    parts["g_idx"][0] = 1
    with pytest.raises(ValueError, match="g_idx: expected 32 inputs of each of 2 groups"):
        _matrix(parts, bits=4, group_size=32)
    parts, _ = gptq(normal(16, 96), bits=4, group_size=24)
    with pytest.raises(ValueError, match="group_size: expected a multiple of 16"):
        _matrix(parts, bits=4, group_size=24)


@pytest.mark.parametrize("group_size", [32, 128, None])
def test_awq_stands_for_the_numbers_that_were_packed(group_size: int | None) -> None:
    parts, expected = awq(normal(48, 160), group_size=group_size or 160)
    assert torch.equal(awq_matrix(**parts, group_size=group_size).dense(), expected)
