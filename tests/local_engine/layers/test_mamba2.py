import pytest
import torch
from torch import Tensor

from local_engine.layers.mamba2 import CHUNK, mamba2


def _inputs(length: int, batch: int = 1) -> tuple[Tensor, ...]:
    torch.manual_seed(length)
    log_decay = -torch.rand(batch, length, 3) * torch.tensor([0.01, 1.0, 30.0])
    return torch.randn(batch, length, 3, 6), log_decay, *torch.randn(2, batch, length, 3, 8)


def _token_by_token(inputs: tuple[Tensor, ...], state: Tensor) -> tuple[Tensor, Tensor]:
    x, log_decay, b, c = inputs
    outputs = []
    for at in range(x.shape[1]):
        state = log_decay[:, at, :, None, None].exp() * state + b[:, at, :, :, None] * x[:, at, :, None]
        outputs.append((c[:, at, :, :, None] * state).sum(2))
    return torch.stack(outputs, 1), state


@pytest.mark.parametrize("length", [1, 2, 5, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK - 5])
def test_a_prompt_of_any_length_is_the_recurrence_token_by_token(length: int) -> None:
    inputs, state = _inputs(length, batch=2), torch.randn(2, 3, 8, 6)
    for found, expected in zip(mamba2(*inputs, state=state), _token_by_token(inputs, state), strict=True):
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("length", [7, CHUNK + 3])
def test_cut_anywhere_it_gives_the_same(length: int) -> None:
    inputs, state = _inputs(length), torch.randn(1, 3, 8, 6)
    whole, last = mamba2(*inputs, state=state)
    for cut in range(1, length):
        first, between = mamba2(*(x[:, :cut] for x in inputs), state=state)
        second, end = mamba2(*(x[:, cut:] for x in inputs), state=between)
        torch.testing.assert_close(torch.cat((first, second), 1), whole, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(end, last, atol=1e-4, rtol=1e-4)


def test_a_decoding_row_depends_on_no_other_bit_by_bit() -> None:
    torch.manual_seed(0)
    inputs = torch.randn(17, 1, 4, 64), -torch.rand(17, 1, 4), *torch.randn(2, 17, 1, 4, 128)
    state = torch.randn(17, 4, 128, 64)
    together, states = mamba2(*inputs, state=state)
    for row in range(17):
        alone, after = mamba2(*(x[row : row + 1] for x in inputs), state=state[row : row + 1])
        assert torch.equal(alone[0], together[row])
        assert torch.equal(after[0], states[row])


def test_the_state_that_is_read_stays_as_it_was() -> None:
    for length in (1, 9):
        state = torch.randn(1, 3, 8, 6)
        before = state.clone()
        mamba2(*_inputs(length), state=state)
        assert torch.equal(state, before)
