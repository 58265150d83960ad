"""The engine with its prefix cache answers as the one without, and says how much it did not compute."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from local_engine.config import EngineConfig
from local_engine.engine import Engine
from local_engine.errors import GenerationFailed
from local_engine.generation import GenerationRequest
from local_engine.loading.load import LoadedModel, load_model
from local_engine.sampling import SamplingParams
from tests.local_engine.engine_driver import (
    Outcome,
    config_with_blocks,
    generate,
    last,
    request,
    run,
    small_config,
    token_outputs,
    tokens_of,
)
from tests.local_engine.test_engine import POISON
from tests.local_engine.tiny_models import Oracle, tiny_oracle, write_safetensors

PROMPT = [(7 * index) % 40 + 8 for index in range(22)]
GREEDY = SamplingParams(temperature=0.0, max_tokens=10, ignore_eos=True, logprobs=3)


def cold(loaded: LoadedModel, item: GenerationRequest) -> Outcome:
    """The answer of an engine that has seen nothing and keeps nothing."""
    (outcome,) = generate(Engine(loaded, small_config(prefix_cache=False)), [item])
    assert last(outcome).cached_tokens == 0
    return outcome


def assert_same_answer(outcome: Outcome, expected: Outcome) -> None:
    """Equal tokens; logprobs but for the rounding of a batch of another shape."""
    assert tokens_of(outcome) == tokens_of(expected)
    for ours, theirs in zip(token_outputs(outcome), token_outputs(expected), strict=True):
        assert ours.logprob == pytest.approx(theirs.logprob, abs=1e-5)
        assert [token_id for token_id, _ in ours.top] == [token_id for token_id, _ in theirs.top]
        assert [value for _, value in ours.top] == pytest.approx([value for _, value in theirs.top], abs=1e-5)


@pytest.mark.parametrize("budget", [64, 3])
def test_the_same_prompt_again_reuses_its_full_blocks_and_answers_as_a_cold_engine(
    tiny_model: LoadedModel, budget: int
) -> None:
    engine = Engine(tiny_model, small_config(max_batch_tokens=budget))
    expected = cold(tiny_model, request(PROMPT, GREEDY))
    for cached_tokens in (0, 20, 20):
        (outcome,) = generate(engine, [request(PROMPT, GREEDY)])
        assert_same_answer(outcome, expected)
        assert {event.cached_tokens for event in outcome if not isinstance(event, Exception)} == {cached_tokens}
    stats = engine.stats()
    assert (stats.prompt_tokens, stats.prefix_hits, stats.blocks_used) == (66, 40, 0)


@pytest.mark.parametrize("length", [1, 4, 5, 8, 9])
def test_a_prompt_of_any_length_has_its_last_token_computed(tiny_model: LoadedModel, length: int) -> None:
    engine = Engine(tiny_model, small_config())
    item = request(PROMPT[:length], GREEDY)
    generate(engine, [item])
    (outcome,) = generate(engine, [item])
    assert_same_answer(outcome, cold(tiny_model, item))
    assert last(outcome).cached_tokens == (length - 1) // 4 * 4


def test_the_next_turn_of_a_chat_reuses_the_answer_as_well(tiny_model: LoadedModel) -> None:
    engine = Engine(tiny_model, small_config())
    (first,) = generate(engine, [request(PROMPT, GREEDY)])
    turn = request([*PROMPT, *tokens_of(first), 40, 41, 42], GREEDY)
    (second,) = generate(engine, [turn])
    assert_same_answer(second, cold(tiny_model, turn))
    assert last(second).cached_tokens == 28  # 22 + 10 tokens, of which the last was never computed


@pytest.mark.parametrize("other", [{"cache_salt": "b"}, {"cache_salt": None}, {"cache_salt": ""}])
def test_another_salt_finds_nothing(tiny_model: LoadedModel, other: dict[str, str | None]) -> None:
    engine = Engine(tiny_model, small_config())
    salted = replace(request(PROMPT, GREEDY), cache_salt="a")
    generate(engine, [salted])
    (foreign,) = generate(engine, [replace(salted, **other)])  # type: ignore[arg-type]
    (own,) = generate(engine, [salted])
    assert (last(foreign).cached_tokens, last(own).cached_tokens) == (0, 20)
    assert_same_answer(foreign, cold(tiny_model, salted))


def test_two_loads_of_one_file_never_share_keys(tiny_folder: Path) -> None:
    loads = [load_model(tiny_folder, EngineConfig()) for _ in range(2)]
    roots = [Engine(loaded, small_config()).add(request(PROMPT, GREEDY)).root for loaded in loads]
    again = Engine(loads[0], small_config()).add(request(PROMPT, GREEDY)).root
    other_type = Engine(loads[0], small_config(dtype="bfloat16")).add(request(PROMPT, GREEDY)).root
    assert len({*roots, other_type}) == 3
    assert again == roots[0]


def test_a_prompt_that_differs_in_its_first_token_finds_nothing(tiny_model: LoadedModel) -> None:
    engine = Engine(tiny_model, small_config())
    generate(engine, [request(PROMPT, GREEDY)])
    other = request([PROMPT[0] + 1, *PROMPT[1:]], GREEDY)
    (outcome,) = generate(engine, [other])
    assert last(outcome).cached_tokens == 0
    assert_same_answer(outcome, cold(tiny_model, other))


def test_running_sequences_share_what_they_have_in_common(tiny_model: LoadedModel) -> None:
    engine = Engine(tiny_model, small_config())
    items = [request([*PROMPT, 50 + index], GREEDY) for index in range(3)]
    sequences = [engine.add(items[0])]
    engine.step()
    sequences += [engine.add(item) for item in items[1:]]
    engine.step()
    assert len({tuple(sequence.blocks[:5]) for sequence in sequences}) == 1
    assert engine.stats().blocks_used == 5 + 3
    run(engine)
    assert [sequence.cached_tokens for sequence in sequences] == [0, 20, 20]
    assert [sequence.tokens[23:] for sequence in sequences] == [tokens_of(cold(tiny_model, item)) for item in items]


def test_choices_of_one_prompt_compute_it_once_and_each_answers_as_alone(tiny_model: LoadedModel) -> None:
    choices = [
        request(PROMPT, SamplingParams(temperature=0.9, seed=seed, max_tokens=8, ignore_eos=True, logprobs=1))
        for seed in range(4)
    ]
    outcomes = generate(Engine(tiny_model, small_config()), choices)
    assert [last(outcome).cached_tokens for outcome in outcomes] == [0, 20, 20, 20]
    for outcome, choice in zip(outcomes, choices, strict=True):
        assert_same_answer(outcome, cold(tiny_model, choice))


@pytest.mark.parametrize("leaver", [0, 1])
def test_aborting_one_of_two_sharers_changes_nothing_for_the_other(tiny_model: LoadedModel, leaver: int) -> None:
    engine = Engine(tiny_model, config_with_blocks(tiny_model, 16))
    pair = [engine.add(request(PROMPT, GREEDY)) for _ in range(2)]
    for _ in range(4):
        engine.step()
    assert pair[0].blocks[:5] == pair[1].blocks[:5]
    engine.abort(pair[leaver])
    engine.scheduler.check()
    for index in range(6):  # what the leaver freed is written over
        engine.add(request([60 + index] * 12, GREEDY))
    run(engine)
    assert pair[1 - leaver].tokens[22:] == tokens_of(cold(tiny_model, request(PROMPT, GREEDY)))


def test_the_cache_gives_way_to_sequences_and_the_answers_stay_right(tiny_model: LoadedModel) -> None:
    engine = Engine(tiny_model, config_with_blocks(tiny_model, 12))
    items = [request([30 + index, *PROMPT], GREEDY) for index in range(4)]
    expected = [cold(tiny_model, item) for item in items]
    for _ in range(2):
        for item, answer in zip(items, expected, strict=True):
            (outcome,) = generate(engine, [item])
            assert_same_answer(outcome, answer)
            assert last(outcome).cached_tokens == 0  # the three between have pushed it out
    (again,) = generate(engine, [items[-1]])
    assert last(again).cached_tokens == 20
    allocator = engine.scheduler.allocator
    assert allocator.num_used == 0
    assert allocator.num_free + allocator.num_cached == 12
    assert allocator.num_cached > 0


def test_preempted_sequences_come_back_through_the_cache_with_the_same_answers(tiny_model: LoadedModel) -> None:
    items = [request([*PROMPT[: 9 + 3 * index], 60 + index], GREEDY) for index in range(4)]
    expected = [tokens_of(cold(tiny_model, item)) for item in items]
    engine = Engine(tiny_model, config_with_blocks(tiny_model, 9, max_batch_tokens=16))
    outcomes = generate(engine, items)
    assert [tokens_of(outcome) for outcome in outcomes] == expected
    assert engine.stats().preemptions > 0


def test_a_scored_prompt_reads_nothing_from_the_cache_and_fills_it(tiny_model: LoadedModel, oracle: Oracle) -> None:
    scored = request(PROMPT, replace(GREEDY, prompt_logprobs=1))
    engine = Engine(tiny_model, small_config())
    generate(engine, [request(PROMPT[:12], GREEDY)])
    (outcome,) = generate(engine, [scored])
    (scores,) = [
        event.prompt_logprobs for event in outcome if not isinstance(event, Exception) and event.prompt_logprobs
    ]
    expected = torch.log_softmax(oracle.logits(PROMPT), -1)
    assert last(outcome).cached_tokens == 0
    assert [score.logprob for score in scores[1:]] == pytest.approx(
        [float(expected[position, token]) for position, token in enumerate(PROMPT[1:])], abs=2e-4
    )
    (after,) = generate(engine, [request(PROMPT, GREEDY)])
    assert last(after).cached_tokens == 20


def test_nothing_of_a_failed_request_stays_in_the_cache(tmp_path: Path) -> None:
    oracle = tiny_oracle()
    with torch.no_grad():
        oracle.model.model.embed_tokens.weight[POISON] = torch.nan
    engine = Engine(load_model(write_safetensors(oracle, tmp_path), EngineConfig()), small_config())
    (failed,) = generate(engine, [request([*PROMPT, POISON, *PROMPT], GREEDY)])
    assert isinstance(failed[-1], GenerationFailed)
    assert engine.scheduler.allocator.num_cached == 0
    (healthy,) = generate(engine, [request(PROMPT, GREEDY)])
    assert tokens_of(healthy) == oracle.greedy(PROMPT, 10)
    assert last(healthy).cached_tokens == 0


def test_switched_off_it_keeps_no_block(tiny_model: LoadedModel) -> None:
    engine = Engine(tiny_model, small_config(prefix_cache=False))
    for _ in range(2):
        (outcome,) = generate(engine, [request(PROMPT, GREEDY)])
        assert last(outcome).cached_tokens == 0
    assert engine.scheduler.allocator.num_cached == 0
    assert engine.stats().prefix_hits == 0
