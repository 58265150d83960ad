"""LoRA over mixed adapters against the reference layer."""

import pytest
import torch
from torch import Tensor

from local_engine.kernels.triton.lora import LoraStack, add_lora, add_lora_twin, new_lora_stack, put_adapter
from local_engine.kernels.triton.row_groups import group_rows, group_rows_twin
from local_engine.layers.linear import DenseLinear
from local_engine.layers.lora import AdapterRows, LoraSites, LowRank

_TOLERANCE = {torch.float32: 2e-5, torch.float16: 8e-3}
_CPU = torch.device("cpu")


def _random(*shape: int, seed: int, dtype: torch.dtype) -> Tensor:
    numbers = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
    return numbers.mul_(shape[-1] ** -0.5).to(dtype)


def _deltas(ranks: tuple[int, ...], inputs: int, outputs: int, dtype: torch.dtype) -> list[LowRank]:
    return [
        LowRank(_random(rank, inputs, seed=10 + slot, dtype=dtype), _random(outputs, rank, seed=20 + slot, dtype=dtype))
        for slot, rank in enumerate(ranks)
    ]


def _stack(deltas: list[LowRank], dtype: torch.dtype) -> LoraStack:
    rank = max(len(delta.down) for delta in deltas)
    inputs, outputs = deltas[0].down.shape[1], len(deltas[0].up)
    stack = new_lora_stack(len(deltas), rank, inputs, outputs, dtype=dtype, device=_CPU)
    for slot, delta in enumerate(deltas):
        put_adapter(stack, slot, delta)
    return stack


@pytest.mark.parametrize("dtype", _TOLERANCE)
@pytest.mark.parametrize(
    ("adapter_of", "ranks", "inputs", "outputs"),
    [
        ([0, -1, 2, 1, 0, -1, 0], (4, 16, 7), 64, 72),
        ([-1, -1], (8,), 40, 24),
        ([1] * 35 + [0, -1] * 9, (3, 33), 1100, 130),
        ([1], (1, 1, 1), 20, 1),
        ([], (4,), 16, 16),
    ],
)
def test_rows_of_several_adapters_and_of_none_get_what_the_reference_adds(
    adapter_of: list[int], ranks: tuple[int, ...], inputs: int, outputs: int, dtype: torch.dtype
) -> None:
    deltas = _deltas(ranks, inputs, outputs, dtype)
    x = _random(len(adapter_of), inputs, seed=1, dtype=dtype) * 9
    dense = DenseLinear(_random(outputs, inputs, seed=2, dtype=dtype))
    sites = LoraSites()
    layer = sites.adapt(dense, {"q": outputs}, inputs)
    step = tuple(
        AdapterRows({"q": delta}, torch.tensor([row for row, own in enumerate(adapter_of) if own == slot]).long())
        for slot, delta in enumerate(deltas)
        if slot in adapter_of
    )
    with sites.applied(step):
        expected = layer(x)

    y = dense(x)
    untouched, of_twin = y.clone(), y.clone()
    owners = torch.tensor(adapter_of, dtype=torch.int32)
    add_lora(y, x, _stack(deltas, dtype), group_rows(owners, len(ranks), block_size=16))
    add_lora_twin(of_twin, x, _stack(deltas, dtype), group_rows_twin(owners, len(ranks), block_size=16))

    torch.testing.assert_close(y, expected, rtol=_TOLERANCE[dtype], atol=_TOLERANCE[dtype])
    torch.testing.assert_close(of_twin, expected, rtol=_TOLERANCE[dtype], atol=_TOLERANCE[dtype])
    for row, slot in enumerate(adapter_of):
        assert torch.equal(y[row], untouched[row]) == (slot == -1)


def test_many_rows_are_read_in_one_range() -> None:
    deltas = _deltas((8, 8), 1024, 48, torch.float32)
    x = _random(300, 1024, seed=1, dtype=torch.float32)
    slots = torch.arange(300, dtype=torch.int32) % 3 - 1
    y = torch.zeros(300, 48)
    add_lora(y, x, _stack(deltas, torch.float32), group_rows(slots, 2, block_size=64))
    for slot, delta in enumerate(deltas):
        torch.testing.assert_close(y[slots == slot], x[slots == slot] @ delta.down.T @ delta.up.T)
    assert not y[slots == -1].any()


def test_a_row_alone_has_the_bits_that_it_has_among_others_where_ranges_are_fixed() -> None:
    stack = _stack(_deltas((8, 4), 600, 40, torch.float16), torch.float16)
    x = _random(30, 600, seed=1, dtype=torch.float16) * 9
    slots = torch.arange(30, dtype=torch.int32) % 2
    together, alone = torch.zeros(30, 40).half(), torch.zeros(1, 40).half()
    add_lora(together, x, stack, group_rows(slots, 2, block_size=16), splits=3)
    add_lora(alone, x[17:18], stack, group_rows(slots[17:18], 2, block_size=16), splits=3)
    assert torch.equal(alone, together[17:18])


def test_an_emptied_slot_adds_nothing_and_a_smaller_adapter_leaves_nothing_of_a_larger() -> None:
    large, small = _deltas((16, 2), 32, 24, torch.float32)
    stack = _stack([large], torch.float32)
    x = _random(2, 32, seed=1, dtype=torch.float32)
    groups = group_rows(torch.zeros(2, dtype=torch.int32), 1, block_size=16)
    put_adapter(stack, 0, small)
    y = torch.zeros(2, 24)
    add_lora(y, x, stack, groups)
    torch.testing.assert_close(y, x @ small.down.T @ small.up.T)
    put_adapter(stack, 0, None)
    y = torch.zeros(2, 24)
    add_lora(y, x, stack, groups)
    assert not y.any()


def test_wrong_shapes_are_refused_by_name() -> None:
    stack = _stack(_deltas((4,), 32, 24, torch.float32), torch.float32)
    groups = group_rows(torch.zeros(2, dtype=torch.int32), 1, block_size=16)
    with pytest.raises(ValueError, match="y: expected the shape"):
        add_lora(torch.zeros(2, 25), torch.zeros(2, 32), stack, groups)
    with pytest.raises(ValueError, match=r"stack\.down: expected torch\.float16"):
        add_lora(torch.zeros(2, 24).half(), torch.zeros(2, 32).half(), stack, groups)
    with pytest.raises(ValueError, match="groups: expected those of 3 rows"):
        add_lora(torch.zeros(3, 24), torch.zeros(3, 32), stack, groups)
    with pytest.raises(ValueError, match="delta: expected what fits"):
        put_adapter(stack, 0, LowRank(torch.zeros(4, 33), torch.zeros(24, 4)))
    with pytest.raises(ValueError, match="rank: expected 1 to 256"):
        new_lora_stack(1, 257, 8, 8, dtype=torch.float32, device=_CPU)
