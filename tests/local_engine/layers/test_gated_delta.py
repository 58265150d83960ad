import pytest
import torch
from torch import Tensor
from transformers.models.qwen3_next.modeling_qwen3_next import torch_recurrent_gated_delta_rule

from local_engine.layers.gated_delta import CHUNK, gated_delta


def _inputs(length: int, batch: int = 1, heads: int = 3) -> tuple[Tensor, ...]:
    torch.manual_seed(length)
    q, k = torch.nn.functional.normalize(torch.randn(2, batch, length, heads, 8), dim=-1)
    log_decay = -torch.rand(batch, length, heads) * torch.tensor([0.01, 1.0, 30.0])[:heads]
    return q, k, torch.randn(batch, length, heads, 6), log_decay, torch.rand(batch, length, heads)


def _rule(inputs: tuple[Tensor, ...], state: Tensor) -> tuple[Tensor, Tensor]:
    """transformers', token by token; it scales queries itself."""
    q, k, v, log_decay, strength = inputs
    output, last = torch_recurrent_gated_delta_rule(
        q * 8**0.5, k, v, log_decay, strength, initial_state=state, output_final_state=True
    )
    return output, last


@pytest.mark.parametrize("length", [1, 2, 5, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK - 5])
def test_a_prompt_of_any_length_is_the_rule_applied_token_by_token(length: int) -> None:
    inputs, state = _inputs(length, batch=2), torch.randn(2, 3, 8, 6)
    for found, expected in zip(gated_delta(*inputs, state=state), _rule(inputs, state), strict=True):
        torch.testing.assert_close(found, expected, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("length", [7, CHUNK + 3])
def test_cut_anywhere_it_gives_the_same(length: int) -> None:
    inputs, state = _inputs(length), torch.randn(1, 3, 8, 6)
    whole, last = gated_delta(*inputs, state=state)
    for cut in range(1, length):
        first, between = gated_delta(*(x[:, :cut] for x in inputs), state=state)
        second, end = gated_delta(*(x[:, cut:] for x in inputs), state=between)
        torch.testing.assert_close(torch.cat((first, second), 1), whole, atol=2e-5, rtol=1e-4)
        torch.testing.assert_close(end, last, atol=2e-5, rtol=1e-4)


def test_a_decoding_row_depends_on_no_other_bit_by_bit() -> None:
    torch.manual_seed(0)
    q, k = torch.nn.functional.normalize(torch.randn(2, 17, 1, 4, 128), dim=-1)
    inputs = q, k, torch.randn(17, 1, 4, 128), -torch.rand(17, 1, 4), torch.rand(17, 1, 4)
    state = torch.randn(17, 4, 128, 128)
    together, states = gated_delta(*inputs, state=state)
    for row in range(17):
        alone, after = gated_delta(*(x[row : row + 1] for x in inputs), state=state[row : row + 1])
        assert torch.equal(alone[0], together[row])
        assert torch.equal(after[0], states[row])


def test_the_state_that_is_read_stays_as_it_was() -> None:
    for length in (1, 9):
        state = torch.randn(1, 3, 8, 6)
        before = state.clone()
        gated_delta(*_inputs(length), state=state)
        assert torch.equal(state, before)
