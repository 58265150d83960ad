"""Sampling over given logits: cuts, penalties, masks, reported log-probabilities, and independence of the batch."""

import math
from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from local_engine.errors import GenerationFailed
from local_engine.generation import GenerationRequest, TokenOutput
from local_engine.sampler import LOGPROB_FLOOR, sample, score
from local_engine.sampling import SamplingParams
from local_engine.sequence import Sequence

LOGITS = torch.tensor([2.0, 1.0, 0.5, 0.0, -1.0, -3.0])
STOP = 5


def sequence(*, prompt: tuple[int, ...] = (0,), answer: tuple[int, ...] = (), **values: Any) -> Sequence:
    sampling = SamplingParams(**values)
    made = Sequence(GenerationRequest("r", prompt, sampling), 0, sampling.seed or 0, frozenset({STOP}), 1000)
    for token_id in answer:
        made.append(token_id)
    return made


def draws(count: int = 4000, *, logits: torch.Tensor = LOGITS, **values: Any) -> Counter[int]:
    """Tokens that `count` seeds draw from the same logits, all in one batch."""
    rows = [sequence(seed=seed, **values) for seed in range(count)]
    return Counter(token.token_id for token in tokens(logits.repeat(count, 1), rows))


def tokens(logits: torch.Tensor, rows: list[Sequence]) -> list[TokenOutput]:
    outputs = []
    for output in sample(logits, rows):
        assert isinstance(output, TokenOutput), output
        outputs.append(output)
    return outputs


def test_draws_follow_the_softmax_at_the_asked_temperature() -> None:
    for temperature in (0.5, 1.0, 2.0):
        counts = draws(temperature=temperature)
        expected = torch.softmax(LOGITS / temperature, -1)
        for token_id, probability in enumerate(expected.tolist()):
            assert counts[token_id] / 4000 == pytest.approx(probability, abs=0.03)


def test_temperature_zero_takes_the_likeliest_and_a_tiny_one_does_too() -> None:
    assert set(draws(50, temperature=0.0)) == {0}
    assert set(draws(50, temperature=2e-5)) == {0}


def test_top_k_keeps_the_k_likeliest() -> None:
    assert set(draws(top_k=3, temperature=3.0)) == {0, 1, 2}
    assert set(draws(50, top_k=1, temperature=3.0)) == {0}
    assert set(draws(top_k=6, temperature=3.0)) == set(range(6))


def test_top_p_keeps_the_smallest_set_that_reaches_the_mass() -> None:
    first, second = torch.softmax(LOGITS, -1)[:2].tolist()
    assert set(draws(top_p=first - 0.01)) == {0}
    assert set(draws(top_p=first + 0.01)) == {0, 1}
    assert set(draws(top_p=first + second + 0.01)) == {0, 1, 2}
    assert set(draws(50, top_p=1e-9)) == {0}


def test_top_p_is_of_what_top_k_left() -> None:
    first = float(torch.softmax(LOGITS[:2], -1)[0])
    assert set(draws(top_k=2, top_p=first - 0.01)) == {0}
    assert set(draws(top_k=2, top_p=first + 0.01)) == {0, 1}


def test_top_p_reaches_past_the_tokens_that_are_looked_at_first() -> None:
    logits = torch.zeros(1, 5000)
    rows = [sequence(seed=seed, top_p=0.9) for seed in range(300)]
    drawn = {token.token_id for token in tokens(logits.repeat(300, 1), rows)}
    assert len(drawn) > 250  # equal logits: ties at the cut are kept
    sloped = torch.linspace(0, -1, 5000)[None]
    mass = torch.softmax(sloped[0], -1).cumsum(-1)
    last = int((mass < 0.9).sum())
    drawn = {
        token.token_id for token in tokens(sloped.repeat(3000, 1), [sequence(seed=s, top_p=0.9) for s in range(3000)])
    }
    assert last > 1024
    assert 1024 < max(drawn) <= last


def test_min_p_keeps_what_is_likely_relative_to_the_best() -> None:
    assert set(draws(min_p=math.exp(-1.0) - 0.01)) == {0, 1}
    assert set(draws(50, min_p=1.0)) == {0}


def test_a_bias_moves_the_choice_and_a_mask_excludes() -> None:
    (token,) = tokens(LOGITS[None].clone(), [sequence(temperature=0.0, logit_bias={3: 5.0})])
    assert token.token_id == 3
    (token,) = tokens(LOGITS[None].clone(), [sequence(temperature=0.0, bad_token_ids=(0, 1))])
    assert token.token_id == 2
    assert set(draws(allowed_token_ids=(1, 4))) == {1, 4}


def test_repetition_penalty_weakens_what_prompt_or_answer_hold() -> None:
    rows = [sequence(prompt=(0,), answer=(1,), temperature=0.0, repetition_penalty=10.0)]
    (token,) = tokens(LOGITS[None].clone(), rows)
    assert token.token_id == 2
    negative = torch.tensor([[-1.0, -1.5]])
    (token,) = tokens(negative, [sequence(prompt=(0,), temperature=0.0, repetition_penalty=2.0)])
    assert token.token_id == 1  # -1 became -2


def test_presence_and_frequency_penalties_count_the_answer_alone() -> None:
    def choice(**values: Any) -> int:
        (token,) = tokens(LOGITS[None].clone(), [sequence(prompt=(0, 0, 0), temperature=0.0, **values)])
        return token.token_id

    assert choice(presence_penalty=1.2) == 0
    assert choice(presence_penalty=1.2, answer=(0,)) == 1
    assert choice(frequency_penalty=0.6, answer=(0,)) == 0
    assert choice(frequency_penalty=0.6, answer=(0, 0)) == 1


def test_stop_tokens_cannot_come_before_min_tokens() -> None:
    logits = torch.tensor([[0.0, 1.0, 0.0, 0.0, 0.0, 9.0]])
    (early, late) = tokens(
        logits.repeat(2, 1),
        [sequence(temperature=0.0, min_tokens=2, answer=(1,)), sequence(temperature=0.0, min_tokens=2, answer=(1, 1))],
    )
    assert (early.token_id, late.token_id) == (1, STOP)


def test_logprobs_are_of_the_unmasked_untempered_distribution() -> None:
    expected = torch.log_softmax(LOGITS, -1).tolist()
    rows = [
        sequence(seed=1, temperature=0.3, top_p=0.1, bad_token_ids=(0,), logit_bias={1: 50.0}, logprobs=3),
        sequence(temperature=0.0, logprobs=0),
        sequence(temperature=0.0),
    ]
    three, none, off = tokens(LOGITS.repeat(3, 1), rows)
    assert three.token_id == 1
    assert three.logprob == pytest.approx(expected[1])
    assert [token_id for token_id, _ in three.top] == [0, 1, 2]
    assert [value for _, value in three.top] == pytest.approx(expected[:3])
    assert none.logprob == pytest.approx(expected[0])
    assert none.top == ()
    assert off.logprob is None


def test_a_probability_of_zero_is_reported_as_a_finite_number() -> None:
    logits = torch.tensor([[9.0, -torch.inf, -torch.inf]])
    (token,) = tokens(logits, [sequence(temperature=0.0, logprobs=3)])
    assert token.top == ((0, 0.0), (1, LOGPROB_FLOOR), (2, LOGPROB_FLOOR))


def test_scoring_reports_given_tokens() -> None:
    expected = torch.log_softmax(LOGITS, -1).tolist()
    first, second = score(LOGITS.repeat(2, 1), [4, 0], 1)
    assert first.logprob == pytest.approx(expected[4])
    assert second.logprob == pytest.approx(expected[0])
    assert first.top == second.top
    assert first.top[0][0] == 0


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_row_that_is_not_numbers_fails_alone(bad: float, temperature: float) -> None:
    logits = LOGITS.repeat(3, 1)
    logits[1, 2] = bad
    rows = [sequence(seed=3, temperature=temperature, logprobs=2, top_p=0.9) for _ in range(3)]
    first, failed, third = sample(logits, rows)
    (alone,) = sample(LOGITS[None].clone(), rows[:1])
    assert isinstance(failed, GenerationFailed)
    assert first == third == alone


def test_a_row_whose_masks_leave_nothing_fails_alone() -> None:
    closed = sequence(seed=1, allowed_token_ids=(STOP,), min_tokens=1)
    free = sequence(seed=1, temperature=1.0, logprobs=1)
    failed, drawn = sample(LOGITS.repeat(2, 1), [closed, free])
    assert isinstance(failed, GenerationFailed)
    assert drawn == sample(LOGITS[None].clone(), [free])[0]


PARAMS = st.fixed_dictionaries(
    {
        "temperature": st.sampled_from([0.0, 0.7, 1.0, 1.8]),
        "top_k": st.sampled_from([0, 1, 3, 40]),
        "top_p": st.sampled_from([1.0, 0.9, 0.3]),
        "min_p": st.sampled_from([0.0, 0.05]),
        "seed": st.integers(-(2**63), 2**63 - 1),
        "logprobs": st.sampled_from([None, 0, 2]),
        "presence_penalty": st.sampled_from([0.0, 1.5]),
        "repetition_penalty": st.sampled_from([1.0, 1.3]),
        "bad_token_ids": st.sampled_from([(), (1, 4)]),
    }
)


@settings(max_examples=60, deadline=None)
@given(st.lists(PARAMS, min_size=1, max_size=6), st.integers(0, 2**31))
def test_a_row_draws_the_same_alone_and_among_any_neighbours(params: list[dict[str, Any]], seed: int) -> None:
    logits = 3 * torch.randn(len(params), 64, generator=torch.Generator().manual_seed(seed))
    rows = [sequence(prompt=(2, 3), answer=(1, 9), **values) for values in params]
    together = sample(logits.clone(), rows)
    for index, row in enumerate(rows):
        (alone,) = sample(logits[index : index + 1].clone(), [row])
        assert alone == together[index]
