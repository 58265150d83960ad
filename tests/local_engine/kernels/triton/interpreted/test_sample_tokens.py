"""The sampler's kernels against the reference sampler, draw by draw."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from local_engine.errors import GenerationFailed
from local_engine.generation import GenerationRequest
from local_engine.kernels.gpu.sampling import runs_on_device, sampling_tensors
from local_engine.kernels.triton.draw_tokens import RowState
from local_engine.kernels.triton.sample_tokens import SampledTokens, sample_tokens
from local_engine.kernels.triton.sampling_rules import (
    IN_PROMPT,
    SamplingTensors,
    begin_history,
    new_histories,
)
from local_engine.kernels.triton.shape_logits import CANDIDATES, shape_logits
from local_engine.kernels.triton.top_logprobs import top_logprobs
from local_engine.logprobs import LOGPROB_FLOOR
from local_engine.sampler import SamplerRow, sample
from local_engine.sampling import Dry, SamplingParams
from local_engine.sequence import Sequence

_CPU = torch.device("cpu")
_STOP = 3


def _row(
    *,
    prompt: tuple[int, ...] = (0,),
    answer: tuple[int, ...] = (),
    allowed: np.ndarray[Any, np.dtype[np.bool_]] | None = None,
    **values: Any,
) -> SamplerRow:
    sampling = SamplingParams(**values)
    made = Sequence(GenerationRequest("r", prompt, sampling), 0, sampling.seed or 0, frozenset({_STOP}), 1000)
    for token_id in answer:
        made.append(token_id)
    if allowed is None:
        return SamplerRow(made)
    bits = np.zeros(-(-len(allowed) // 32) * 32, np.bool_)
    bits[: len(allowed)] = allowed
    return SamplerRow(made, mask=np.packbits(bits, bitorder="little").view(np.uint32))


def _logits(num_rows: int, vocab_size: int, *, spread: float = 3.0, seed: int = 1) -> Tensor:
    return spread * torch.randn(num_rows, vocab_size, generator=torch.Generator().manual_seed(seed))


def _histories(rows: list[SamplerRow], vocab_size: int) -> Tensor:
    histories = new_histories(len(rows), vocab_size, device=_CPU)
    for slot, row in enumerate(rows):
        sequence = row.sequence
        prompt, answer = sequence.tokens[: sequence.num_prompt], sequence.tokens[sequence.num_prompt :]
        begin_history(histories, slot, torch.tensor(prompt), torch.tensor(answer, dtype=torch.int64))
    return histories


def _sampled(logits: Tensor, rows: list[SamplerRow], *, num_logprobs: int = 0) -> SampledTokens:
    rules = sampling_tensors(rows, logits.shape[1], histories=range(len(rows)), device=_CPU)
    return sample_tokens(logits, rules, histories=_histories(rows, logits.shape[1]), num_logprobs=num_logprobs)


def _assert_draws_of_the_reference(logits: Tensor, rows: list[SamplerRow]) -> list[int]:
    """The tokens that were drawn."""
    drawn = _sampled(logits, rows).drawn
    for index, output in enumerate(sample(logits.float().clone(), rows)):
        assert not isinstance(output, GenerationFailed)
        assert int(drawn.states[index]) == RowState.DRAWN
        assert int(drawn.token_ids[index]) == output.token_id, rows[index].sampling
        expected = torch.log_softmax(logits[index].float(), -1)[output.token_id]
        torch.testing.assert_close(drawn.logprobs[index], expected, atol=1e-5, rtol=1e-5)
    tokens: list[int] = drawn.token_ids.tolist()
    return tokens


_CUTS: list[dict[str, Any]] = [
    {"temperature": 0.0},
    {"temperature": 0.7},
    {"temperature": 1.7},
    {"top_k": 1},
    {"top_k": 20, "temperature": 2.0},
    {"top_k": 4999, "temperature": 2.0},
    {"top_p": 0.9},
    {"top_p": 0.1, "temperature": 0.3},
    {"top_p": 0.999, "temperature": 3.0},
    {"min_p": 0.05},
    {"top_k": 30, "top_p": 0.8, "min_p": 0.02, "temperature": 1.4},
    {"top_k": 10**6, "top_p": 0.5},
]


@pytest.mark.parametrize(
    ("vocab_size", "dtype"), [(1, torch.float16), (7, torch.float32), (4096, torch.float16), (9001, torch.float32)]
)
def test_rows_of_all_kinds_side_by_side_draw_what_the_reference_draws(vocab_size: int, dtype: torch.dtype) -> None:
    rows = [_row(seed=31 * seed - 40, **values) for seed, values in enumerate(_CUTS)]
    _assert_draws_of_the_reference(_logits(len(rows), vocab_size).to(dtype), rows)


def test_a_flat_row_has_more_candidates_than_room_and_is_cut_all_the_same() -> None:
    vocab_size = 2 * CANDIDATES
    logits = _logits(2, vocab_size, spread=0.05)
    rows = [_row(seed=5, top_p=0.6), _row(seed=-(2**63), top_k=6000)]
    _assert_draws_of_the_reference(logits, rows)


def test_ties_at_a_cut_are_kept() -> None:
    logits = torch.tensor([[1.0, 2.0, 2.0, 2.0, 0.0]]).repeat(9, 1)
    rows = [_row(seed=seed, top_k=2) for seed in range(9)]
    assert set(_assert_draws_of_the_reference(logits, rows)) == {1, 2, 3}
    by_mass = [_row(seed=seed, top_p=0.5) for seed in range(9)]
    assert set(_assert_draws_of_the_reference(logits, by_mass)) == {1, 2, 3}


def test_a_draw_depends_on_seed_and_position_and_not_on_the_batch() -> None:
    logits = _logits(1, 500).repeat(12, 1)
    rows = [_row(seed=seed, answer=(4,) * position) for seed in (9, 2**62 + 3, -1) for position in range(4)]
    drawn = _assert_draws_of_the_reference(logits, rows)
    assert _assert_draws_of_the_reference(logits[:1], [rows[7]]) == [drawn[7]]
    assert len(set(drawn)) > 5


def test_penalties_count_prompt_and_answer_as_the_reference_does() -> None:
    options: list[dict[str, Any]] = [
        {"repetition_penalty": 1.8},
        {"presence_penalty": 1.5},
        {"frequency_penalty": -0.7},
        {"repetition_penalty": 0.5, "presence_penalty": -1.0, "frequency_penalty": 0.4},
        {},
    ]
    rows = [
        _row(prompt=(1, 5, 5, 8), answer=(7, 7, 2, 5), seed=seed, temperature=seed % 2, **values)
        for seed in range(4)
        for values in options
    ]
    _assert_draws_of_the_reference(_logits(len(rows), 12), rows)


def test_a_drawn_token_counts_in_its_rows_history() -> None:
    rows = [_row(prompt=(1, 2), answer=(2,), presence_penalty=1.0, temperature=0.0), _row(temperature=0.0)]
    histories = _histories(rows, 40)
    logits = torch.zeros(2, 40)
    logits[:, 2] = 9.0
    rules = sampling_tensors(rows, 40, histories=(0, -1), device=_CPU)
    sample_tokens(logits, rules, histories=histories)
    assert histories[0, :3].tolist() == [0, IN_PROMPT, IN_PROMPT + 2]
    assert int(histories[1, 2]) == 0


def test_biases_masks_and_lists_of_tokens_shape_the_draw_as_in_the_reference() -> None:
    vocab_size = 5000
    allowed = np.arange(vocab_size) % 7 == 3
    options: list[dict[str, Any]] = [
        {"logit_bias": {4999: 30.0, 0: -100.0}},
        {"logit_bias": dict.fromkeys(range(100, 160), 8.0)},
        {"allowed": allowed},
        {"allowed": allowed, "logit_bias": {5: 100.0, 10: 12.0}, "top_p": 0.9, "repetition_penalty": 1.3},
        {"allowed_token_ids": (4, 77, 4100)},
        {"allowed": allowed, "allowed_token_ids": (3, 4, 10)},
        {"bad_words": ((17,), (0, 2501)), "temperature": 0.0},
        {"min_tokens": 3, "logit_bias": {_STOP: 100.0}},
        {},
    ]
    rows = [_row(seed=seed, **values) for seed in range(2) for values in options]
    _assert_draws_of_the_reference(_logits(len(rows), vocab_size), rows)


def test_a_row_that_is_no_number_or_that_allows_nothing_fails_alone() -> None:
    logits = _logits(5, 5000)
    logits[0, 4500], logits[1, 2], logits[2] = float("nan"), float("inf"), -float("inf")
    rows = [_row(seed=1), _row(top_k=5), _row(temperature=0.0), _row(allowed=np.zeros(5000, np.bool_)), _row(seed=4)]
    drawn = _sampled(logits, rows).drawn
    assert drawn.states.tolist() == [
        RowState.NOT_FINITE,
        RowState.NOT_FINITE,
        RowState.NOT_FINITE,
        RowState.NOTHING_ALLOWED,
        RowState.DRAWN,
    ]
    assert drawn.token_ids[:4].tolist() == [0, 0, 0, 0]
    expected = sample(logits.clone(), rows)
    assert [isinstance(output, GenerationFailed) for output in expected] == [True, True, True, True, False]


@pytest.mark.parametrize(("vocab_size", "count"), [(9000, 5), (300, 70), (5, 5), (1, 1)])
def test_the_likeliest_tokens_are_those_of_the_raw_distribution(vocab_size: int, count: int) -> None:
    logits = _logits(3, vocab_size)
    logits[0] = logits[0].round()  # ties
    logits[1, vocab_size // 8 + 1 :] = -float("inf")
    rows = [_row(logprobs=count, logit_bias={0: 50.0}, top_k=2, seed=seed) for seed in range(3)]
    sampled = _sampled(logits, rows, num_logprobs=count)
    assert sampled.top_ids is not None
    assert sampled.top_logprobs is not None
    by_hand = torch.log_softmax(logits, -1).clamp(min=LOGPROB_FLOOR)
    for row in range(3):
        ids = sampled.top_ids[row].tolist()
        by_value = logits[row].sort(descending=True, stable=True)
        assert ids == by_value.indices[:count].tolist()
        torch.testing.assert_close(sampled.top_logprobs[row], by_hand[row, ids], atol=1e-5, rtol=1e-5)
    reported = sample(logits.clone(), rows)[2]
    assert not isinstance(reported, GenerationFailed)
    assert [token for token, _ in reported.top] == sampled.top_ids[2].tolist()


def test_a_step_without_rows_gives_none() -> None:
    sampled = _sampled(torch.empty(0, 50), [], num_logprobs=2)
    assert len(sampled.drawn.token_ids) == 0
    assert sampled.top_ids is not None
    assert sampled.top_ids.shape == (0, 2)


def test_greedy_rows_alone_need_no_weights() -> None:
    logits = _logits(3, 5000)
    rules = sampling_tensors([_row(temperature=0.0)] * 3, 5000, histories=[-1] * 3, device=_CPU)
    drawn = sample_tokens(logits, rules, all_greedy=True).drawn
    assert drawn.token_ids.tolist() == logits.argmax(-1).tolist()


def test_what_the_kernels_lack_is_named() -> None:
    assert runs_on_device(_row(top_p=0.5, logprobs=3, presence_penalty=1.0))
    assert not runs_on_device(_row(typical_p=0.5))
    assert not runs_on_device(_row(top_n_sigma=1.0))
    assert not runs_on_device(_row(xtc_probability=0.5))
    assert not runs_on_device(_row(dynatemp_range=1.0))
    assert runs_on_device(_row(typical_p=0.5, temperature=0.0))
    assert not runs_on_device(_row(temperature=0.0, dry=Dry(1.0)))
    assert runs_on_device(_row(repeat_last_n=4))
    assert not runs_on_device(_row(repeat_last_n=4, presence_penalty=1.0))
    assert not runs_on_device(_row(logprobs=1, logprob_token_ids=(4,)))
    assert not runs_on_device(_row(beam_search=True, n=2))
    penalised = _row(presence_penalty=1.0)
    assert not runs_on_device(penalised._replace(draft=(4, 5)))


def test_wrong_shapes_are_refused_by_name() -> None:
    logits, rows = _logits(2, 100), [_row(), _row()]
    rules = sampling_tensors(rows, 100, histories=(-1, -1), device=_CPU)
    with pytest.raises(ValueError, match=r"rules\.rules: expected the shape"):
        shape_logits(logits[:1], rules)
    with pytest.raises(ValueError, match=r"rules\.masks: expected the shape"):
        shape_logits(_logits(2, 200), rules)
    with pytest.raises(ValueError, match="histories: expected the shape"):
        shape_logits(logits, rules, histories=new_histories(2, 99, device=_CPU))
    with pytest.raises(ValueError, match="logits: expected"):
        shape_logits(logits.double(), rules)
    biased = SamplingTensors(rules.rules, rules.masks, rules.bias_starts, rules.bias_ids, rules.bias_values.double())
    with pytest.raises(ValueError, match=r"rules\.bias_values: expected torch\.float32"):
        shape_logits(logits, biased)
    with pytest.raises(ValueError, match="count: expected 1 to 100"):
        top_logprobs(logits, torch.zeros(2), 101)
