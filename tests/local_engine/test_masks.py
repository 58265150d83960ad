"""Masks of requests: filled beside the steps, each its own request's alone, through search and preemption."""

import threading
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from local_engine.engine import Engine
from local_engine.errors import GenerationFailed
from local_engine.generation import GenerationRequest
from local_engine.loading.load import LoadedModel
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
from tests.local_engine.tiny_models import VOCAB_SIZE, Oracle

PROMPT = (9, 8, 11, 12)


def greedy(count: int = 12) -> SamplingParams:
    return SamplingParams(temperature=0.0, max_tokens=count, ignore_eos=True)


class Counting:
    """Allows token n modulo `modulus` at place n of the answer; complete after `length` tokens."""

    def __init__(self, modulus: int = 5, length: int = 1000, place: int = 0) -> None:
        self.modulus, self.length, self.place = modulus, length, place

    def fill(self, row: npt.NDArray[np.uint32]) -> None:
        for token_id in range(VOCAB_SIZE):
            if token_id % self.modulus == self.place % self.modulus:
                row[token_id // 32] |= np.uint32(1 << (token_id % 32))

    def accept(self, token_id: int) -> bool:
        assert token_id % self.modulus == self.place % self.modulus
        self.place += 1
        return self.place == self.length

    def fork(self) -> "Counting":
        return Counting(self.modulus, self.length, self.place)


class Failing(Counting):
    """Raises in one of its methods once two tokens are there."""

    def __init__(self, method: str, place: int = 0) -> None:
        super().__init__(place=place)
        self.method = method

    def fill(self, row: npt.NDArray[np.uint32]) -> None:
        if self.place == 2 and self.method == "fill":
            raise ValueError("no such state")
        if self.place == 2 and self.method == "length":
            row[len(row)] = 1
        super().fill(row)

    def accept(self, token_id: int) -> bool:
        if self.place == 1 and self.method == "accept":
            raise ValueError("no such token")
        return super().accept(token_id)

    def fork(self) -> "Failing":
        if self.place == 2 and self.method == "fork":
            raise ValueError("no more forks")
        return Failing(self.method, self.place)


class Slow(Counting):
    """Takes for ever to fill its second row, until it is let go on."""

    def __init__(self) -> None:
        super().__init__()
        self.go_on = threading.Event()

    def fill(self, row: npt.NDArray[np.uint32]) -> None:
        if self.place == 1:
            assert self.go_on.wait(20)
        super().fill(row)


class Gated(Counting):
    """Fills a row when its gate is opened, which then is shut again."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.filled = threading.Event(), threading.Event()

    def fill(self, row: npt.NDArray[np.uint32]) -> None:
        assert self.gate.wait(20)
        self.gate.clear()
        super().fill(row)
        self.filled.set()


def masked(mask: Counting, sampling: SamplingParams | None = None) -> GenerationRequest:
    return GenerationRequest("r", PROMPT, sampling or greedy(), mask=mask)


def follows(outcome: Outcome, modulus: int = 5) -> bool:
    return all(token % modulus == place % modulus for place, token in enumerate(tokens_of(outcome)))


def test_an_answer_follows_its_mask_and_its_neighbours_none(tiny_model: LoadedModel, oracle: Oracle) -> None:
    outcomes = generate(
        Engine(tiny_model, small_config()), [masked(Counting()), request(PROMPT, greedy()), masked(Counting(3))]
    )
    assert follows(outcomes[0])
    assert follows(outcomes[2], 3)
    assert [len(tokens_of(outcome)) for outcome in outcomes] == [12] * 3
    assert tokens_of(outcomes[1]) == oracle.greedy(list(PROMPT), 12)


def test_a_complete_answer_ends_with_stop(tiny_model: LoadedModel) -> None:
    (outcome,) = generate(Engine(tiny_model, small_config()), [masked(Counting(length=4))])
    assert len(tokens_of(outcome)) == 4
    assert (last(outcome).finish, last(outcome).stop_token_id) == ("stop", None)


def test_logprobs_are_of_the_unmasked_distribution(tiny_model: LoadedModel) -> None:
    free = replace(greedy(1), logprobs=3)
    outcomes = generate(Engine(tiny_model, small_config()), [masked(Counting(), free), request(PROMPT, free)])
    (held,), (loose,) = map(token_outputs, outcomes)
    assert held.top == loose.top
    assert held.token_id % 5 == 0


@pytest.mark.parametrize("beam_search", [False, True])
@pytest.mark.parametrize("method", ["fill", "accept", "length", "fork"])
def test_a_mask_that_fails_fails_its_own_request_alone(
    tiny_model: LoadedModel, oracle: Oracle, method: str, beam_search: bool
) -> None:
    if method == "fork" and not beam_search:
        return
    sampling = replace(greedy(), n=3, beam_search=True) if beam_search else greedy()
    engine = Engine(tiny_model, small_config())
    failed, healthy = generate(engine, [masked(Failing(method), sampling), request(PROMPT, greedy())])
    error = failed[-1]
    assert isinstance(error, GenerationFailed)
    assert "ValueError" in str(error) or "IndexError" in str(error)
    assert tokens_of(healthy) == oracle.greedy(list(PROMPT), 12)
    assert engine.stats().blocks_used == 0
    assert engine.stats().failed == 1


def test_a_slow_mask_holds_back_nobody_else(tiny_model: LoadedModel, oracle: Oracle) -> None:
    engine = Engine(tiny_model, small_config())
    slow = Slow()
    held = engine.add(masked(slow))
    others = [engine.add(request(PROMPT, greedy())), engine.add(masked(Counting()))]
    outcomes: dict[object, Outcome] = {}
    for _ in range(2000):
        for sequence, event in engine.step():
            outcomes.setdefault(sequence, []).append(event)
        engine.scheduler.check()
        if all(sequence.done for sequence in others):
            break
    assert tokens_of(outcomes[others[0]]) == oracle.greedy(list(PROMPT), 12)
    assert len(tokens_of(outcomes[held])) == 1
    slow.go_on.set()
    for sequence, events in run(engine, steps=100_000).items():
        outcomes.setdefault(sequence, []).extend(events)
    assert len(tokens_of(outcomes[held])) == 12
    assert follows(outcomes[held])


def test_a_mask_that_is_always_late_costs_its_neighbours_no_step(tiny_model: LoadedModel) -> None:
    """Each of its rows is let come only when the neighbours have gone on by two tokens."""
    engine = Engine(tiny_model, small_config())
    gated = Gated()
    held = engine.add(masked(gated))
    others = [engine.add(request(PROMPT, greedy(40))) for _ in range(3)]
    gated.gate.set()
    late = computed = 0
    for _ in range(2000):
        before = [other.num_generated for other in others]
        events = dict(engine.step())
        ahead = [other.num_generated - count for other, count in zip(others, before, strict=True)]
        assert len(set(ahead)) == 1, "what is late holds up all of them or none"
        if held in events and held.num_generated > 1:
            late += 1
            assert ahead[0] == 0, "its own token comes by itself"
        computed += ahead[0]
        if held.parked and computed % 2 == 0:
            gated.filled.clear()
            gated.gate.set()
            assert gated.filled.wait(20)
        if others[0].done:
            break
    assert computed == 40
    assert late > 5
    engine.close()


def test_an_abort_while_a_mask_is_awaited_frees_everything(tiny_model: LoadedModel) -> None:
    engine = Engine(tiny_model, small_config())
    slow = Slow()
    held = engine.add(masked(slow))
    while not held.parked:
        engine.step()
    engine.abort(held)
    assert not engine.scheduler.num_unfinished
    assert engine.stats().blocks_used == 0
    slow.go_on.set()


def test_preempted_and_searched_answers_follow_their_masks(tiny_model: LoadedModel) -> None:
    sampling = replace(greedy(), temperature=1.0, seed=4)
    several = [sampling, replace(sampling, n=3), replace(sampling, n=3, beam_search=True)]
    expected = [generate(Engine(tiny_model, small_config()), [masked(Counting(), one)])[0] for one in several]
    engine = Engine(tiny_model, config_with_blocks(tiny_model, 16, max_batch_tokens=8))
    outcomes = generate(engine, [masked(Counting(), one) for one in several])
    assert engine.stats().preemptions > 0
    for outcome, alone in zip(outcomes, expected, strict=True):
        answers, same = ([last(o), *last(o).others] for o in (outcome, alone))
        if len(answers) == 1:
            assert tokens_of(outcome) == tokens_of(alone)
        for answer, other in zip(answers, same, strict=True):
            ids = [token.token_id for token in answer.tokens]
            assert ids == [token.token_id for token in other.tokens]
            assert len(answers) == 1 or all(token % 5 == place % 5 for place, token in enumerate(ids))


def test_a_mask_that_allows_fewer_answers_than_beams_were_asked_for_says_so(tiny_model: LoadedModel) -> None:
    sampling = replace(greedy(), n=3, beam_search=True)
    (outcome,) = generate(Engine(tiny_model, small_config()), [masked(Counting(modulus=128, length=3), sampling)])
    assert isinstance(outcome[-1], GenerationFailed)
    assert "1 answers of the 3" in str(outcome[-1])
