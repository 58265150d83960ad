"""The sparse layer against a loop over tokens, and exactly the same for a token whatever else is in the batch."""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from local_engine.layers.experts import Expert, SparseExperts, choose_experts, clamped_swiglu
from local_engine.layers.linear import DenseLinear
from local_engine.layers.ops import best_ops
from local_engine.models.sparse_mlp import swiglu

HIDDEN, WIDTH, COUNT = 48, 40, 7


def matrix(rows: int, columns: int, seed: int) -> torch.Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed)) * float(columns**-0.5)


def layer(per_token: int, *, normalised: bool = True) -> SparseExperts:
    linear = best_ops(torch.device("cpu"), torch.float32).linear
    experts = [
        Expert(linear(matrix(2 * WIDTH, HIDDEN, seed), None), linear(matrix(HIDDEN, WIDTH, 100 + seed), None))
        for seed in range(COUNT)
    ]
    router = linear(matrix(COUNT, HIDDEN, 200), torch.linspace(-1, 1, COUNT))
    return SparseExperts(router, experts, swiglu, per_token=per_token, normalised=normalised)


def one_by_one(x: torch.Tensor, per_token: int, *, normalised: bool) -> torch.Tensor:
    """Every token by every expert; those that are not chosen count nothing."""
    shares = (x @ matrix(COUNT, HIDDEN, 200).T + torch.linspace(-1, 1, COUNT)).softmax(-1)
    least = shares.sort(-1, descending=True).values[:, per_token - 1 : per_token]
    shares = torch.where(shares >= least, shares, 0)
    if normalised:
        shares = shares / shares.sum(-1, keepdim=True)
    outputs = []
    for seed in range(COUNT):
        gate, up = (x @ matrix(2 * WIDTH, HIDDEN, seed).T).chunk(2, -1)
        outputs.append(F.silu(gate) * up @ matrix(HIDDEN, WIDTH, 100 + seed).T)
    return (torch.stack(outputs, 1) * shares[..., None]).sum(1)


@pytest.mark.parametrize("per_token", [1, 2, 5, COUNT])
@pytest.mark.parametrize("normalised", [False, True])
def test_it_is_the_weighted_sum_of_the_chosen_experts(per_token: int, normalised: bool) -> None:
    x = matrix(23, HIDDEN, 300) * 6
    ours = layer(per_token, normalised=normalised)(x)
    torch.testing.assert_close(ours, one_by_one(x, per_token, normalised=normalised), atol=2e-5, rtol=1e-4)


@pytest.mark.skipif(
    best_ops(torch.device("cpu"), torch.float32).linear is DenseLinear, reason="no oneDNN, whose products these are"
)
def test_a_token_comes_out_exactly_the_same_alone_and_in_any_company() -> None:
    experts = layer(3)
    x = matrix(97, HIDDEN, 301) * 6
    together = experts(x)
    for row in range(97):
        assert torch.equal(experts(x[row : row + 1]), together[row : row + 1])
    for start, stop in ((0, 2), (5, 22), (30, 94)):
        assert torch.equal(experts(x[start:stop]), together[start:stop])
    assert torch.equal(experts(x.flip(0)).flip(0), together)


def test_weights_are_shares_of_all_or_of_the_chosen() -> None:
    logits = torch.tensor([[1.0, 3.0, 2.0, -1.0]])
    experts, weights = choose_experts(logits, 2, normalised=False)
    assert experts.tolist() == [[1, 2]]
    torch.testing.assert_close(weights, logits.softmax(-1)[:, [1, 2]])
    torch.testing.assert_close(choose_experts(logits, 2, normalised=True)[1].sum(), torch.tensor(1.0))


def test_the_clamped_activation_bounds_gate_and_up() -> None:
    gate, up = torch.tensor([-20.0, 0.5, 20.0]), torch.tensor([20.0, -0.5, -20.0])
    expected = [(7 + 1) * -20 / (1 + torch.e ** (1.702 * 20)), 0.5 * 0.5 / (1 + torch.e ** (-1.702 * 0.5)), -6 * 7.0]
    expected[2] /= 1 + torch.e ** (-1.702 * 7)
    torch.testing.assert_close(clamped_swiglu(gate, up, alpha=1.702, limit=7.0), torch.tensor(expected))
