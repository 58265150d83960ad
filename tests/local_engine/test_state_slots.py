"""Snapshots of states, and the sequences that begin behind them."""

import pytest

from local_engine.sequence import Sequence
from tests.local_engine.scheduler_world import World


def _cached(world: World, length: int, answer: int = 1) -> int:
    """How much of a prompt of equal tokens is there when it begins."""
    sequence = world.add(length, answer, token=5)
    world.run()
    assert sequence.cached_tokens is not None
    return sequence.cached_tokens


def test_a_prompt_begins_behind_the_last_block_of_one_before_it() -> None:
    world = World(blocks=60, budget=64, slots=4, states=20)
    assert [_cached(world, length) for length in (40, 40, 60, 60)] == [0, 36, 40, 56]


def test_a_prompt_that_needs_several_steps_leaves_a_snapshot_after_each() -> None:
    world = World(blocks=60, budget=17, slots=4, states=20)
    assert [_cached(world, length) for length in (80, 30)] == [0, 16]


def test_a_short_prompt_costs_no_further_step_for_a_snapshot() -> None:
    world = World(blocks=60, budget=64, slots=4, states=20)
    world.add(15, 1, token=5)
    (chunk,) = world.step()
    assert chunk.stop == 15


def test_of_an_answer_the_last_full_block_has_a_snapshot() -> None:
    world = World(blocks=60, budget=64, slots=4, states=20)
    first = world.add(18, 21, token=1)  # the world answers with this token too
    world.run()
    assert first.num_generated == 21
    again = world.add(30, 1, token=1)
    longer = world.add(60, 1, token=1)
    world.run()
    # At 20 is the first full block behind the prompt, at 36 the last one that was computed; those between are gone.
    assert again.cached_tokens == 16
    assert longer.cached_tokens == 36


def test_without_free_slots_the_longest_unused_snapshot_goes() -> None:
    world = World(blocks=200, budget=64, slots=1, states=4)
    tokens = range(1, 8)
    for token in tokens:
        world.add(20, 1, token=token)
        world.run()
    found = [world.add(20, 1, token=token) for token in reversed(tokens)]
    world.run()
    assert found[0].cached_tokens == 16
    assert found[-1].cached_tokens == 0


def test_a_request_that_failed_leaves_no_snapshot() -> None:
    world = World(blocks=60, budget=16, slots=4, states=20)
    failing = world.add(40, 1, token=5)
    world.step()
    world.step()
    world.scheduler.remove(failing, sound=False)
    world.scheduler.check()
    assert _cached(world, 40) == 0


@pytest.mark.parametrize("states", [4, 5, 11])
def test_as_many_run_as_have_two_slots(states: int) -> None:
    world = World(blocks=200, budget=64, slots=10, states=states)
    sequences: list[Sequence] = [world.add(6, 9) for _ in range(8)]
    world.step()
    assert len(world.scheduler.running) == states // 2
    world.run()
    assert len(world.finished) == len(sequences)


def test_prompts_that_arrive_together_compute_once_what_they_have_in_common() -> None:
    world = World(blocks=100, budget=64, slots=8, states=40)
    sequences = [world.add(40, 1, token=5) for _ in range(4)]
    world.run()
    assert [sequence.cached_tokens for sequence in sequences] == [0, 36, 36, 36]
