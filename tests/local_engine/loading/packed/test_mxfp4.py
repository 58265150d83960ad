"""MXFP4 experts against the table of the specification, number by number; and files that lie."""

from pathlib import Path
from typing import Any

import pytest
import torch

from local_engine.loading.packed.mxfp4 import Mxfp4Packing
from local_engine.loading.plain_source import HfName
from tests.local_engine.loading.packed.packed_files import mxfp4, mxfp4_number, plain, refused


def experts(count: int, outputs: int, inputs: int) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """Random blocks and scales, and the numbers that they stand for: [count, outputs, inputs]."""
    rng = torch.Generator().manual_seed(4)
    codes = torch.randint(0, 16, (count, outputs, inputs), generator=rng)
    exponents = torch.randint(120, 135, (count, outputs, inputs // 32), generator=rng)
    numbers = torch.tensor(
        [
            mxfp4_number(code, exponent)
            for code, exponent in zip(
                codes.flatten().tolist(), exponents.repeat_interleave(32, -1).flatten().tolist(), strict=True
            )
        ]
    ).view(codes.shape)
    pairs = codes.view(count, outputs, inputs // 32, 16, 2)
    blocks = (pairs[..., 0] | pairs[..., 1] << 4).to(torch.uint8)
    return {"e_blocks": blocks, "e_scales": exponents.to(torch.uint8)}, numbers


def test_every_expert_and_every_second_row_comes_out_as_the_table_says(tmp_path: Path) -> None:
    parts, numbers = experts(3, 6, 64)
    names = {f"{e}.{kind}": HfName("e", e, i, 2) for e in range(3) for i, kind in enumerate(("gate", "up"))}
    found = plain(tmp_path, parts, Mxfp4Packing(), names=names)
    assert set(found) == set(names)
    for e in range(3):
        assert torch.equal(found[f"{e}.gate"], numbers[e, 0::2])
        assert torch.equal(found[f"{e}.up"], numbers[e, 1::2])


def test_weights_that_were_packed_come_out_as_the_nearest_numbers(tmp_path: Path) -> None:
    stack = torch.randn(2, 6, 96, generator=torch.Generator().manual_seed(5))
    parts, numbers = mxfp4(stack)
    tensors = {f"e{ending}": tensor for ending, tensor in parts.items()}
    found = plain(tmp_path, tensors, Mxfp4Packing(), names={str(e): HfName("e", e) for e in range(2)})
    for e in range(2):
        assert torch.equal(found[str(e)], numbers[e])
        assert float((found[str(e)] - stack[e]).abs().mean()) < 0.1


def test_plain_stacks_and_biases_are_cut_in_the_same_way(tmp_path: Path) -> None:
    stack, biases = torch.randn(3, 64, 6), torch.randn(3, 6)
    names = {
        f"{e}.{kind}": HfName(kind[2:], e, int(kind[0]), 2) for e in range(3) for kind in ("0.w", "1.w", "0.b", "1.b")
    }
    found = plain(tmp_path, {"w": stack, "b": biases}, Mxfp4Packing(), names=names)
    for e in range(3):
        for start in (0, 1):
            assert torch.equal(found[f"{e}.{start}.w"], stack[e].T[start::2])
            assert torch.equal(found[f"{e}.{start}.b"], biases[e][start::2])


def test_a_matrix_of_several_pieces_is_exact(tmp_path: Path) -> None:
    parts, numbers = experts(1, 40, 32)
    wide = {name: tensor.repeat(1, 30, 33, *[1] * (tensor.ndim - 3)) for name, tensor in parts.items()}
    found = plain(tmp_path, wide, Mxfp4Packing(), names={"m": HfName("e", 0)})
    assert torch.equal(found["m"], numbers[0].repeat(30, 33))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"e_scales": None}, "tensor 'e_scales' is missing"),
        ({"e_scales": torch.ones(2, 6, 3, dtype=torch.uint8)}, "tensor 'e_scales' is U8 of shape [2, 6, 3], expected"),
        ({"e_blocks": torch.ones(2, 6, 2, 8, dtype=torch.uint8)}, "tensor 'e_blocks' is U8 of shape [2, 6, 2, 8]"),
        ({"e_blocks": torch.ones(2, 6, 2, 16)}, "tensor 'e_blocks' is F32"),
        ({"e_blocks": None}, "tensor 'e_scales' is of type U8"),
    ],
)
def test_parts_that_do_not_fit_are_named(change: dict[str, Any], reason: str, tmp_path: Path) -> None:
    parts, _ = experts(2, 6, 64)
    given = {name: tensor for name, tensor in (parts | change).items() if tensor is not None}
    names = {str(e): HfName("e", e) for e in range(2)}
    assert refused(tmp_path, given, Mxfp4Packing(), names=names).startswith(reason)


def test_experts_that_the_model_would_leave_out_are_named(tmp_path: Path) -> None:
    parts, _ = experts(3, 6, 64)
    names = {str(e): HfName("e", e) for e in range(2)}
    assert "'e_blocks' has shape [3, 6, 2, 16], more than" in refused(tmp_path, parts, Mxfp4Packing(), names=names)
