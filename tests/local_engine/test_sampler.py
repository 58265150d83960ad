"""Sampling over given logits: cuts, penalties, masks, reported log-probabilities, and independence of the batch."""

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.generation.logits_process import TypicalLogitsWarper

from local_engine.errors import GenerationFailed
from local_engine.generation import GenerationRequest, TokenOutput
from local_engine.logprobs import LOGPROB_FLOOR, score
from local_engine.sampler import SamplerRow, candidates, sample
from local_engine.sampling import Dry, SamplingParams
from local_engine.sequence import Sequence

LOGITS = torch.tensor([2.0, 1.0, 0.5, 0.0, -1.0, -3.0])
STOP = 5


def sequence(*, prompt: tuple[int, ...] = (0,), answer: tuple[int, ...] = (), **values: Any) -> SamplerRow:
    sampling = SamplingParams(**values)
    made = Sequence(GenerationRequest("r", prompt, sampling), 0, sampling.seed or 0, frozenset({STOP}), 1000)
    for token_id in answer:
        made.append(token_id)
    return SamplerRow(made)


def draws(count: int = 4000, *, logits: torch.Tensor = LOGITS, **values: Any) -> Counter[int]:
    """Tokens that `count` seeds draw from the same logits, all in one batch."""
    rows = [sequence(seed=seed, **values) for seed in range(count)]
    return Counter(token.token_id for token in tokens(logits.repeat(count, 1), rows))


def tokens(logits: torch.Tensor, rows: list[SamplerRow]) -> list[TokenOutput]:
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
    (token,) = tokens(LOGITS[None].clone(), [sequence(temperature=0.0, bad_words=((0,), (1,)))])
    assert token.token_id == 2
    assert set(draws(allowed_token_ids=(1, 4))) == {1, 4}


def test_typical_sampling_is_that_of_transformers() -> None:
    for mass in (0.2, 0.5, 0.9):
        logits = 3 * torch.randn(64, 40, generator=torch.Generator().manual_seed(1))
        kept = TypicalLogitsWarper(mass=mass)(torch.zeros(64, 1), logits.clone()) > -torch.inf
        for row in range(64):
            drawn = set(draws(30, logits=logits[row], typical_p=mass))
            assert drawn <= set(kept[row].nonzero()[:, 0].tolist())
        assert kept.sum() < kept.numel()


def test_top_p_decays_with_each_token_down_to_its_floor() -> None:
    first, second = torch.softmax(LOGITS, -1)[:2].tolist()
    wide = {"top_p": first + 0.01, "top_p_decay": 0.5}
    assert set(draws(**wide)) == {0, 1}
    assert set(draws(answer=(1,), **wide)) == {0}
    assert set(draws(answer=(1,), **wide, top_p_min=first + second + 0.01)) == {0, 1, 2}
    assert set(draws(top_p=0.1, top_p_min=first + 0.01)) == {0}  # the first token has top_p itself


def test_a_bad_phrase_is_ruled_out_only_where_it_would_end() -> None:
    def choice(*answer: int, prompt: tuple[int, ...] = (0,), **values: Any) -> int:
        row = sequence(prompt=prompt, answer=answer, temperature=0.0, bad_words=((4, 3, 0), (1, 0)))
        (token,) = tokens(LOGITS[None].clone(), [row])
        return token.token_id

    assert choice() == 0
    assert choice(4, 3) == 1
    assert choice(3) == 0
    assert choice(1) == 1
    assert choice(prompt=(1,)) == 0  # the prompt is not the answer


def test_a_bit_mask_rules_out_what_it_does_not_name() -> None:
    logits = torch.zeros(2, 70)
    logits[:, 65] = 5.0
    logits[:, 33] = 4.0
    mask = np.array([0, 1 << 1, 0xFFFFFFC0], dtype=np.uint32)  # 33, and bits beyond the vocabulary
    row = sequence(temperature=0.0)
    held, free = tokens(logits, [SamplerRow(row.sequence, mask=mask), row])
    assert (held.token_id, free.token_id) == (33, 65)


def test_candidates_are_the_likeliest_under_masks_and_penalties() -> None:
    expected = torch.log_softmax(LOGITS, -1).tolist()
    (found,) = candidates(LOGITS[None].clone(), [sequence(logit_bias={3: 5.0}, bad_words=((0,),), logprobs=1)], [3])
    assert not isinstance(found, GenerationFailed)
    assert [candidate.token.token_id for candidate in found] == [3, 1, 2]
    assert [candidate.logprob for candidate in found] == pytest.approx([expected[3] + 5.0, expected[1], expected[2]])
    assert found[0].token.logprob == pytest.approx(expected[3])
    assert found[0].token.top[0][0] == 0


def test_a_candidate_is_told_by_the_same_numbers_as_a_sampled_token() -> None:
    logits = torch.randn(4, 700, generator=torch.Generator().manual_seed(5)) * 4
    rows = [sequence(temperature=0.0, logprobs=3, logprob_token_ids=(9, 8)) for _ in range(len(logits))]
    found = candidates(logits.clone(), rows, [1] * len(rows))
    told = [candidate.token for of_row in found if not isinstance(of_row, GenerationFailed) for candidate in of_row]
    assert told == tokens(logits, rows)


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


def test_a_window_of_penalties_is_of_the_last_tokens_be_they_of_prompt_or_answer() -> None:
    def choice(last: int, **values: Any) -> int:
        row = sequence(prompt=(0, 3), answer=(2, 2), temperature=0.0, repeat_last_n=last, **values)
        (token,) = tokens(LOGITS[None].clone(), [row])
        return token.token_id

    assert [choice(last, repetition_penalty=3.0) for last in (0, 2, 3, 4)] == [0, 0, 0, 1]
    assert [choice(last, presence_penalty=9.0) for last in (0, 3, 4)] == [0, 0, 1]
    assert [choice(last, frequency_penalty=0.6, logit_bias={2: 2.4}) for last in (0, 1, 2, 3, 4)] == [2, 2, 0, 0, 2]


def test_dry_weakens_what_goes_on_with_a_repetition_also_where_it_is_drafted() -> None:
    row = sequence(prompt=(1, 2, 0, 9), answer=(1, 2), temperature=0.0, dry=Dry(4.0))
    assert tokens(LOGITS[None].clone(), [row])[0].token_id == 1
    drafted = SamplerRow(sequence(prompt=(1, 2, 0, 9), temperature=0.0, dry=Dry(4.0)).sequence, (1, 2))
    assert tokens(LOGITS[None].clone(), [drafted])[0].token_id == 1
    short = sequence(prompt=(1, 2, 0, 9), answer=(1, 2), temperature=0.0, dry=Dry(4.0, last_n=4))
    assert tokens(LOGITS[None].clone(), [short])[0].token_id == 0


def test_xtc_strikes_as_often_as_it_is_asked_to_and_not_by_the_noise_of_the_draw() -> None:
    counts = draws(2000, xtc_probability=0.5, xtc_threshold=0.1)  # three tokens are that likely; two are struck
    kept = torch.softmax(LOGITS, -1)[:2].sum() / 2
    assert (counts[0] + counts[1]) / 2000 == pytest.approx(float(kept), abs=0.05)


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
        sequence(seed=1, temperature=0.3, top_p=0.1, bad_words=((0,),), logit_bias={1: 50.0}, logprobs=3),
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
    assert (first.rank, second.rank) == (5, 1)


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
        "bad_words": st.sampled_from([(), ((1,), (4,)), ((9, 2), (1, 9, 5))]),
        "typical_p": st.sampled_from([1.0, 0.5]),
        "top_n_sigma": st.sampled_from([0.0, 1.0]),
        "xtc_probability": st.sampled_from([0.0, 0.5]),
        "dynatemp_range": st.sampled_from([0.0, 0.5]),
        "temperature_last": st.booleans(),
        "dry": st.sampled_from([None, Dry(2.0, allowed_length=1, last_n=5), Dry(9.0, breakers=frozenset({9}))]),
        "repeat_last_n": st.sampled_from([None, 0, 3]),
    }
)


@settings(max_examples=60)
@given(PARAMS, st.lists(st.integers(0, 12), max_size=4), st.integers(0, 2**31))
def test_a_row_behind_drafted_tokens_draws_as_if_they_had_been_generated(
    params: dict[str, Any], drafted: list[int], seed: int
) -> None:
    logits = 3 * torch.randn(1, 64, generator=torch.Generator().manual_seed(seed))
    params |= {"min_tokens": 3}
    ahead = SamplerRow(sequence(prompt=(2, 3), answer=(1, 9), **params).sequence, tuple(drafted))
    there = sequence(prompt=(2, 3), answer=(1, 9, *drafted), **params)
    assert sample(logits.clone(), [ahead]) == sample(logits.clone(), [there])


@settings(max_examples=60)
@given(st.lists(PARAMS, min_size=1, max_size=6), st.integers(0, 2**31))
def test_a_row_draws_the_same_alone_and_among_any_neighbours(params: list[dict[str, Any]], seed: int) -> None:
    logits = 3 * torch.randn(len(params), 64, generator=torch.Generator().manual_seed(seed))
    rows = [sequence(prompt=(2, 3), answer=(1, 9), **values) for values in params]
    together = sample(logits.clone(), rows)
    for index, row in enumerate(rows):
        (alone,) = sample(logits[index : index + 1].clone(), [row])
        assert alone == together[index]
