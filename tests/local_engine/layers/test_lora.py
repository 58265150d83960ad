"""The low-rank product: equal to B A x, a row's bits its own, and only the rows that asked are changed."""

import threading

import pytest
import torch
from torch import Tensor

from local_engine.layers.linear import DenseLinear
from local_engine.layers.lora import AdapterRows, LoraSites, LowRank, low_rank_product


def low_rank(inputs: int, rank: int, outputs: int, *, seed: int = 0) -> LowRank:
    random = torch.Generator().manual_seed(seed)
    return LowRank(torch.randn(rank, inputs, generator=random), torch.randn(outputs, rank, generator=random))


SHAPES = [(32, 1, 8), (32, 4, 32), (48, 12, 96), (576, 8, 576), (576, 48, 960), (1536, 16, 576)]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_row_alone_has_the_bits_that_it_has_among_any_neighbours(shape: tuple[int, int, int]) -> None:
    delta = low_rank(*shape)
    rows = torch.randn(67, shape[0], generator=torch.Generator().manual_seed(1))
    alone = torch.cat([low_rank_product(row[None], delta) for row in rows])
    for start, count in ((0, 67), (1, 2), (3, 7), (5, 8), (2, 9), (0, 16), (9, 31), (40, 27)):
        assert torch.equal(low_rank_product(rows[start : start + count], delta), alone[start : start + count])
    order = torch.randperm(67, generator=torch.Generator().manual_seed(2))
    assert torch.equal(low_rank_product(rows[order], delta), alone[order])


@pytest.mark.parametrize("shape", SHAPES)
def test_it_is_the_product_with_both_matrices(shape: tuple[int, int, int]) -> None:
    delta = low_rank(*shape)
    rows = torch.randn(11, shape[0])
    expected = rows.double() @ delta.down.double().T @ delta.up.double().T
    torch.testing.assert_close(low_rank_product(rows, delta).double(), expected, atol=1e-3, rtol=1e-4)


@pytest.fixture
def rows() -> Tensor:
    return torch.randn(6, 32, generator=torch.Generator().manual_seed(3))


def test_rows_of_several_adapters_and_of_none_share_one_call(rows: Tensor) -> None:
    sites = LoraSites()
    dense = DenseLinear(torch.randn(24, 32))
    layer = sites.adapt(dense, {"q": 16, "k": 8}, 32)
    first, second = low_rank(32, 4, 24, seed=4), low_rank(32, 2, 24, seed=5)
    step = (
        AdapterRows({"q": first}, torch.tensor([0, 4])),
        AdapterRows({"q": second}, torch.tensor([1, 3])),
        AdapterRows({"other": first}, torch.tensor([2])),
    )
    with sites.applied(step):
        mixed = layer(rows)
    expected = dense(rows)
    for index, delta in ((0, first), (4, first), (1, second), (3, second)):
        expected[index] += low_rank_product(rows[index : index + 1], delta)[0]
    assert torch.equal(mixed, expected)
    assert torch.equal(layer(rows), dense(rows))


def test_an_adapter_of_all_rows_gives_the_bits_of_one_whose_rows_are_listed(rows: Tensor) -> None:
    sites = LoraSites()
    layer = sites.adapt(DenseLinear(torch.randn(24, 32)), {"q": 24}, 32)
    deltas = {"q": low_rank(32, 4, 24)}
    outputs = []
    for listed in (None, torch.arange(6)):
        with sites.applied((AdapterRows(deltas, listed),)):
            outputs.append(layer(rows))
    assert torch.equal(*outputs)


def test_a_step_of_another_thread_is_left_alone(rows: Tensor) -> None:
    sites = LoraSites()
    layer = sites.adapt(DenseLinear(torch.randn(24, 32)), {"q": 24}, 32)
    plain = layer(rows)
    seen: list[Tensor] = []
    with sites.applied((AdapterRows({"q": low_rank(32, 4, 24)}, None),)):
        thread = threading.Thread(target=lambda: seen.append(layer(rows)))
        thread.start()
        thread.join()
        assert not torch.allclose(layer(rows), plain)
    torch.testing.assert_close(seen[0], plain)


def test_the_step_ends_with_an_error_as_well(rows: Tensor) -> None:
    sites = LoraSites()
    layer = sites.adapt(DenseLinear(torch.randn(24, 32)), {"q": 24}, 32)
    plain = layer(rows)
    with pytest.raises(ZeroDivisionError), sites.applied((AdapterRows({"q": low_rank(32, 4, 24)}, None),)):
        raise ZeroDivisionError
    assert torch.equal(layer(rows), plain)
