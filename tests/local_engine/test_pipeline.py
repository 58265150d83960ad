"""Steps that are planned before the last one's tokens are known: the same answers as step by step."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from local_engine.async_engine import AsyncEngine
from local_engine.engine import Engine
from local_engine.errors import GenerationFailed
from local_engine.generation import GenerationRequest, StepOutput
from local_engine.loading.load import LoadedModel
from local_engine.sampling import SamplingParams
from local_engine.sequence import Sequence
from tests.local_engine.delayed_device import delayed
from tests.local_engine.engine_driver import Outcome, config_with_blocks, generate, last, request, run, small_config
from tests.local_engine.engine_driver import tokens_of as tokens_of
from tests.local_engine.test_engine import POISON, PROMPTS, poisoned_model

__all__ = ["poisoned_model"]

GREEDY = SamplingParams(temperature=0.0, max_tokens=16, ignore_eos=True)
SEEDED = SamplingParams(temperature=1.5, top_k=30, top_p=0.95, seed=11, max_tokens=20)


def requests_of(sampling: Callable[[int], SamplingParams]) -> list[GenerationRequest]:
    return [request(prompt, sampling(index)) for index, prompt in enumerate(PROMPTS)]


def ends(outcomes: list[Outcome]) -> list[tuple[list[int], str | None, int | None]]:
    return [(tokens_of(outcome), last(outcome).finish, last(outcome).stop_token_id) for outcome in outcomes]


@pytest.mark.parametrize(
    "overrides", [{}, {"max_batch_tokens": 5}, {"max_sequences": 2}, {"prefix_cache": False}], ids=str
)
def test_answers_are_those_of_the_synchronous_loop(tiny_model: LoadedModel, overrides: dict[str, object]) -> None:
    requests = requests_of(lambda index: GREEDY if index % 2 else replace(SEEDED, seed=index))
    expected = ends(generate(Engine(tiny_model, small_config(**overrides)), requests))
    ahead, devices = delayed(tiny_model)
    assert ends(generate(Engine(ahead, small_config(**overrides)), requests)) == expected
    assert devices[0].blind_launches > 10


def test_an_end_token_found_a_step_late_ends_the_answer_where_it_stands(tiny_model: LoadedModel) -> None:
    free = [
        tokens_of(outcome) for outcome in generate(Engine(tiny_model, small_config()), requests_of(lambda _: GREEDY))
    ]
    # Each answer is stopped by the token that it has at another place.
    stops = [answer[2 + index] for index, answer in enumerate(free)]
    requests = requests_of(lambda index: replace(GREEDY, stop_token_ids=(stops[index],)))
    ahead, _ = delayed(tiny_model)
    engine = Engine(ahead, small_config())
    for answer, stop, outcome in zip(free, stops, generate(engine, requests), strict=True):
        assert tokens_of(outcome) == answer[: answer.index(stop)]
        assert (last(outcome).finish, last(outcome).stop_token_id) == ("stop", stop)
    assert engine.stats().blocks_used == 0


@pytest.mark.parametrize("blocks", [12, 17, 24])
def test_preempted_sequences_give_the_same_answers(tiny_model: LoadedModel, blocks: int) -> None:
    requests = requests_of(lambda index: GREEDY if index % 2 else replace(SEEDED, seed=index))
    expected = ends(generate(Engine(tiny_model, small_config()), requests))
    ahead, devices = delayed(tiny_model)
    engine = Engine(ahead, config_with_blocks(tiny_model, blocks))
    assert ends(generate(engine, requests)) == expected
    assert engine.scheduler.preemptions > 0
    assert devices[0].blind_launches > 10


def test_an_answer_ends_at_its_length_without_a_step_too_many(tiny_model: LoadedModel) -> None:
    ahead, devices = delayed(tiny_model)
    (outcome,) = generate(Engine(ahead, small_config()), [request(PROMPTS[0], replace(GREEDY, max_tokens=5))])
    assert last(outcome).finish == "length"
    assert len(tokens_of(outcome)) == devices[0].launches == 5


def test_the_window_may_be_filled_to_its_end(tiny_model: LoadedModel) -> None:
    ahead, _ = delayed(tiny_model)
    engine = Engine(ahead, small_config(max_context=20))
    (outcome,) = generate(engine, [request(PROMPTS[1], replace(GREEDY, max_tokens=None))])
    assert len(PROMPTS[1]) + len(tokens_of(outcome)) == 20


def test_aborts_at_any_moment_change_nobody_else_and_free_all_blocks(tiny_model: LoadedModel) -> None:
    expected = ends(generate(Engine(tiny_model, small_config()), requests_of(lambda _: GREEDY)))
    for seed in range(6):
        ahead, _ = delayed(tiny_model)
        engine = Engine(ahead, config_with_blocks(tiny_model, 20))
        sequences = [engine.add(item) for item in requests_of(lambda _: GREEDY)]
        chance = random.Random(seed)
        victims = chance.sample(range(len(sequences)), 3)
        outcomes: dict[Sequence, Outcome] = {}
        for victim in victims:
            for _ in range(chance.randrange(8)):
                for sequence, event in engine.step():
                    outcomes.setdefault(sequence, []).append(event)
                engine.scheduler.check()
            engine.abort(sequences[victim])
        for sequence, events in run(engine).items():
            outcomes.setdefault(sequence, []).extend(events)
        for index, sequence in enumerate(sequences):
            if index not in victims:
                assert ends([outcomes[sequence]]) == [expected[index]]
        assert engine.stats().blocks_used == 0


def test_a_paused_sequence_goes_on_where_it_was(tiny_model: LoadedModel) -> None:
    (expected,) = ends(generate(Engine(tiny_model, small_config()), [request(PROMPTS[2], GREEDY)]))
    ahead, _ = delayed(tiny_model)
    engine = Engine(ahead, small_config())
    sequence = engine.add(request(PROMPTS[2], GREEDY))
    outcome: Outcome = []
    for _ in range(4):
        outcome += [event for _, event in engine.step()]
    engine.pause(sequence)
    outcome += [event for _, event in engine.step()]  # what was under way is heard of
    assert not engine.has_work
    engine.resume(sequence)
    outcome += run(engine)[sequence]
    assert ends([outcome]) == [expected]


def test_requests_that_need_the_host_run_step_by_step_beside_others(tiny_model: LoadedModel) -> None:
    def sampling(index: int) -> SamplingParams:
        return [replace(GREEDY, max_tokens=30), replace(SEEDED, typical_p=0.5), replace(GREEDY, prompt_logprobs=2)][
            index % 3
        ]

    expected = generate(Engine(tiny_model, small_config()), requests_of(sampling))
    ahead, devices = delayed(tiny_model)
    engine = Engine(ahead, small_config())
    first = engine.add(request(PROMPTS[0], sampling(0)))
    begun: list[Outcome] = [[event for _, event in engine.step()] for _ in range(3)]
    rest = [engine.add(item) for item in requests_of(sampling)[1:]]
    outcomes = run(engine)
    mine = [event for events in begun for event in events] + outcomes[first]
    assert told([mine, *(outcomes[sequence] for sequence in rest)]) == told(expected)
    assert devices[0].launches > 8  # ahead before the others came, and again after they were gone


def test_penalties_biases_and_logprobs_need_no_host(tiny_model: LoadedModel) -> None:
    kinds = (
        replace(SEEDED, repetition_penalty=1.3, frequency_penalty=0.5),
        replace(GREEDY, presence_penalty=2.0, logprobs=3),
        replace(SEEDED, logit_bias={5: 4.0, 9: -3.0}, min_tokens=6, stop_token_ids=(5, 20, 30, 40), logprobs=0),
        replace(SEEDED, allowed_token_ids=tuple(range(60)), bad_words=((7,), (20,))),
    )
    requests = requests_of(lambda index: replace(kinds[index % 4], seed=index))
    expected = generate(Engine(tiny_model, small_config()), requests)
    ahead, devices = delayed(tiny_model)
    found = generate(Engine(ahead, small_config()), requests)
    assert ends(found) == ends(expected)
    assert told(found) == told(expected)
    assert devices[0].launches == devices[0].blind_launches + 1


def told(outcomes: list[Outcome]) -> list[tuple[int, bool, list[int]]]:
    """What is told of each token, but for logarithms, which a batch of another shape rounds otherwise."""
    tokens = [token for outcome in outcomes for event in outcome for token in _output(event).tokens]
    return [(token.token_id, token.logprob is None, [token_id for token_id, _ in token.top]) for token in tokens]


def _output(event: object) -> StepOutput:
    assert isinstance(event, StepOutput)
    return event


def test_a_prompt_that_arrives_a_step_later_waits_for_what_is_under_way(tiny_model: LoadedModel) -> None:
    ahead, _ = delayed(tiny_model)
    engine = Engine(ahead, small_config())
    prompt = list(range(20, 40))
    engine.add(request(prompt, GREEDY))
    assert engine.step() == []
    late = engine.add(request([*prompt, 41], GREEDY))
    assert last(run(engine)[late]).cached_tokens == 20


def test_logits_that_are_not_numbers_fail_their_own_request_alone(
    poisoned_model: LoadedModel, tiny_model: LoadedModel
) -> None:
    requests = [request(prompt, GREEDY) for prompt in (PROMPTS[0], [3, POISON, 4], PROMPTS[1])]
    expected = ends(generate(Engine(tiny_model, small_config()), [requests[0], requests[2]]))
    ahead, _ = delayed(poisoned_model)
    engine = Engine(ahead, small_config())
    healthy, failed, other = generate(engine, requests)
    assert ends([healthy, other]) == expected
    assert isinstance(failed[-1], GenerationFailed)
    assert engine.stats().failed == 1


@pytest.mark.parametrize("kind", ["raise_at", "refuse_at"])
@pytest.mark.parametrize("step", [1, 2, 5, 9])
def test_a_step_that_the_device_loses_is_computed_again(tiny_model: LoadedModel, kind: str, step: int) -> None:
    requests = requests_of(lambda _: GREEDY)
    expected = ends(generate(Engine(tiny_model, small_config()), requests))
    ahead, devices = delayed(tiny_model, **{kind: frozenset({step})})
    engine = Engine(ahead, small_config())
    assert ends(generate(engine, requests)) == expected
    assert devices[0].launches > step
    assert engine.stats().failed == 0


def test_a_device_that_launches_nothing_is_asked_step_by_step(tiny_model: LoadedModel) -> None:
    requests = requests_of(lambda _: GREEDY)
    expected = ends(generate(Engine(tiny_model, small_config()), requests))
    ahead, _ = delayed(tiny_model, refuse_at=frozenset(range(1, 1000)))
    assert ends(generate(Engine(ahead, small_config()), requests)) == expected


@pytest.mark.parametrize("seed", range(8))
def test_whatever_happens_together_every_answer_is_the_lone_one(tiny_model: LoadedModel, seed: int) -> None:
    """Arrivals, aborts, pauses, end tokens, preemption, requests that need the host, and a step that is lost."""
    chance = random.Random(seed)
    kinds = (GREEDY, SEEDED, replace(SEEDED, frequency_penalty=0.4), replace(SEEDED, typical_p=0.8))
    requests = []
    for index in range(14):
        stops = tuple(chance.sample(range(128), 12))
        kind = chance.choices(kinds, weights=(4, 4, 4, 1))[0]
        sampling = replace(kind, stop_token_ids=stops, max_tokens=chance.randint(1, 20))
        prompt = [chance.randrange(8, 60) for _ in range(chance.randint(1, 24))]
        requests.append(request(prompt, replace(sampling, seed=index), priority=chance.randint(0, 1)))
    expected = [ends(generate(Engine(tiny_model, small_config()), [item]))[0] for item in requests]
    ahead, devices = delayed(tiny_model, raise_at=frozenset({chance.randint(5, 20)}))
    engine = Engine(ahead, config_with_blocks(tiny_model, 16, max_batch_tokens=chance.choice((6, 64))))
    outcomes: dict[Sequence, Outcome] = {}
    added: list[Sequence] = []
    aborted: set[Sequence] = set()
    waiting = list(requests)
    for _ in range(400):
        if waiting and chance.random() < 0.4:
            added.append(engine.add(waiting.pop(0)))
        live = [sequence for sequence in added if not sequence.done]
        if live and chance.random() < 0.1:
            chosen = chance.choice(live)
            chosen.paused = not chosen.paused
        if live and len(aborted) < 2 and chance.random() < 0.03:
            aborted.add(chance.choice(live))
            engine.abort(next(sequence for sequence in live if sequence in aborted))
        for sequence, event in engine.step():
            outcomes.setdefault(sequence, []).append(event)
        engine.scheduler.check()
    for sequence in added:
        sequence.paused = False
    for sequence, events in run(engine).items():
        outcomes.setdefault(sequence, []).extend(events)
    for index, sequence in enumerate(added):
        if sequence not in aborted:
            assert ends([outcomes[sequence]]) == [expected[index]]
    assert devices[0].blind_launches > 2
    assert engine.stats().blocks_used == 0


def test_one_that_needs_the_host_and_is_paused_holds_nobody_back(tiny_model: LoadedModel) -> None:
    ahead, devices = delayed(tiny_model)
    engine = Engine(ahead, small_config())
    held = engine.add(request(PROMPTS[1], replace(SEEDED, typical_p=0.5)))
    for _ in range(3):
        engine.step()
    assert devices[0].launches == 0
    engine.pause(held)
    engine.add(request(PROMPTS[0], GREEDY))
    run(engine)
    assert devices[0].blind_launches == 15


async def test_streams_read_answers_that_are_computed_ahead(tiny_model: LoadedModel) -> None:
    expected = [
        tokens for tokens, _, _ in ends(generate(Engine(tiny_model, small_config()), requests_of(lambda _: GREEDY)))
    ]
    ahead, devices = delayed(tiny_model)
    engine = AsyncEngine(ahead, small_config(threads=1, delivery_tokens=3))

    async def read(item: GenerationRequest) -> list[int]:
        return [token.token_id async for output in engine.generate(item) for token in output.tokens]

    found = await asyncio.gather(*map(read, requests_of(lambda _: GREEDY)))
    await engine.aclose()
    assert found == expected
    assert devices[0].blind_launches > 5
