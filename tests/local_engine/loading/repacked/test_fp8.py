"""Repacked floats of 8 bits against each number times the scale of its cell, and what is rounded at load."""

import pytest
import torch

from local_engine.layers.quantized_matrix import beside_each_other
from local_engine.loading.repacked.fp8 import fp8_matrix
from local_engine.loading.repacked.rounded import rounded_fp8_matrix, rounded_matrix
from tests.local_engine.loading.packed.test_fp8 import eight_bit, numbers, random


@pytest.mark.parametrize("cell", [(40, 80), (1, 80), (16, 32), (128, 128), (16, 16)])
def test_numbers_are_those_of_the_format(cell: tuple[int, int]) -> None:
    packed, grid = eight_bit(random(40, 80), cell, torch.float8_e4m3fn)
    matrix = fp8_matrix(packed, grid, cell)
    assert torch.equal(matrix.dense(), numbers(packed, grid, cell))


def test_one_scale_for_the_whole_matrix_and_each_of_the_codes() -> None:
    codes = torch.tensor([code for code in range(256) if code & 127 != 127], dtype=torch.uint8)
    packed = codes.view(torch.float8_e4m3fn).view(2, 127)
    assert torch.equal(fp8_matrix(packed, torch.tensor(2.0)).dense(), 2 * packed.float())


def test_blocks_stand_beside_each_other_where_they_end_with_a_matrix() -> None:
    matrices = [
        fp8_matrix(*eight_bit(random(rows, 64), (16, 32), torch.float8_e4m3fn), (16, 32)) for rows in (32, 16, 24)
    ]
    joined = beside_each_other(matrices)
    assert torch.equal(joined.dense(), torch.cat([matrix.dense() for matrix in matrices]))
    with pytest.raises(ValueError, match="scale_width"):
        beside_each_other(matrices[::-1])


def test_other_types_and_grids_are_refused() -> None:
    packed, grid = eight_bit(random(40, 80), (16, 32), torch.float8_e4m3fn)
    with pytest.raises(ValueError, match="scales: expected 1 times 1"):
        fp8_matrix(packed, grid)
    with pytest.raises(ValueError, match="weight: expected float8_e4m3fn"):
        fp8_matrix(packed.to(torch.float8_e5m2), grid, (16, 32))


@pytest.mark.parametrize(("bits", "group_size"), [(8, None), (8, 64), (4, 32), (4, 128)])
def test_rounding_errs_by_half_a_step_of_the_groups_largest_number(bits: int, group_size: int | None) -> None:
    weight = random(24, 96)
    weight[3] = 0
    weight[4] *= 1e-9
    numbers = rounded_matrix(weight, bits=bits, group_size=group_size).dense()
    assert not numbers[3].any()
    size = group_size or 96
    for first in range(0, 96, size):
        exact, rounded = weight[:, first : first + size], numbers[:, first : first + size]
        step = exact.abs().amax(1, keepdim=True) / ((1 << bits - 1) - 1)
        assert ((exact - rounded).abs() <= 0.51 * step).all()


def test_rounding_to_floats_of_eight_bits_errs_by_a_sixteenth() -> None:
    weight = random(24, 96)
    numbers = rounded_fp8_matrix(weight).dense()
    torch.testing.assert_close(numbers, weight, rtol=1 / 16, atol=1e-4)
    assert torch.equal(numbers.abs().amax(1), weight.abs().amax(1))
