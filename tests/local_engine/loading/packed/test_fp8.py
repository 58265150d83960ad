"""Eight-bit floats with scales of every shape, against numbers multiplied one by one; and files that lie."""

from pathlib import Path
from typing import Any

import pytest
import torch

from local_engine.loading.packed.fp8 import Fp8Packing
from tests.local_engine.loading.packed.packed_files import (
    Parts,
    answers_as_its_plain_numbers,
    packed_model,
    plain,
    refused,
)

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2


def random(rows: int, columns: int) -> torch.Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(1))


def eight_bit(weight: torch.Tensor, cell: tuple[int, int], kind: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """The weight and its grid of scales, each cell scaled to the type's largest number; cell by cell."""
    rows, columns = weight.shape
    grid = torch.empty(-(-rows // cell[0]), -(-columns // cell[1]))
    packed = torch.empty(rows, columns, dtype=kind)
    for i in range(grid.shape[0]):
        for j in range(grid.shape[1]):
            at = slice(i * cell[0], (i + 1) * cell[0]), slice(j * cell[1], (j + 1) * cell[1])
            grid[i, j] = weight[at].abs().max() / torch.finfo(kind).max
            packed[at] = (weight[at] / grid[i, j]).to(kind)
    return packed, grid


def numbers(packed: torch.Tensor, grid: torch.Tensor, cell: tuple[int, int]) -> torch.Tensor:
    """The reference: every number times the scale of its cell, in float32."""
    spread = grid.float().repeat_interleave(cell[0], 0).repeat_interleave(cell[1], 1)
    return packed.float() * spread[: packed.shape[0], : packed.shape[1]]


@pytest.mark.parametrize("kind", [E4M3, E5M2])
@pytest.mark.parametrize(
    ("cell", "scale_shape", "ending", "block"),
    [
        ((40, 72), (), "weight_scale", None),
        ((40, 72), (1,), "weight_scale_inv", None),
        ((1, 72), (40, 1), "weight_scale", None),
        ((1, 72), (40,), "weight_scale", None),
        ((16, 32), (3, 3), "weight_scale_inv", (16, 32)),
        ((40, 24), (1, 3), "weight_scale", (64, 24)),
    ],
    ids=["scalar", "one", "rows", "row_vector", "blocks", "one_block_high"],
)
def test_numbers_are_those_of_the_format(
    kind: torch.dtype,
    cell: tuple[int, int],
    scale_shape: tuple[int, ...],
    ending: str,
    block: tuple[int, int] | None,
    tmp_path: Path,
) -> None:
    packed, grid = eight_bit(random(40, 72), cell, kind)
    tensors = {"a.weight": packed, f"a.{ending}": grid.reshape(scale_shape), "a.bias": torch.ones(40)}
    found = plain(tmp_path, tensors, Fp8Packing(block))
    assert set(found) == {"a.weight", "a.bias"}
    assert torch.equal(found["a.weight"], numbers(packed, grid, cell))


def test_a_matrix_of_several_pieces_and_a_coarse_scale_type_are_exact(tmp_path: Path) -> None:
    packed, grid = eight_bit(random(1030, 2052), (128, 128), E4M3)
    grid = grid.bfloat16()
    found = plain(tmp_path, {"a.weight": packed, "a.weight_scale_inv": grid}, Fp8Packing((128, 128)))
    assert torch.equal(found["a.weight"], numbers(packed, grid, (128, 128)))


def test_numbers_are_rounded_once_into_the_compute_type(tmp_path: Path) -> None:
    packed, grid = eight_bit(random(40, 72), (40, 72), E4M3)
    tensors = {"a.weight": packed, "a.weight_scale": grid.reshape(())}
    found = plain(tmp_path, tensors, Fp8Packing(), dtype=torch.bfloat16)
    assert torch.equal(found["a.weight"], numbers(packed, grid, (40, 72)).bfloat16())


def test_scales_of_activations_and_of_a_cache_are_left_out(tmp_path: Path) -> None:
    packed, grid = eight_bit(random(8, 8), (8, 8), E4M3)
    tensors = {"a.weight": packed, "a.weight_scale": grid.reshape(1)}
    tensors |= {"a.input_scale": torch.ones(1), "self_attn.k_scale": torch.ones(1)}
    assert set(plain(tmp_path, tensors, Fp8Packing())) == {"a.weight"}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"a.weight_scale": None}, "tensor 'a.weight_scale_inv' or 'a.weight_scale' is missing"),
        ({"a.weight_scale": torch.ones(3, 1)}, "tensor 'a.weight_scale' has shape [3, 1], expected one of"),
        ({"a.weight_scale": torch.ones(1, dtype=torch.int32)}, "tensor 'a.weight_scale' is of type I32"),
        ({"a.weight": torch.ones(8).to(E4M3)}, "tensor 'a.weight' has shape [8], expected a matrix"),
        ({"b.weight": torch.ones(8, dtype=torch.int8)}, "tensor 'b.weight' is of type I8, expected one of"),
    ],
)
def test_parts_that_do_not_fit_are_named(change: dict[str, Any], reason: str, tmp_path: Path) -> None:
    tensors = {"a.weight": random(8, 8).to(E4M3), "a.weight_scale": torch.ones(1)} | change
    given = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    assert refused(tmp_path, given, Fp8Packing()).startswith(reason)


def test_eight_bit_weights_without_a_quantization_config_are_refused(tmp_path: Path) -> None:
    reason = refused(tmp_path, {"a.weight": random(8, 8).to(E4M3)}, None)
    assert "is of type F8_E4M3" in reason
    assert "no quantization_config" in reason


GROUP = {"weights": {"num_bits": 8, "type": "float", "strategy": "channel"}, "targets": ["Linear"]}
BLOCKS = {"weights": {"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [32, 32]}}


@pytest.mark.parametrize(
    ("cell", "ending", "config"),
    [
        ((32, 32), "weight_scale_inv", {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [32, 32]}),
        ((1 << 20, 1 << 20), "weight_scale", {"quant_method": "fp8", "activation_scheme": "static"}),
        ((1, 1 << 20), "weight_scale", {"quant_method": "compressed-tensors", "config_groups": {"group_0": GROUP}}),
        ((32, 32), "weight_scale", {"quant_method": "compressed-tensors", "config_groups": {"group_0": BLOCKS}}),
    ],
    ids=["fp8_blocks", "fp8_tensor", "compressed_channels", "compressed_blocks"],
)
def test_a_whole_model_answers_as_its_plain_numbers(
    cell: tuple[int, int], ending: str, config: dict[str, Any], tmp_path: Path
) -> None:
    def pack(weight: torch.Tensor) -> Parts:
        packed, grid = eight_bit(weight, cell, E4M3)
        return {"weight": packed, ending: grid}, numbers(packed, grid, (min(cell[0], 1 << 10), min(cell[1], 1 << 10)))

    answers_as_its_plain_numbers(tmp_path, packed_model(tmp_path, pack, config))
