"""The synchronous engine on a tiny model: the same tokens whatever the batch, and every way a sequence can end."""

from collections.abc import Iterator
from collections.abc import Sequence as SequenceOf
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from local_engine.chunk import Chunk
from local_engine.config import EngineConfig
from local_engine.engine import Engine
from local_engine.errors import ContextOverflow, EngineError, GenerationFailed, InvalidInput, QueueFull
from local_engine.executor import Executor, StepRows
from local_engine.generation import GenerationRequest, StepOutput
from local_engine.loading.load import LoadedModel, load_model
from local_engine.sampling import SamplingParams
from tests.local_engine.engine_driver import (
    config_with_blocks,
    generate,
    last,
    request,
    run,
    small_config,
    token_outputs,
    tokens_of,
)
from tests.local_engine.tiny_models import STOP_ID, VOCAB_SIZE, Oracle, tiny_oracle, write_safetensors

POISON = 51
"""The token whose embedding is not a number in `poisoned_model`; no prompt or answer of these tests holds it."""

PROMPTS = [[(7 * row + 3 * column) % 40 + 8 for column in range(3 + 5 * row)] for row in range(6)]


def greedy(count: int = 16) -> SamplingParams:
    return SamplingParams(temperature=0.0, max_tokens=count, ignore_eos=True)


@pytest.fixture(scope="module")
def lone_answers(tiny_model: LoadedModel) -> list[list[int]]:
    """Each prompt's greedy answer, computed alone and unchunked."""
    return [
        tokens_of(generate(Engine(tiny_model, small_config()), [request(prompt, greedy())])[0]) for prompt in PROMPTS
    ]


@pytest.fixture(scope="module")
def poisoned_model(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    oracle = tiny_oracle()
    with torch.no_grad():
        oracle.model.model.embed_tokens.weight[POISON] = torch.nan
    return load_model(write_safetensors(oracle, tmp_path_factory.mktemp("poison")), EngineConfig())


def test_the_lone_answer_is_that_of_transformers(lone_answers: list[list[int]], oracle: Oracle) -> None:
    assert lone_answers == [oracle.greedy(prompt, 16) for prompt in PROMPTS]


def test_batched_answers_equal_lone_ones(tiny_model: LoadedModel, lone_answers: list[list[int]]) -> None:
    outcomes = generate(Engine(tiny_model, small_config()), [request(prompt, greedy()) for prompt in PROMPTS])
    assert [tokens_of(outcome) for outcome in outcomes] == lone_answers


@pytest.mark.parametrize("budget", [1, 3, 7])
def test_prompts_in_chunks_give_the_same_answers(
    tiny_model: LoadedModel, lone_answers: list[list[int]], budget: int
) -> None:
    engine = Engine(tiny_model, small_config(max_batch_tokens=budget))
    outcomes = generate(engine, [request(prompt, greedy()) for prompt in PROMPTS])
    assert [tokens_of(outcome) for outcome in outcomes] == lone_answers


def test_preempted_sequences_give_the_same_answers(tiny_model: LoadedModel, lone_answers: list[list[int]]) -> None:
    engine = Engine(tiny_model, config_with_blocks(tiny_model, 17, max_batch_tokens=16))
    outcomes = generate(engine, [request(prompt, greedy()) for prompt in PROMPTS])
    assert [tokens_of(outcome) for outcome in outcomes] == lone_answers
    assert engine.stats().preemptions > 0
    assert engine.stats().blocks_used == 0


def test_requests_that_join_and_leave_midway_change_nobody(
    tiny_model: LoadedModel, lone_answers: list[list[int]]
) -> None:
    engine = Engine(tiny_model, small_config(max_batch_tokens=8))
    early = engine.add(request(PROMPTS[1], greedy()))
    leaver = engine.add(request(PROMPTS[3], greedy()))
    outcomes: dict[object, list[StepOutput | EngineError]] = {early: []}
    for _ in range(6):
        for sequence, event in engine.step():
            outcomes.setdefault(sequence, []).append(event)
    late = engine.add(request(PROMPTS[4], greedy()))
    engine.abort(leaver)
    for sequence, events in run(engine).items():
        outcomes.setdefault(sequence, []).extend(events)
    assert tokens_of(outcomes[early]) == lone_answers[1]
    assert tokens_of(outcomes[late]) == lone_answers[4]


def test_a_seeded_draw_does_not_depend_on_neighbours_order_or_preemption(tiny_model: LoadedModel) -> None:
    seeded = SamplingParams(temperature=0.8, seed=42, max_tokens=16, ignore_eos=True)
    unseeded = SamplingParams(temperature=0.8, max_tokens=16, ignore_eos=True)
    mine, others = request(PROMPTS[2], seeded), [request(prompt, unseeded) for prompt in PROMPTS[:5]]
    answers = []
    for place in range(6):
        config = small_config() if place % 2 else config_with_blocks(tiny_model, 12, max_batch_tokens=8)
        outcomes = generate(Engine(tiny_model, config), [*others[:place], mine, *others[place:]])
        answers.append(tokens_of(outcomes[place]))
    (alone,) = generate(Engine(tiny_model, small_config()), [mine])
    assert answers == [tokens_of(alone)] * 6
    (other_seed,) = generate(Engine(tiny_model, small_config()), [request(PROMPTS[2], replace(seeded, seed=43))])
    assert tokens_of(other_seed) != tokens_of(alone)


def test_unseeded_requests_draw_differently(tiny_model: LoadedModel) -> None:
    sampling = SamplingParams(temperature=1.5, max_tokens=16, ignore_eos=True)
    outcomes = generate(Engine(tiny_model, small_config()), [request(PROMPTS[0], sampling) for _ in range(4)])
    assert len({tuple(tokens_of(outcome)) for outcome in outcomes}) == 4


def answer_ending_with(oracle: Oracle, length: int) -> tuple[list[int], list[int]]:
    """A prompt and its greedy answer whose last of `length` tokens does not appear before."""
    for start in range(VOCAB_SIZE):
        prompt = [start, 11, 12]
        answer = oracle.greedy(prompt, length)
        if answer.index(answer[-1]) == length - 1 and STOP_ID not in answer:
            return prompt, answer
    raise AssertionError("no such answer")


def test_any_listed_stop_token_ends_the_answer_and_is_not_part_of_it(tiny_model: LoadedModel, oracle: Oracle) -> None:
    prompt, answer = answer_ending_with(oracle, 5)
    sampling = SamplingParams(temperature=0.0, max_tokens=20, stop_token_ids=(99, answer[4]), logprobs=0)
    (outcome,) = generate(Engine(tiny_model, small_config()), [request(prompt, sampling)])
    assert tokens_of(outcome) == answer[:4]
    assert (last(outcome).finish, last(outcome).stop_token_id) == ("stop", answer[4])
    assert last(outcome).tokens == ()


def test_the_models_own_stop_token_ends_the_answer_unless_ignored(tiny_folder: Path, oracle: Oracle) -> None:
    prompt, answer = answer_ending_with(oracle, 4)
    loaded = load_model(tiny_folder, EngineConfig())
    assert loaded.info.stop_token_ids == (STOP_ID,)
    loaded = replace(loaded, info=replace(loaded.info, stop_token_ids=(STOP_ID, answer[3])))
    engine = Engine(loaded, small_config())
    stops, ignores = generate(
        engine,
        [
            request(prompt, SamplingParams(temperature=0.0, max_tokens=8)),
            request(prompt, SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True)),
        ],
    )
    assert (last(stops).finish, last(stops).stop_token_id, tokens_of(stops)) == ("stop", answer[3], answer[:3])
    assert (last(ignores).finish, tokens_of(ignores)) == ("length", oracle.greedy(prompt, 8))


def test_min_tokens_holds_the_stop_token_back(tiny_model: LoadedModel, oracle: Oracle) -> None:
    prompt, answer = answer_ending_with(oracle, 5)
    sampling = SamplingParams(temperature=0.0, max_tokens=12, min_tokens=7, stop_token_ids=(answer[4],))
    (outcome,) = generate(Engine(tiny_model, small_config()), [request(prompt, sampling)])
    tokens = tokens_of(outcome)
    assert tokens[:4] == answer[:4]
    assert len(tokens) >= 7
    assert answer[4] not in tokens


def test_logprobs_are_those_of_the_oracle(tiny_model: LoadedModel, oracle: Oracle) -> None:
    prompt = PROMPTS[2]
    sampling = SamplingParams(temperature=0.7, top_p=0.5, seed=3, max_tokens=6, ignore_eos=True, logprobs=4)
    (outcome,) = generate(Engine(tiny_model, small_config()), [request(prompt, sampling)])
    tokens = list(prompt)
    for output in token_outputs(outcome):
        expected = torch.log_softmax(oracle.logits(tokens)[-1], -1)
        values, ids = expected.topk(4)
        assert output.logprob == pytest.approx(float(expected[output.token_id]), abs=2e-4)
        assert [token_id for token_id, _ in output.top] == ids.tolist()
        assert [value for _, value in output.top] == pytest.approx(values.tolist(), abs=2e-4)
        tokens.append(output.token_id)


@pytest.mark.parametrize(("budget", "blocks"), [(64, 60), (5, 60), (5, 13)])
def test_a_prompt_is_scored_once_whatever_its_chunks(
    tiny_model: LoadedModel, oracle: Oracle, budget: int, blocks: int
) -> None:
    prompt = PROMPTS[5]
    scored = request(prompt, SamplingParams(max_tokens=0, prompt_logprobs=2), priority=1)
    engine = Engine(tiny_model, config_with_blocks(tiny_model, blocks, max_batch_tokens=budget))
    sequence = engine.add(scored)
    events = [event for owner, event in engine.step() if owner is sequence]
    others = [engine.add(request(PROMPTS[4], greedy(), priority=0)) for _ in range(2)]  # with 13 blocks they preempt it
    outcomes = run(engine)
    events += outcomes.get(sequence, [])
    assert all(len(tokens_of(outcomes[other])) == 16 for other in others)
    reports = [event.prompt_logprobs for event in events if isinstance(event, StepOutput) and event.prompt_logprobs]
    assert last(events).finish == "length"
    assert tokens_of(events) == []
    (scores,) = reports
    assert [score.token_id for score in scores] == prompt
    assert (scores[0].logprob, scores[0].top) == (None, ())
    expected = torch.log_softmax(oracle.logits(prompt), -1)
    for position, score in enumerate(scores[1:]):
        assert score.logprob == pytest.approx(float(expected[position, prompt[position + 1]]), abs=2e-4)
        assert [token_id for token_id, _ in score.top] == expected[position].topk(2).indices.tolist()


def test_zero_tokens_without_scoring_end_at_once_with_length(tiny_model: LoadedModel) -> None:
    (outcome,) = generate(Engine(tiny_model, small_config()), [request([5], SamplingParams(max_tokens=0))])
    assert (last(outcome).finish, tokens_of(outcome)) == ("length", [])


def test_a_prompt_may_fill_the_window_but_for_one_token(tiny_model: LoadedModel) -> None:
    engine = Engine(tiny_model, small_config())
    assert engine.max_context == 64
    (outcome,) = generate(engine, [request([5] * 63, SamplingParams(temperature=0.0, ignore_eos=True))])
    assert len(tokens_of(outcome)) == 1
    assert last(outcome).finish == "length"
    with pytest.raises(ContextOverflow) as caught:
        engine.add(request([5] * 64, greedy(1)))
    assert (caught.value.prompt_tokens, caught.value.limit, caught.value.max_tokens) == (64, 64, None)


def test_an_answer_runs_to_the_end_of_the_window_only_when_its_length_was_not_given(tiny_model: LoadedModel) -> None:
    engine = Engine(tiny_model, small_config())
    (outcome,) = generate(engine, [request([5] * 60, SamplingParams(temperature=0.0, ignore_eos=True))])
    assert len(tokens_of(outcome)) == 4
    with pytest.raises(ContextOverflow) as caught:
        engine.add(request([5] * 60, greedy(5)))
    assert (caught.value.prompt_tokens, caught.value.limit, caught.value.max_tokens) == (60, 64, 5)
    generate(engine, [request([5] * 60, greedy(4))])


def test_the_window_is_never_larger_than_the_pool_or_the_configuration(tiny_model: LoadedModel) -> None:
    assert Engine(tiny_model, config_with_blocks(tiny_model, 5)).max_context == 20
    assert Engine(tiny_model, small_config(max_context=10)).max_context == 10


@pytest.mark.parametrize("kv_bytes", [100, 1 << 50])
def test_a_pool_too_small_or_too_large_is_refused(tiny_model: LoadedModel, kv_bytes: int) -> None:
    with pytest.raises(InvalidInput) as caught:
        Engine(tiny_model, small_config(kv_bytes=kv_bytes))
    assert caught.value.param == "kv_bytes"


def test_a_sequence_that_needs_the_whole_pool_runs_to_its_end(tiny_model: LoadedModel) -> None:
    engine = Engine(tiny_model, config_with_blocks(tiny_model, 5))
    sampling = SamplingParams(temperature=0.0, ignore_eos=True)
    outcomes = generate(engine, [request([5] * 3, sampling), request([6] * 3, sampling)])
    assert [len(tokens_of(outcome)) for outcome in outcomes] == [17, 17]


@pytest.mark.parametrize(
    ("param", "bad"),
    [
        ("prompt", GenerationRequest("r", (), SamplingParams())),
        ("prompt", GenerationRequest("r", (1, VOCAB_SIZE), SamplingParams())),
        ("prompt", GenerationRequest("r", (1, -1), SamplingParams())),
        ("prompt", GenerationRequest("r", (1, True), SamplingParams())),
        ("priority", GenerationRequest("r", (1,), SamplingParams(), priority=2**31)),
        ("min_tokens", GenerationRequest("r", (1,), SamplingParams(min_tokens=64))),
        ("stop_token_ids", GenerationRequest("r", (1,), SamplingParams(stop_token_ids=(VOCAB_SIZE,)))),
        ("logit_bias", GenerationRequest("r", (1,), SamplingParams(logit_bias={VOCAB_SIZE: 1.0}))),
        ("bad_words", GenerationRequest("r", (1,), SamplingParams(bad_words=((VOCAB_SIZE,),)))),
        ("allowed_token_ids", GenerationRequest("r", (1,), SamplingParams(allowed_token_ids=(VOCAB_SIZE,)))),
        ("logprobs", GenerationRequest("r", (1,), SamplingParams(logprobs=VOCAB_SIZE + 1))),
    ],
)
def test_what_the_model_cannot_do_is_refused_by_name(
    tiny_model: LoadedModel, param: str, bad: GenerationRequest
) -> None:
    engine = Engine(tiny_model, small_config())
    with pytest.raises(InvalidInput) as caught:
        engine.add(bad)
    assert caught.value.param == param
    assert not engine.has_work


@pytest.mark.parametrize("steps", [0, 1, 8])
def test_an_abort_in_the_queue_in_the_prompt_or_in_the_answer_frees_all_blocks(
    tiny_model: LoadedModel, steps: int
) -> None:
    engine = Engine(tiny_model, small_config(max_batch_tokens=8))
    sequence = engine.add(request(PROMPTS[4], greedy()))
    for _ in range(steps):
        engine.step()
    assert sequence.num_generated == max(0, steps - 2) or sequence.num_generated > 0
    engine.abort(sequence)
    engine.abort(sequence)
    stats = engine.stats()
    assert (stats.blocks_used, stats.running, stats.waiting, stats.aborted) == (0, 0, 0, 1)
    engine.scheduler.check()
    assert not engine.has_work


def test_requests_past_the_bound_are_refused_and_the_rest_are_served(tiny_model: LoadedModel) -> None:
    engine = Engine(tiny_model, small_config(max_sequences=2, queue=3))
    sequences = [engine.add(request(PROMPTS[0], greedy(2))) for _ in range(5)]
    with pytest.raises(QueueFull):
        engine.add(request(PROMPTS[0], greedy(2)))
    assert set(run(engine)) == set(sequences)


def test_logits_that_are_not_numbers_fail_their_own_request_alone(poisoned_model: LoadedModel, oracle: Oracle) -> None:
    engine = Engine(poisoned_model, config_with_blocks(poisoned_model, 20, max_batch_tokens=16))
    requests = [request(prompt, greedy()) for prompt in (PROMPTS[0], [3, POISON, 4], PROMPTS[1])]
    healthy, poisoned, other = generate(engine, requests)
    assert isinstance(poisoned[-1], GenerationFailed)
    assert tokens_of(healthy) == oracle.greedy(PROMPTS[0], 16)
    assert tokens_of(other) == oracle.greedy(PROMPTS[1], 16)
    assert engine.stats().failed == 1
    assert engine.stats().blocks_used == 0


def test_what_a_failed_request_left_in_its_blocks_reaches_nobody(poisoned_model: LoadedModel, oracle: Oracle) -> None:
    engine = Engine(poisoned_model, config_with_blocks(poisoned_model, 20))
    generate(engine, [request([POISON] * 60, greedy(2))])
    outcomes = generate(engine, [request(prompt, greedy(9)) for prompt in (PROMPTS[0], PROMPTS[1], PROMPTS[2])])
    assert [tokens_of(outcome) for outcome in outcomes] == [oracle.greedy(prompt, 9) for prompt in PROMPTS[:3]]


def test_scoring_a_prompt_that_yields_no_numbers_fails(poisoned_model: LoadedModel) -> None:
    engine = Engine(poisoned_model, small_config())
    (outcome,) = generate(engine, [request([3, POISON, 4], SamplingParams(max_tokens=0, prompt_logprobs=1))])
    assert isinstance(outcome[-1], GenerationFailed)


class RaisingExecutor:
    """An executor whose device raises on one token."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self.num_blocks, self.ahead, self.sample = executor.num_blocks, executor.ahead, executor.sample
        self.num_states = executor.num_states
        self.logits, self.copy_blocks, self.close = executor.logits, executor.copy_blocks, executor.close
        self.prepare = executor.prepare

    def forward(self, chunks: SequenceOf[Chunk]) -> StepRows:
        if any(POISON in chunk.sequence.tokens[chunk.start : chunk.stop] for chunk in chunks):
            raise RuntimeError("out of memory")
        return self._executor.forward(chunks)


def raising(loaded: LoadedModel) -> LoadedModel:
    """The model on such an executor."""
    return replace(loaded, open_executor=lambda config: RaisingExecutor(loaded.open_executor(config)))


def test_a_step_that_raises_fails_only_the_request_that_caused_it(tiny_model: LoadedModel, oracle: Oracle) -> None:
    engine = Engine(raising(tiny_model), small_config())
    requests = [request(prompt, greedy()) for prompt in (PROMPTS[0], [3, POISON, 4], PROMPTS[1])]
    healthy, raised, other = generate(engine, requests)
    assert isinstance(raised[-1], GenerationFailed)
    assert "out of memory" in str(raised[-1])
    assert tokens_of(healthy) == oracle.greedy(PROMPTS[0], 16)
    assert tokens_of(other) == oracle.greedy(PROMPTS[1], 16)


def test_the_advice_when_to_return_follows_how_often_requests_end(tiny_model: LoadedModel) -> None:
    ticks: Iterator[float] = iter(range(0, 10_000, 10))  # read when a request begins and when it ends
    engine = Engine(tiny_model, small_config(), clock=lambda: next(ticks))
    assert engine.retry_after_s == 1.0
    for _ in range(60):
        generate(engine, [request([5], greedy(1))])
    assert engine.retry_after_s == pytest.approx(20.0, abs=1.0)


def test_counts_of_tokens_and_requests_add_up(tiny_model: LoadedModel) -> None:
    engine = Engine(tiny_model, small_config())
    generate(engine, [request(prompt, greedy(5)) for prompt in PROMPTS[:3]])
    stats = engine.stats()
    assert stats.prompt_tokens == sum(len(prompt) for prompt in PROMPTS[:3])
    assert (stats.generated_tokens, stats.finished, stats.running, stats.waiting) == (15, 3, 0, 0)


def test_the_rate_of_tokens_follows_the_last_seconds(tiny_model: LoadedModel) -> None:
    now = [0.0]
    engine = Engine(tiny_model, small_config(), clock=lambda: now[0])
    engine.add(request([5], SamplingParams(temperature=0.0, ignore_eos=True)))
    for _ in range(60):
        engine.step()
        now[0] += 1.0
    assert engine.stats().tokens_per_s == pytest.approx(1.0, rel=0.1)
    now[0] += 30.0
    assert engine.stats().tokens_per_s < 0.1
