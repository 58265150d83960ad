"""Guessed tokens change no answer: greedy and seeded ones are the very same, and draws keep their distribution."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from local_engine.config import EngineConfig
from local_engine.draft_model import DraftModel
from local_engine.drafting import NgramDrafter
from local_engine.engine import Engine
from local_engine.errors import InvalidInput
from local_engine.generation import GenerationRequest, StepOutput
from local_engine.loading.load import LoadedModel, load_model
from local_engine.sampling import Dry, SamplingParams
from local_engine.sequence import Sequence
from tests.local_engine.engine_driver import (
    Outcome,
    config_with_blocks,
    generate,
    last,
    request,
    small_config,
    token_outputs,
    tokens_of,
)
from tests.local_engine.tiny_models import STOP_ID, Oracle, tiny_oracle, write_safetensors

PROMPTS = [[(7 * row + 3 * column) % 40 + 8 for column in range(3 + 5 * row)] for row in range(5)]
REPEATING = [20, 21, 22, 23, 24, 25] * 4
PARAMS: list[dict[str, Any]] = [
    {"temperature": 0.0},
    {"temperature": 0.0, "repetition_penalty": 1.3, "frequency_penalty": 0.5},
    {"seed": 1},
    {"seed": 2, "temperature": 0.7, "top_p": 0.9, "top_p_decay": 0.9, "min_p": 0.01},
    {"seed": 3, "top_k": 20, "presence_penalty": 0.5, "logprobs": 2},
    {"seed": 4, "temperature": 0.6, "bad_words": ((30,), (31, 32)), "logit_bias": {40: 3.0}, "min_tokens": 9},
    {"seed": 5, "dry": Dry(0.5, breakers=frozenset({23})), "xtc_probability": 0.5, "xtc_threshold": 0.05},
    {"seed": 6, "top_n_sigma": 1.5, "dynatemp_range": 0.5, "repetition_penalty": 1.2, "repeat_last_n": 9},
]


@pytest.fixture(scope="module")
def other_model(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    """A smaller model of the same vocabulary, which guesses wrong mostly."""
    oracle = tiny_oracle(seed=9, num_hidden_layers=1)
    return load_model(write_safetensors(oracle, tmp_path_factory.mktemp("draft") / "model"), EngineConfig())


def requests() -> list[GenerationRequest]:
    # A bias makes the tiny model repeat itself, so that looking up finds something.
    made = []
    for number, values in enumerate(PARAMS):
        sampling = SamplingParams(**{"max_tokens": 20, "logit_bias": dict.fromkeys(range(20, 26), 4.0), **values})
        made += [request(PROMPTS[number % 5], sampling), request(REPEATING, sampling)]
    return made


def engine(loaded: LoadedModel, draft: LoadedModel | None, **overrides: Any) -> Engine:
    return Engine(loaded, small_config(**{"draft_tokens": 4} | overrides), draft=draft)


def same(outcomes: list[Outcome], others: list[Outcome]) -> bool:
    ends = [[(last(o).finish, last(o).stop_token_id) for o in side] for side in (outcomes, others)]
    return [tokens_of(o) for o in outcomes] == [tokens_of(o) for o in others] and ends[0] == ends[1]


@pytest.fixture(scope="module")
def plain(tiny_model: LoadedModel) -> list[Outcome]:
    return generate(Engine(tiny_model, small_config()), requests())


@pytest.mark.parametrize("guesser", ["lookup", "itself", "another model"])
@pytest.mark.parametrize("tokens", [1, 4, 9])
def test_greedy_and_seeded_answers_are_the_very_same(
    tiny_model: LoadedModel,
    other_model: LoadedModel,
    plain: list[Outcome],
    guesser: str,
    tokens: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    draft = {"lookup": None, "itself": tiny_model, "another model": other_model}[guesser]
    speculating = engine(tiny_model, draft, draft_tokens=tokens)
    outcomes = generate(speculating, requests())
    assert same(outcomes, plain)
    assert not caplog.records  # no step went without guesses because of a defect
    stats = speculating.stats()
    assert stats.accepted_draft_tokens > 0
    assert stats.blocks_used == 0
    reported = [(last(outcome).accepted_draft_tokens, last(outcome).rejected_draft_tokens) for outcome in outcomes]
    assert stats.accepted_draft_tokens == sum(accepted for accepted, _ in reported)
    assert stats.rejected_draft_tokens == sum(rejected for _, rejected in reported)


@pytest.mark.parametrize("draft_kv_blocks", [None, 2, 12])
@pytest.mark.parametrize(("blocks", "budget"), [(17, 64), (24, 6), (60, 9)])
def test_preempted_and_chunked_ones_too(
    tiny_model: LoadedModel,
    plain: list[Outcome],
    blocks: int,
    budget: int,
    draft_kv_blocks: int | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    config = config_with_blocks(tiny_model, blocks, max_batch_tokens=budget, draft_tokens=4)
    draft = None
    if draft_kv_blocks is not None:
        draft = tiny_model
        config = replace(config, draft_kv_bytes=config_with_blocks(tiny_model, draft_kv_blocks).kv_bytes)
    assert same(generate(Engine(tiny_model, config, draft=draft), requests()), plain)
    assert not caplog.records


def test_logprobs_are_those_without_guesses(tiny_model: LoadedModel) -> None:
    sampling = SamplingParams(temperature=0.0, logprobs=3, max_tokens=12, ignore_eos=True)
    (guessed,), (alone,) = (
        generate(one, [request(REPEATING, sampling)])
        for one in (engine(tiny_model, tiny_model), Engine(tiny_model, small_config()))
    )
    for token, other in zip(token_outputs(guessed), token_outputs(alone), strict=True):
        assert token.token_id == other.token_id
        assert token.logprob == pytest.approx(other.logprob, abs=1e-4)


def test_a_right_guess_saves_steps(tiny_model: LoadedModel) -> None:
    sampling = SamplingParams(temperature=0.0, max_tokens=20, ignore_eos=True)
    (outcome,) = generate(engine(tiny_model, tiny_model), [request(PROMPTS[1], sampling)])
    assert len(tokens_of(outcome)) == 20
    assert len(outcome) <= 5  # five tokens a step
    end = last(outcome)
    assert (end.accepted_draft_tokens, end.rejected_draft_tokens) == (15, 0)


def test_guesses_end_where_the_answer_does(tiny_model: LoadedModel, oracle: Oracle) -> None:
    answer = oracle.greedy(PROMPTS[1], 12)
    sampling = SamplingParams(temperature=0.0, max_tokens=30, stop_token_ids=(answer[6],), ignore_eos=True)
    (outcome,) = generate(engine(tiny_model, tiny_model), [request(PROMPTS[1], sampling)])
    assert tokens_of(outcome) == answer[: answer.index(answer[6])]
    assert last(outcome).stop_token_id == answer[6]


@pytest.mark.parametrize("itself", [False, True])
def test_draws_keep_their_distribution(tiny_model: LoadedModel, oracle: Oracle, itself: bool) -> None:
    """The first two tokens, the second drawn behind a guess, against the oracle's probabilities."""
    keep = (20, 21, 22)
    prompt = [token for first in keep for second in keep for token in (first, second, 21)]  # each pair goes on somehow
    sampling = SamplingParams(max_tokens=3, allowed_token_ids=keep, temperature=3.0)
    speculating = engine(tiny_model, tiny_model if itself else None, max_batch_tokens=4096, queue=2000)
    outcomes = generate(speculating, [request(prompt, replace(sampling, seed=seed)) for seed in range(1500)])
    assert speculating.stats().accepted_draft_tokens > 200
    assert itself or speculating.stats().rejected_draft_tokens > 200
    pairs = Counter(tuple(tokens_of(outcome)[:2]) for outcome in outcomes)
    first = torch.softmax(oracle.logits(prompt)[-1][list(keep)] / 3.0, -1)
    for place, token in enumerate(keep):
        second = torch.softmax(oracle.logits([*prompt, token])[-1][list(keep)] / 3.0, -1)
        for other, probability in zip(keep, second.tolist(), strict=True):
            expected = float(first[place]) * probability
            spread = (expected * (1 - expected) / len(outcomes)) ** 0.5
            assert abs(pairs[token, other] / len(outcomes) - expected) < 4 * spread


def test_a_drafter_that_fails_costs_its_guesses_only(tiny_model: LoadedModel, oracle: Oracle) -> None:
    class Broken(NgramDrafter):
        def draft(self, wanted: Mapping[Sequence, int]) -> dict[Sequence, tuple[int, ...]]:
            raise RuntimeError("out of memory")

    broken = engine(tiny_model, None)
    broken._drafter = Broken()
    sampling = SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True)
    (outcome,) = generate(broken, [request(PROMPTS[2], sampling)])
    assert tokens_of(outcome) == oracle.greedy(PROMPTS[2], 8)


def test_a_draft_model_of_another_vocabulary_is_refused(tiny_model: LoadedModel, tmp_path: Path) -> None:
    oracle = tiny_oracle(vocab_size=96)
    other = load_model(write_safetensors(oracle, tmp_path / "model"), EngineConfig())
    with pytest.raises(InvalidInput, match="draft: has a vocabulary of 96 tokens, the model one of 128"):
        engine(tiny_model, other)


def test_nothing_is_kept_of_sequences_that_ended(tiny_model: LoadedModel) -> None:
    for draft in (None, tiny_model):
        speculating = engine(tiny_model, draft)
        aborted = speculating.add(request(REPEATING, SamplingParams(seed=1, ignore_eos=True)))
        for _ in range(4):
            speculating.step()
        speculating.abort(aborted)
        generate(speculating, requests()[:3])
        drafter = speculating._drafter
        if isinstance(drafter, NgramDrafter):
            assert not drafter._lookups
        else:
            assert isinstance(drafter, DraftModel)
            assert not drafter._twins
            drafter._allocator.check([])


def test_lookup_guesses_what_followed_the_longest_and_latest_match() -> None:
    def guess(tokens: list[int], count: int = 3) -> tuple[int, ...]:
        sequence = Sequence(GenerationRequest("r", tuple(tokens), SamplingParams()), 0, 0, frozenset({STOP_ID}), 9)
        return NgramDrafter().draft({sequence: count})[sequence]

    assert guess([1, 2, 3, 4, 5, 6, 2, 3, 4]) == (5, 6, 2)
    assert guess([1, 2, 3, 9, 2, 3, 8, 2, 3]) == (8, 2, 3)
    assert guess([1, 2, 3, 9, 5, 2, 3, 7, 1, 2, 3]) == (9, 5, 2)
    assert guess([1, 2, 3, 4]) == ()
    assert guess([5, 5, 5, 5]) == (5, 5, 5)
    assert guess([9, 5, 6, 5, 6, 5, 6], 5) == (5, 6, 5, 6, 5)
    assert guess([7]) == ()


def test_a_sequence_is_guessed_for_while_that_pays() -> None:
    """Of a step that costs as much as four rows more than its own."""
    drafter = NgramDrafter(step_rows=4.0)
    sequences = [
        Sequence(GenerationRequest("r", tuple(REPEATING), SamplingParams()), number, 0, frozenset({STOP_ID}), 99)
        for number in range(16)
    ]
    alone, *others = sequences

    def count(*, beside: int = 0) -> int:
        return len(drafter.draft(dict.fromkeys([alone, *others[:beside]], 16))[alone])

    def go_on(*, right: int = 0, wrong: int = 0) -> None:
        alone.accepted_drafts += right
        alone.rejected_drafts += wrong
        for _ in range(right + 1):
            alone.append(REPEATING[len(alone.tokens) % 6])

    assert count() == 5
    assert [count(beside=others) for others in (1, 3, 15)] == [3, 2, 0]
    for _ in range(20):
        go_on(wrong=5)
        count()
    assert count() == 0
    for _ in range(200):  # what was is forgotten
        go_on()
        count()
    assert count() == 5
    go_on(right=16)
    assert count() > 12
    assert count(beside=15) == 4


def test_guesses_are_reported_in_each_output(tiny_model: LoadedModel) -> None:
    sampling = SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True)
    (outcome,) = generate(engine(tiny_model, tiny_model), [request(PROMPTS[1], sampling)])
    counts = [event.accepted_draft_tokens for event in outcome if isinstance(event, StepOutput)]
    assert counts == sorted(counts)
    assert counts[-1] > 0
