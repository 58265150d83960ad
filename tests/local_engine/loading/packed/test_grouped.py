"""GPTQ and AWQ, packed here integer by integer from the formats' definitions, against (integer - zero) * scale."""

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from local_engine.loading.packed.grouped import awq_packing, gptq_packing
from local_engine.loading.plain_source import Packing
from tests.local_engine.loading.packed.packed_files import (
    Parts,
    answers_as_its_plain_numbers,
    packed_model,
    plain,
    refused,
)

# Which of eight outputs each nibble of an AWQ word holds, from the lowest on.
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)


def integers(weight: torch.Tensor, groups: torch.Tensor, bits: int) -> tuple[np.ndarray, np.ndarray, torch.Tensor]:
    """weight [N, K] as integers [K, N], zeros [G, N] and scales [G, N] in float16; every group spans all its values."""
    most = (1 << bits) - 1
    count = int(groups.max()) + 1
    zeros, scales = np.zeros((count, len(weight)), np.int64), torch.zeros(count, len(weight), dtype=torch.float16)
    values = np.zeros((weight.shape[1], len(weight)), np.int64)
    for group in range(count):
        members = (groups == group).nonzero()[:, 0]
        part = weight[:, members]
        low, high = part.min(1).values.clamp(max=0), part.max(1).values.clamp(min=0)
        scales[group] = ((high - low) / most).half()
        zeros[group] = (-low / scales[group]).round().clamp(0, most).long().numpy()
        scaled = (part / scales[group][:, None]).round().long() + torch.from_numpy(zeros[group])[:, None]
        values[members.numpy()] = scaled.clamp(0, most).T.numpy()
    return values, zeros, scales


def numbers(values: np.ndarray, zeros: np.ndarray, scales: torch.Tensor, groups: torch.Tensor) -> torch.Tensor:
    """The reference, [N, K]: in float32."""
    return ((torch.from_numpy(values - zeros[groups.numpy()])).float() * scales.float()[groups]).T


def words(nibbles: np.ndarray, bits: int) -> torch.Tensor:
    """[R, 32 / bits] integers as [R] words, the first in the lowest bits."""
    total = np.zeros(len(nibbles), np.uint64)
    for place in range(32 // bits):
        total |= nibbles[:, place].astype(np.uint64) << np.uint64(place * bits)
    return torch.from_numpy(total.astype(np.uint32).view(np.int32).copy())


def gptq(
    weight: torch.Tensor, *, bits: int, group_size: int, act_order: bool = False, version: int = 1, listed: bool = True
) -> Parts:
    outputs, inputs = weight.shape
    groups = torch.arange(inputs) // group_size
    if act_order:
        groups = groups[torch.randperm(inputs, generator=torch.Generator().manual_seed(3))]
    values, zeros, scales = integers(weight, groups, bits)
    per_word = 32 // bits
    packed = words(values.reshape(-1, per_word, outputs).transpose(0, 2, 1).reshape(-1, per_word), bits)
    stored = words(zeros.reshape(-1, per_word), bits)
    if version == 1:  # the ones are subtracted from whole words
        ones = sum(1 << (place * bits) for place in range(per_word))
        stored = ((stored.long() - ones) & 0xFFFFFFFF).to(torch.uint32).view(torch.int32)
    parts = {
        "qweight": packed.reshape(-1, outputs),
        "qzeros": stored.reshape(len(zeros), -1),
        "scales": scales,
        "g_idx": groups.int(),
    }
    if not listed:
        del parts["g_idx"]
    return parts, numbers(values, zeros, scales, groups)


def awq(weight: torch.Tensor, *, group_size: int) -> Parts:
    groups = torch.arange(weight.shape[1]) // group_size
    values, zeros, scales = integers(weight, groups, 4)

    def packed(matrix: np.ndarray) -> torch.Tensor:
        eights = matrix.reshape(-1, 8)
        return words(eights[:, AWQ_ORDER], 4).reshape(len(matrix), -1)

    parts = {"qweight": packed(values), "qzeros": packed(zeros), "scales": scales}
    return parts, numbers(values, zeros, scales, groups)


def normal(outputs: int, inputs: int) -> torch.Tensor:
    return torch.randn(outputs, inputs, generator=torch.Generator().manual_seed(2))


def tensors_of(parts: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {f"a.{name}": tensor for name, tensor in parts.items()}


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("act_order", [False, True])
def test_gptq_stands_for_the_numbers_that_were_packed(bits: int, version: int, act_order: bool, tmp_path: Path) -> None:
    parts, expected = gptq(normal(48, 80), bits=bits, group_size=16, act_order=act_order, version=version)
    found = plain(tmp_path, tensors_of(parts), gptq_packing(bits, 16, zeros_less_one=version == 1))
    assert set(found) == {"a.weight"}
    assert torch.equal(found["a.weight"], expected)
    torch.testing.assert_close(found["a.weight"], normal(48, 80), atol=4 / (1 << bits), rtol=0)


@pytest.mark.parametrize("zero", [0, 1, 15])
def test_gptq_zeros_survive_the_borrow_of_the_ones(zero: int, tmp_path: Path) -> None:
    parts = {
        "qweight": torch.zeros(1, 8, dtype=torch.int32),
        "qzeros": words(np.full((1, 8), zero), 4).sub(0x11111111).reshape(1, 1),
        "scales": torch.ones(1, 8, dtype=torch.float16),
    }
    found = plain(tmp_path, tensors_of(parts), gptq_packing(4, None))
    assert torch.equal(found["a.weight"], torch.full((8, 8), -float(zero)))


@pytest.mark.parametrize(
    ("inputs", "group_size", "listed"), [(64, 32, False), (64, None, False), (64, 64, True), (72, 32, True)]
)
def test_gptq_groups_follow_the_inputs_where_the_file_lists_none(
    inputs: int, group_size: int | None, listed: bool, tmp_path: Path
) -> None:
    parts, expected = gptq(normal(16, inputs), bits=4, group_size=group_size or inputs, listed=listed)
    assert torch.equal(plain(tmp_path, tensors_of(parts), gptq_packing(4, group_size))["a.weight"], expected)


@pytest.mark.parametrize("group_size", [8, 80, None])
def test_awq_stands_for_the_numbers_that_were_packed(group_size: int | None, tmp_path: Path) -> None:
    parts, expected = awq(normal(48, 80), group_size=group_size or 80)
    found = plain(tmp_path, tensors_of(parts), awq_packing(group_size))
    assert set(found) == {"a.weight"}
    assert torch.equal(found["a.weight"], expected)
    torch.testing.assert_close(found["a.weight"], normal(48, 80), atol=0.3, rtol=0)


@pytest.mark.parametrize("kind", ["gptq", "awq"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_matrices_of_several_pieces_are_exact(kind: str, dtype: torch.dtype, tmp_path: Path) -> None:
    weight = normal(1032, 2048)
    packing: Packing
    if kind == "gptq":
        (parts, expected), packing = gptq(weight, bits=4, group_size=128, act_order=True), gptq_packing(4, 128)
    else:
        (parts, expected), packing = awq(weight, group_size=128), awq_packing(128)
    found = plain(tmp_path, tensors_of(parts), packing, dtype=dtype)
    assert torch.equal(found["a.weight"], expected.to(dtype))


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no zeros": ({"qzeros": None}, "tensor 'a.qzeros' is missing"),
    "no scales": ({"scales": None}, "tensor 'a.scales' is missing"),
    "misshapen scales": ({"scales": torch.ones(4, 9).half()}, "tensor 'a.scales' has shape [4, 9], expected [4, 16]"),
    "misshapen zeros": (
        {"qzeros": torch.ones(4, 3, dtype=torch.int32)},
        "tensor 'a.qzeros' has shape [4, 3], expected [4, 2]",
    ),
    "zeros of another type": ({"qzeros": torch.ones(4, 2)}, "tensor 'a.qzeros' is of type F32, expected I32"),
    "integers as floats": ({"qweight": torch.ones(8, 16)}, "tensor 'a.qweight' is F32 of shape [8, 16], expected"),
    "a plain weight too": ({"weight": torch.ones(16, 64)}, "tensor 'a.weight' is there twice"),
}


@pytest.mark.parametrize("name", BAD)
def test_parts_that_do_not_fit_are_named(name: str, tmp_path: Path) -> None:
    parts, _ = gptq(normal(16, 64), bits=4, group_size=16)
    change, reason = BAD[name]
    given = {part: tensor for part, tensor in (parts | change).items() if tensor is not None}
    assert refused(tmp_path, tensors_of(given), gptq_packing(4, 16)).startswith(reason)


@pytest.mark.parametrize("group", [-1, 4])
def test_a_group_that_is_not_there_is_named(group: int, tmp_path: Path) -> None:
    parts, _ = gptq(normal(16, 64), bits=4, group_size=16)
    parts["g_idx"][random.Random(0).randrange(64)] = group
    assert "tensor 'a.g_idx' names groups" in refused(tmp_path, tensors_of(parts), gptq_packing(4, 16))


GPTQ_CONFIG = {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": True, "sym": False}
AWQ_CONFIG = {"quant_method": "awq", "bits": 4, "group_size": 32, "version": "gemm", "zero_point": True}


@pytest.mark.parametrize("kind", ["gptq", "awq"])
def test_a_whole_model_answers_as_its_plain_numbers(kind: str, tmp_path: Path) -> None:
    def pack(weight: torch.Tensor) -> Parts:
        if kind == "gptq":
            return gptq(weight, bits=4, group_size=32, act_order=True)
        return awq(weight, group_size=32)

    oracle = packed_model(tmp_path, pack, GPTQ_CONFIG if kind == "gptq" else AWQ_CONFIG)
    answers_as_its_plain_numbers(tmp_path, oracle)
