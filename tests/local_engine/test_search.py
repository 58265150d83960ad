"""Several answers from one prompt: beams as transformers finds them, samples ranked, blocks shared and given back."""

import math
from collections.abc import Sequence as SequenceOf
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from local_engine.engine import Engine
from local_engine.errors import GenerationFailed, InvalidInput, TooFewAnswers
from local_engine.executor import Executor
from local_engine.generation import GenerationRequest, StepOutput
from local_engine.loading.load import LoadedModel
from local_engine.sampling import SamplingParams
from tests.local_engine.engine_driver import config_with_blocks, generate, last, request, run, small_config, tokens_of
from tests.local_engine.test_engine import POISON, RaisingExecutor, raising
from tests.local_engine.tiny_models import VOCAB_SIZE, Oracle

PROMPT = [9, 8, 11, 12, 30]


def beams(**values: Any) -> SamplingParams:
    return SamplingParams(**{"beam_search": True, "ignore_eos": True, "max_tokens": 8} | values)


def answers(output: StepOutput) -> list[StepOutput]:
    return [output, *output.others]


def search(engine: Engine, sampling: SamplingParams, prompt: list[int] = PROMPT) -> list[StepOutput]:
    (outcome,) = generate(engine, [request(prompt, sampling)])
    assert len(outcome) == 1
    return answers(last(outcome))


def ids(output: StepOutput) -> list[int]:
    """The answer with the token that ended it, as transformers shows it."""
    ended = [] if output.stop_token_id is None else [output.stop_token_id]
    return [token.token_id for token in output.tokens] + ended


def theirs(oracle: Oracle, prompt: list[int], stops: tuple[int, ...], **values: Any) -> list[tuple[list[int], float]]:
    found = oracle.model.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
        do_sample=False,
        eos_token_id=list(stops) or None,
        pad_token_id=VOCAB_SIZE - 1,
        output_scores=True,
        return_dict_in_generate=True,
        **values,
    )
    results = []
    for row, value in zip(found.sequences.tolist(), found.sequences_scores.tolist(), strict=True):
        answer = row[len(prompt) :]
        end = next((place for place, token in enumerate(answer) if token in stops), len(answer) - 1)
        results.append((answer[: end + 1], value))
    return results


@pytest.mark.parametrize("early_stopping", [False, True])
@pytest.mark.parametrize("length_penalty", [0.0, 1.0, -1.5, 2.0])
@pytest.mark.parametrize(
    ("width", "stops"), [(1, ()), (2, (7,)), (4, tuple(range(20, 50))), (5, tuple(range(0, 128, 3)))]
)
def test_beams_and_scores_are_those_of_transformers(
    tiny_model: LoadedModel,
    oracle: Oracle,
    width: int,
    stops: tuple[int, ...],
    length_penalty: float,
    early_stopping: bool,
) -> None:
    for prompt in (PROMPT, [3, 3, 3], list(range(40, 61))):
        ours = search(
            Engine(tiny_model, small_config()),
            beams(
                n=width,
                stop_token_ids=stops,
                max_tokens=9,
                length_penalty=length_penalty,
                early_stopping=early_stopping,
            ),
            prompt,
        )
        if width == 1:
            assert [ids(answer) for answer in ours] == [oracle.greedy(prompt, 9)]
            continue
        expected = theirs(
            oracle,
            prompt,
            stops,
            num_beams=width,
            num_return_sequences=width,
            max_new_tokens=9,
            length_penalty=length_penalty,
            early_stopping=early_stopping,
        )
        assert [ids(answer) for answer in ours] == [tokens for tokens, _ in expected]
        assert [answer.score for answer in ours] == pytest.approx([score for _, score in expected], rel=1e-4)


@settings(max_examples=12)
@given(
    blocks=st.integers(16, 24),
    budget=st.sampled_from([1, 5, 64]),
    slots=st.integers(4, 6),
    cache=st.booleans(),
    best_of=st.booleans(),
)
def test_preempted_chunked_and_crowded_searches_find_the_same_answers(
    tiny_model: LoadedModel, blocks: int, budget: int, slots: int, cache: bool, best_of: bool
) -> None:
    sampling = SamplingParams(n=4, seed=3, max_tokens=12, ignore_eos=True) if best_of else beams(n=4, max_tokens=12)
    expected = [
        [ids(a) for a in search(Engine(tiny_model, small_config()), sampling, p)] for p in (PROMPT, PROMPT[::-1])
    ]
    config = config_with_blocks(tiny_model, blocks, max_batch_tokens=budget, max_sequences=slots, prefix_cache=cache)
    engine = Engine(tiny_model, config)
    crowd = [request([60 + number] * 9, SamplingParams(max_tokens=20, ignore_eos=True)) for number in range(3)]
    outcomes = generate(engine, [request(PROMPT, sampling), *crowd, request(PROMPT[::-1], sampling)])
    assert [[ids(answer) for answer in answers(last(outcomes[place]))] for place in (0, 4)] == expected
    assert engine.stats().blocks_used == 0


def test_beams_share_the_blocks_of_what_they_have_in_common(tiny_model: LoadedModel) -> None:
    engine = Engine(tiny_model, small_config())
    engine.add(request(list(range(8, 48)), beams(n=4, max_tokens=3)))
    most = 0
    while engine.has_work:
        engine.step()
        engine.scheduler.check()
        most = max(most, engine.stats().blocks_used)
    assert 10 < most <= 10 + 4  # ten blocks of prompt, once, and one for each beam


def test_samples_compute_their_prompt_once_without_the_prefix_cache_too(tiny_model: LoadedModel) -> None:
    engine = Engine(tiny_model, small_config(prefix_cache=False))
    engine.add(request(list(range(8, 38)), SamplingParams(n=5, seed=1, max_tokens=4, ignore_eos=True)))
    engine.step()
    assert engine.stats().blocks_used == 8
    engine.step()
    assert engine.stats().blocks_used == 8 + 4
    run(engine)
    assert engine.stats().blocks_used == 0


@pytest.mark.parametrize("sampling", [beams(n=3), SamplingParams(n=3, seed=1, max_tokens=8, ignore_eos=True)])
def test_a_prompt_of_one_token_is_enough_for_a_search(tiny_model: LoadedModel, sampling: SamplingParams) -> None:
    found = search(Engine(tiny_model, small_config()), sampling, [9])
    assert [len(answer.tokens) for answer in found] == [8] * 3


def test_the_best_of_several_samples_come_first(tiny_model: LoadedModel) -> None:
    sampling = SamplingParams(n=2, best_of=6, seed=5, max_tokens=6, ignore_eos=True, temperature=1.5, logprobs=0)
    everyone = search(Engine(tiny_model, small_config()), SamplingParams(**_fields(sampling) | {"n": 6}))
    best = search(Engine(tiny_model, small_config()), sampling)
    scores = [answer.score for answer in everyone]
    assert scores == sorted(scores, key=lambda score: -(score or 0))
    assert [ids(answer) for answer in best] == [ids(answer) for answer in everyone[:2]]
    assert len({tuple(ids(answer)) for answer in everyone}) == 6
    for answer in everyone:
        mean = math.fsum(token.logprob or 0 for token in answer.tokens) / len(answer.tokens)
        assert answer.score == pytest.approx(mean)


def _fields(sampling: SamplingParams) -> dict[str, Any]:
    return {name: getattr(sampling, name) for name in sampling.__slots__}


def test_the_first_sample_is_the_one_that_would_come_alone(tiny_model: LoadedModel) -> None:
    alone = SamplingParams(seed=5, max_tokens=6, ignore_eos=True)
    (outcome,) = generate(Engine(tiny_model, small_config()), [request(PROMPT, alone)])
    several = search(Engine(tiny_model, small_config()), SamplingParams(**_fields(alone) | {"n": 4}))
    assert tokens_of(outcome) in [ids(answer) for answer in several]


def test_a_beam_ends_where_the_caller_says_so(tiny_model: LoadedModel) -> None:
    free = search(Engine(tiny_model, small_config()), beams(n=3, max_tokens=12))
    stop = ids(free[0])[4]
    (outcome,) = generate(
        Engine(tiny_model, small_config()),
        [GenerationRequest("r", tuple(PROMPT), beams(n=3, max_tokens=12), ends=lambda answer: answer[-1] == stop)],
    )
    found = answers(last(outcome))
    ended = [answer for answer in found if answer.finish == "stop"]
    assert ended
    assert all(ids(answer).index(stop) == len(answer.tokens) - 1 for answer in ended)
    assert all(stop not in ids(answer) for answer in found if answer.finish == "length")


def test_penalties_and_bad_words_shape_the_beams(tiny_model: LoadedModel) -> None:
    free = search(Engine(tiny_model, small_config()), beams(n=2))
    phrase = tuple(ids(free[0])[2:4])
    shaped = search(Engine(tiny_model, small_config()), beams(n=2, bad_words=(phrase,)))
    assert ids(shaped[0]) != ids(free[0])
    for answer in shaped:
        assert phrase not in list(zip(ids(answer), ids(answer)[1:], strict=False))


def test_beams_report_the_logprobs_of_their_tokens(tiny_model: LoadedModel, oracle: Oracle) -> None:
    for answer in search(Engine(tiny_model, small_config()), beams(n=2, logprobs=2, prompt_logprobs=0)):
        for place, token in enumerate(answer.tokens):
            expected = torch.log_softmax(oracle.logits([*PROMPT, *ids(answer)[:place]])[-1], -1)
            assert token.logprob == pytest.approx(float(expected[token.token_id]), abs=1e-4)
            assert token.top[0][0] == int(expected.argmax())
            assert len(token.top) == 2


def test_what_was_asked_of_the_prompt_comes_once_with_the_best_answer(tiny_model: LoadedModel) -> None:
    first, second = search(Engine(tiny_model, small_config()), beams(n=2, prompt_logprobs=0, context_logits=True))
    assert first.prompt_logprobs is not None
    assert len(first.prompt_logprobs) == len(PROMPT)
    assert first.context_logits is not None
    assert (second.prompt_logprobs, second.context_logits) == (None, None)


def test_a_search_without_tokens_to_generate_gives_as_many_empty_answers(tiny_model: LoadedModel) -> None:
    found = search(Engine(tiny_model, small_config()), SamplingParams(n=3, max_tokens=0))
    assert [(answer.tokens, answer.finish) for answer in found] == [((), "length")] * 3


@pytest.mark.parametrize("sampling", [beams(n=3), SamplingParams(n=3, seed=1, ignore_eos=True)])
def test_an_abort_frees_all_sequences_of_a_search(tiny_model: LoadedModel, sampling: SamplingParams) -> None:
    engine = Engine(tiny_model, small_config())
    handle = engine.add(request(PROMPT, sampling))
    for _ in range(4):
        engine.step()
    assert len(engine.scheduler.running) == 3
    engine.abort(handle)
    engine.scheduler.check()
    assert not engine.has_work
    assert engine.stats().blocks_used == 0
    assert engine.stats().aborted == 1


@pytest.mark.parametrize("beam_search", [False, True])
def test_a_failing_search_fails_once_and_alone(tiny_model: LoadedModel, oracle: Oracle, beam_search: bool) -> None:
    engine = Engine(raising(tiny_model), small_config())
    bias = {POISON: 100.0}  # every answer comes to the token on which the device raises
    sampling = SamplingParams(n=3, beam_search=beam_search, logit_bias=bias, max_tokens=8, ignore_eos=True, seed=1)
    greedy = SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True)
    failed, healthy = generate(engine, [request(PROMPT, sampling), request(PROMPT[::-1], greedy)])
    assert [type(event) for event in failed] == [GenerationFailed]
    assert tokens_of(healthy) == oracle.greedy(PROMPT[::-1], 8)
    assert engine.stats().blocks_used == 0
    assert engine.stats().failed == 1


def test_a_search_that_finds_fewer_answers_than_are_wanted_says_how_many_there_are(tiny_model: LoadedModel) -> None:
    engine = Engine(tiny_model, small_config())
    ((error,),) = generate(engine, [request(PROMPT, beams(n=2, allowed_token_ids=(7,)))])
    assert isinstance(error, TooFewAnswers)
    assert (error.found, error.wanted) == (1, 2)
    assert engine.stats().blocks_used == 0


def test_more_answers_than_run_at_once_are_refused_by_name(tiny_model: LoadedModel) -> None:
    engine = Engine(tiny_model, small_config(max_sequences=4))
    for param, sampling in (("n", SamplingParams(n=5)), ("best_of", SamplingParams(n=2, best_of=5))):
        with pytest.raises(InvalidInput) as caught:
            engine.add(request(PROMPT, sampling))
        assert caught.value.param == param


class FailingCopies(RaisingExecutor):
    """An executor whose device cannot copy blocks."""

    def __init__(self, executor: Executor) -> None:
        super().__init__(executor)
        self.copy_blocks = self._raise

    def _raise(self, pairs: SequenceOf[tuple[int, int]]) -> None:
        raise RuntimeError(f"no copy engine for {len(pairs)}")


def test_blocks_that_cannot_be_copied_fail_their_own_request_alone(tiny_model: LoadedModel, oracle: Oracle) -> None:
    loaded = replace(tiny_model, open_executor=lambda config: FailingCopies(tiny_model.open_executor(config)))
    engine = Engine(loaded, small_config())
    greedy = SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True)
    several = SamplingParams(n=3, seed=1, max_tokens=5, ignore_eos=True)
    failed, healthy = generate(engine, [request([*PROMPT, 31], several), request(PROMPT[::-1], greedy)])
    assert [type(event) for event in failed] == [GenerationFailed]
    assert tokens_of(healthy) == oracle.greedy(PROMPT[::-1], 8)
    assert engine.stats().blocks_used == 0
