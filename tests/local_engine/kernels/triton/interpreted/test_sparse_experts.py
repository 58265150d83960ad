"""Routing, grouping and the layer of experts against the reference."""

from functools import partial

import pytest
import torch
from torch import Tensor

from local_engine.kernels.triton.combine_experts import combine_experts
from local_engine.kernels.triton.grouped_matmul import grouped_matmul, grouped_matmul_twin
from local_engine.kernels.triton.route_experts import route_experts
from local_engine.kernels.triton.row_groups import block_rows, group_rows, group_rows_twin
from local_engine.kernels.triton.sparse_experts import StackedExperts, sparse_experts
from local_engine.layers.experts import Expert, SparseExperts, choose_experts, clamped_swiglu
from local_engine.layers.linear import DenseLinear
from local_engine.models.sparse_mlp import swiglu

# The interpreter's sigmoid is numpy's 1 / (1 + exp(-x)): the infinity of large gates becomes the 0 that is meant.
pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered in exp:RuntimeWarning")

_TOLERANCE = {torch.float32: 1e-5, torch.float16: 4e-3}


def _random(*shape: int, seed: int, dtype: torch.dtype = torch.float32) -> Tensor:
    numbers = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
    return numbers.mul_(shape[-1] ** -0.5).to(dtype)


@pytest.mark.parametrize(
    ("num_tokens", "num_experts", "per_token", "dtype"),
    [(1, 8, 2, torch.float32), (270, 128, 8, torch.float16), (5, 7, 7, torch.float16), (0, 4, 1, torch.float32)],
)
@pytest.mark.parametrize("normalised", [False, True])
def test_each_token_goes_to_its_likeliest_experts_with_the_shares_of_the_reference(
    num_tokens: int, num_experts: int, per_token: int, dtype: torch.dtype, normalised: bool
) -> None:
    # No two logits of a token are equal: which of equal ones torch takes is not said.
    order = torch.rand(num_tokens, num_experts, generator=torch.Generator().manual_seed(8)).argsort(-1)
    logits = (order / 8 - 3).to(dtype)
    experts, weights = route_experts(logits, per_token, normalised=normalised)
    expected_experts, expected_weights = choose_experts(logits, per_token, normalised=normalised)
    assert torch.equal(experts.long(), expected_experts)
    torch.testing.assert_close(weights, expected_weights, rtol=1e-5, atol=1e-7)


def test_of_equal_logits_the_first_experts_are_taken() -> None:
    experts, weights = route_experts(torch.zeros(2, 5), 3, normalised=True)
    assert experts.tolist() == [[0, 1, 2]] * 2
    torch.testing.assert_close(weights, torch.full((2, 3), 1 / 3))


@pytest.mark.parametrize(("num_rows", "num_owners", "block_size"), [(37, 5, 4), (1, 9, 16), (2100, 3, 64), (0, 3, 16)])
@pytest.mark.parametrize("lowest", [-1, 0])
def test_groups_are_whole_blocks_in_the_order_of_owners_and_rows(
    num_rows: int, num_owners: int, block_size: int, lowest: int
) -> None:
    owner_of = torch.randint(lowest, num_owners, (num_rows,), generator=torch.Generator().manual_seed(2)).int()
    owner_of[owner_of == 1] = 0  # somebody has no rows
    groups = group_rows(owner_of, num_owners, block_size=block_size)
    expected = group_rows_twin(owner_of, num_owners, block_size=block_size)
    needed = len(expected.owners)
    assert torch.equal(groups.owners[:needed], expected.owners)
    assert torch.equal(groups.rows[: needed * block_size], expected.rows)
    assert (groups.owners[needed:] == -1).all()


def test_there_are_blocks_enough_for_the_worst_choice() -> None:
    for counts in ([1] * 6, [5, 5, 5], [4, 4, 1], [17]):
        owner_of = torch.cat([torch.full((count,), owner) for owner, count in enumerate(counts)]).int()
        groups = group_rows(owner_of, 6, block_size=4)
        assert len(groups.owners) >= len(group_rows_twin(owner_of, 6, block_size=4).owners)


def test_blocks_are_as_large_as_owners_have_rows() -> None:
    assert [block_rows(rows, 8) for rows in (1, 128, 200, 5000)] == [16, 16, 32, 64]


@pytest.mark.parametrize("dtype", _TOLERANCE)
@pytest.mark.parametrize(("tokens", "share", "outputs", "inputs"), [(9, 2, 72, 80), (40, 1, 130, 33), (1, 4, 16, 200)])
@pytest.mark.parametrize("has_bias", [False, True])
def test_each_row_meets_the_matrix_of_its_owner(
    tokens: int, share: int, outputs: int, inputs: int, dtype: torch.dtype, has_bias: bool
) -> None:
    x, weights = _random(tokens, inputs, seed=1, dtype=dtype) * 3, _random(4, outputs, inputs, seed=2, dtype=dtype)
    biases = _random(4, outputs, seed=3, dtype=dtype) if has_bias else None
    owner_of = torch.randint(0, 4, (tokens, share), generator=torch.Generator().manual_seed(4)).int()
    groups = group_rows(owner_of, 4, block_size=32 if tokens > 30 else 16)
    out = grouped_matmul(x, weights, groups, biases=biases)
    expected = grouped_matmul_twin(x, weights, groups, biases=biases)
    torch.testing.assert_close(out, expected, rtol=_TOLERANCE[dtype], atol=_TOLERANCE[dtype])


def _layer(experts: StackedExperts, router: Tensor, *, per_token: int, normalised: bool) -> SparseExperts:
    """The reference with the same matrices."""
    count = len(experts.gate_up)
    biases = [(None, None)] * count
    if experts.gate_up_bias is not None and experts.down_bias is not None:
        biases = list(zip(experts.gate_up_bias, experts.down_bias, strict=True))
    activation = swiglu
    if experts.activation == "clamped_swiglu":
        activation = partial(clamped_swiglu, alpha=experts.alpha, limit=experts.limit)
    return SparseExperts(
        DenseLinear(router),
        [
            Expert(DenseLinear(experts.gate_up[index], gate_bias), DenseLinear(experts.down[index], down_bias))
            for index, (gate_bias, down_bias) in enumerate(biases)
        ],
        activation,
        per_token=per_token,
        normalised=normalised,
    )


@pytest.mark.parametrize("dtype", _TOLERANCE)
@pytest.mark.parametrize("num_tokens", [0, 1, 7])
@pytest.mark.parametrize("family", ["mixtral", "qwen3_moe", "gpt_oss"])
def test_the_layer_is_that_of_the_reference(family: str, num_tokens: int, dtype: torch.dtype) -> None:
    count, hidden, width = 6, 48, 40
    experts = StackedExperts(
        _random(count, 2 * width, hidden, seed=1, dtype=dtype), _random(count, hidden, width, seed=2, dtype=dtype)
    )
    if family == "gpt_oss":
        experts = StackedExperts(
            experts.gate_up,
            experts.down,
            activation="clamped_swiglu",
            gate_up_bias=_random(count, 2 * width, seed=3, dtype=dtype),
            down_bias=_random(count, hidden, seed=4, dtype=dtype),
            limit=0.8,
        )
    router = _random(count, hidden, seed=5, dtype=dtype)
    x = _random(num_tokens, hidden, seed=6, dtype=dtype) * 12
    per_token, normalised = 2 if family == "mixtral" else 4, family != "qwen3_moe"
    expected = _layer(experts, router, per_token=per_token, normalised=normalised)(x)
    out = sparse_experts(x, DenseLinear(router)(x), experts, per_token=per_token, normalised=normalised)
    torch.testing.assert_close(out, expected, rtol=_TOLERANCE[dtype], atol=2 * _TOLERANCE[dtype])


def test_a_token_alone_has_the_bits_that_it_has_among_others_where_blocks_are_fixed() -> None:
    experts = StackedExperts(
        _random(4, 48, 32, seed=1, dtype=torch.float16), _random(4, 32, 24, seed=2, dtype=torch.float16)
    )
    x = _random(40, 32, seed=3, dtype=torch.float16) * 9
    logits = _random(40, 4, seed=4)
    together = sparse_experts(x, logits, experts, per_token=2, normalised=True, block_size=16)
    for row in (0, 21):
        alone = slice(row, row + 1)
        out = sparse_experts(x[alone], logits[alone], experts, per_token=2, normalised=True, block_size=16)
        assert torch.equal(out, together[alone])


def test_wrong_shapes_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="logits: expected"):
        route_experts(torch.zeros(3, 4), 5, normalised=True)
    with pytest.raises(ValueError, match=r"owner_of: expected torch\.int32"):
        group_rows(torch.zeros(3).long(), 2, block_size=16)
    with pytest.raises(ValueError, match="blocks of a power of two"):
        group_rows(torch.zeros(3).int(), 2, block_size=12)
    groups = group_rows(torch.zeros(3).int(), 2, block_size=16)
    with pytest.raises(ValueError, match="x, weights: expected"):
        grouped_matmul(torch.zeros(3, 8), torch.zeros(2, 4, 9), groups)
    with pytest.raises(ValueError, match="groups: expected a multiple"):
        grouped_matmul(torch.zeros(2, 8), torch.zeros(2, 4, 8), groups)
    with pytest.raises(ValueError, match="biases: expected the shape"):
        grouped_matmul(torch.zeros(3, 8), torch.zeros(2, 4, 8), groups, biases=torch.zeros(4))
    with pytest.raises(ValueError, match="parts: expected the shape"):
        combine_experts(torch.zeros(3, 8), torch.zeros(2, 2))
