"""The scheduler alone, with a make-believe device: any order of arrivals, aborts and pauses keeps every promise."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from local_engine.errors import QueueFull
from local_engine.scheduler import MAX_PASSES
from local_engine.sequence import Sequence
from tests.local_engine.scheduler_world import BLOCK, World


class SchedulerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World(blocks=2, budget=8, slots=1)
        self.budget = 8
        self.live: list[Sequence] = []

    @initialize(
        blocks=st.integers(2, 12),
        budget=st.sampled_from([1, 3, 8, 64]),
        slots=st.integers(1, 5),
        queue=st.integers(0, 4),
        prefix_cache=st.booleans(),
        states=st.sampled_from([0, 2, 5, 9, 30]),
    )
    def start(self, blocks: int, budget: int, slots: int, queue: int, prefix_cache: bool, states: int) -> None:
        self.world = World(
            blocks=blocks, budget=budget, slots=slots, queue=queue, prefix_cache=prefix_cache, states=states
        )
        self.budget = budget

    @rule(
        length=st.integers(1, 60),
        answer=st.integers(1, 30),
        priority=st.integers(-1, 1),
        token=st.integers(1, 2),
        scored=st.booleans(),
    )
    def add(self, length: int, answer: int, priority: int, token: int, scored: bool) -> None:
        scheduler = self.world.scheduler
        full = scheduler.num_unfinished >= scheduler.limit
        try:
            self.live.append(self.world.add(length, answer, priority=priority, token=token, scored=scored))
        except QueueFull:
            assert full
        else:
            assert not full

    @precondition(lambda self: any(sequence.num_generated for sequence in self.live))
    @rule(data=st.data(), answer=st.integers(1, 9))
    def fork(self, data: st.DataObject, answer: int) -> None:
        parent = data.draw(st.sampled_from([sequence for sequence in self.live if sequence.num_generated]))
        if parent.num_prompt + parent.num_generated < self.world.window:
            self.live.append(self.world.fork(parent, answer))

    @rule(count=st.integers(1, 6), draft=st.sampled_from([(), (1,), (1, 1, 9), (9, 1)]))
    def step(self, count: int, draft: tuple[int, ...]) -> None:
        for _ in range(count):
            runnable = self.world.scheduler.runnable
            chunks = self.world.step(() if self.world.scheduler.states.needed else draft)
            assert bool(chunks) == runnable  # whoever can run makes progress, every step
            assert len({chunk.sequence for chunk in chunks}) == len(chunks)
            assert not any(chunk.sequence.idle for chunk in chunks)
            prompts = sum(c.stop - c.start for c in chunks if c.stop - c.start - len(c.draft) > 1)
            assert prompts <= max(self.budget, BLOCK)
            assert sum(len(chunk.draft) for chunk in chunks) <= self.budget
            self.live = [sequence for sequence in self.live if sequence not in self.world.finished]

    @precondition(lambda self: self.live)
    @rule(data=st.data(), sound=st.booleans())
    def abort(self, data: st.DataObject, sound: bool) -> None:
        scheduler = self.world.scheduler
        sequence = data.draw(st.sampled_from(self.live))
        self.live.remove(sequence)
        others = {block for other in scheduler.running if other is not sequence for block in other.blocks}
        alone = set(sequence.blocks) - others
        before = scheduler.allocator.num_available
        scheduler.remove(sequence, sound=sound)
        assert scheduler.allocator.num_available == before + len(alone)

    @precondition(lambda self: self.live)
    @rule(data=st.data(), paused=st.booleans())
    def pause(self, data: st.DataObject, paused: bool) -> None:
        data.draw(st.sampled_from(self.live)).paused = paused

    @precondition(lambda self: self.live)
    @rule(data=st.data(), parked=st.booleans())
    def park(self, data: st.DataObject, parked: bool) -> None:
        data.draw(st.sampled_from(self.live)).parked = parked

    @invariant()
    def blocks_and_sets_agree(self) -> None:
        scheduler, allocator = self.world.scheduler, self.world.scheduler.allocator
        scheduler.check()
        assert allocator.num_free + allocator.num_cached + allocator.num_used == allocator.num_blocks
        assert allocator.num_used == len({block for sequence in scheduler.running for block in sequence.blocks})
        assert scheduler.prefix_cache or not allocator.num_cached

    def teardown(self) -> None:
        for sequence in self.live:
            sequence.paused = sequence.parked = False
        self.world.run()  # nothing starves
        assert not self.world.scheduler.num_unfinished
        assert self.world.scheduler.allocator.num_used == 0
        assert all(sequence in self.world.finished for sequence in self.live)


SchedulerMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=25)
TestSchedulerMachine = SchedulerMachine.TestCase


def test_decoding_sequences_and_chunks_of_prompts_share_a_step() -> None:
    world = World(blocks=40, budget=8, slots=8)
    first = world.add(3, 20)
    world.step()
    second = world.add(20, 5)
    sizes = []
    while second.num_generated == 0:
        sizes.append({chunk.sequence: chunk.stop - chunk.start for chunk in world.step()})
    assert [size[first] for size in sizes] == [1, 1, 1]
    assert [size[second] for size in sizes] == [7, 7, 6]


def test_a_prompt_begins_behind_the_full_blocks_that_others_left_or_still_hold() -> None:
    world = World(blocks=40, budget=64, slots=8)
    left = world.add(10, 1, token=1)
    world.step()
    assert left in world.finished
    holder = world.add(14, 9, token=1)
    world.step()
    sharer = world.add(14, 9, token=1)
    (chunk,) = (chunk for chunk in world.step() if chunk.sequence is sharer)
    assert (holder.cached_tokens, sharer.cached_tokens) == (8, 12)
    assert (chunk.start, chunk.stop) == (12, 14)
    assert sharer.blocks[:3] == holder.blocks[:3]
    assert sharer.blocks[3] != holder.blocks[3]


def test_the_last_token_of_a_prompt_is_computed_even_if_all_its_blocks_are_cached() -> None:
    world = World(blocks=40, budget=64, slots=8)
    world.add(8, 1, token=1)
    world.step()
    again = world.add(8, 1, token=1)
    (chunk,) = world.step()
    assert (again.cached_tokens, chunk.start, chunk.stop) == (4, 4, 8)


def test_equal_prompts_that_arrive_together_are_computed_once() -> None:
    world = World(blocks=40, budget=12, slots=8)
    sequences = [world.add(22, 5, token=1) for _ in range(4)]
    other = world.add(3, 5, token=2)
    computed = []
    while not all(sequence.num_generated for sequence in sequences):
        computed.append({chunk.sequence: chunk.stop - chunk.start for chunk in world.step()})
    assert computed[0] == {sequences[0]: 9, other: 3}
    assert computed[1] == {sequences[0]: 11, other: 1}
    assert [sequence.cached_tokens for sequence in sequences] == [0, 20, 20, 20]
    assert all(step.get(sequence, 2) == 2 for step in computed for sequence in sequences[1:])


def test_a_prompt_that_waits_for_anothers_computing_keeps_its_place_among_the_running() -> None:
    world = World(blocks=40, budget=64, slots=2)
    leader, follower = world.add(22, 9, token=1), world.add(22, 2, token=1)
    last = world.add(3, 2)
    world.step()
    assert world.scheduler.waiting == [follower, last]
    world.step()
    assert world.scheduler.running == [leader, follower]
    world.run()


def test_a_prompt_that_waits_for_anothers_computing_is_not_lost_when_that_one_is_aborted() -> None:
    world = World(blocks=40, budget=4, slots=8)
    leader, follower = world.add(22, 5, token=1), world.add(22, 5, token=1)
    world.step()
    world.scheduler.remove(leader)
    world.run()
    assert world.finished == [follower]
    assert follower.cached_tokens == 4


def test_a_preempted_sequence_returns_behind_its_own_blocks() -> None:
    world = World(blocks=20, budget=64, slots=1)
    background = world.add(15, 12, priority=5)
    for _ in range(4):
        world.step()
    urgent = world.add(8, 2)
    world.step()
    assert background in world.scheduler.waiting
    chunks = itertools.chain.from_iterable(iter(world.step, []))
    resumed_at = next(chunk.start for chunk in chunks if chunk.sequence is background)
    assert world.finished == [urgent]
    assert resumed_at == 16
    assert background.cached_tokens == 0  # its own blocks are no hit
    world.run()


def sizes_of(world: World) -> dict[Sequence, int]:
    return {chunk.sequence: chunk.stop - chunk.start for chunk in world.step()}


def test_a_prompt_longer_than_a_step_leaves_half_of_it_to_short_ones_behind_it() -> None:
    world = World(blocks=80, budget=16, slots=8)
    long = world.add(100, 5)
    assert sizes_of(world) == {long: 16}
    short, longer = world.add(5, 1), world.add(90, 5)
    assert sizes_of(world) == {long: 8, short: 5, longer: 3}
    middle = world.add(12, 1)
    for _ in range(3):
        assert sizes_of(world) == {long: 8, longer: 4, middle: 4}
    assert world.finished == [short, middle]
    assert sizes_of(world) == {long: 16}


def test_what_a_long_prompt_would_leave_is_its_own_where_nobody_can_take_it() -> None:
    world = World(blocks=80, budget=16, slots=1)
    long, short = world.add(60, 5), world.add(5, 1)
    assert sizes_of(world) == {long: 16}
    assert world.scheduler.waiting == [short]


def test_a_long_prompt_that_is_mostly_cached_counts_as_a_short_one() -> None:
    world = World(blocks=80, budget=16, slots=8)
    world.add(60, 1, token=1)
    world.run()
    long, again = world.add(100, 5), world.add(60, 1, token=1)
    assert sizes_of(world) == {long: 12, again: 4}


def test_without_the_prefix_cache_nothing_is_kept() -> None:
    world = World(blocks=40, budget=64, slots=8, prefix_cache=False)
    world.add(20, 1, token=1)
    world.step()
    again = world.add(20, 1, token=1)
    world.step()
    assert again.cached_tokens == 0
    assert world.scheduler.allocator.num_free == 40


def test_a_long_prompt_at_the_head_is_not_overtaken() -> None:
    world = World(blocks=8, budget=64, slots=8)
    running = world.add(20, 8)
    world.step()
    long = world.add(24, 2)
    short = world.add(2, 2)
    world.step()
    assert long in world.scheduler.waiting
    assert short in world.scheduler.waiting
    world.run()
    assert world.finished.index(running) < world.finished.index(long)


def test_a_better_priority_takes_the_place_of_a_worse_one() -> None:
    world = World(blocks=8, budget=64, slots=8)
    background = world.add(20, 10, priority=5)
    world.step()
    urgent = world.add(20, 2, priority=0)
    world.step()
    assert urgent in world.scheduler.running
    assert background in world.scheduler.waiting
    world.run()
    assert world.finished == [urgent, background]
    assert world.scheduler.preemptions == 1


@settings(max_examples=40)
@given(
    blocks=st.integers(4, 12),
    slots=st.integers(1, 4),
    budget=st.sampled_from([1, 4, 64]),
    flow=st.lists(st.tuples(st.integers(1, 30), st.integers(1, 20), st.integers(-3, 4)), min_size=1, max_size=8),
)
def test_a_steady_flow_of_better_priorities_holds_nobody_back_for_ever(
    blocks: int, slots: int, budget: int, flow: list[tuple[int, int, int]]
) -> None:
    world = World(blocks=blocks, budget=budget, slots=slots)
    patient = [world.add(14, 6, priority=5), world.add(3, 6, priority=9)]
    arriving = itertools.cycle(flow)
    for _ in range(6000):
        while len(world.scheduler.waiting) < 4:
            length, answer, priority = next(arriving)
            world.add(length, answer, priority=priority)
        world.step()
        if all(sequence in world.finished for sequence in patient):
            break
    assert all(sequence in world.finished for sequence in patient)


def test_priorities_are_strict_up_to_the_bound_of_passes() -> None:
    world = World(blocks=8, budget=64, slots=1)
    patient = world.add(4, 2, priority=1)
    for _ in range(2 * MAX_PASSES):
        world.add(4, 2, priority=0)
    world.run()
    assert world.finished.index(patient) == MAX_PASSES


def test_forks_share_their_blocks_until_one_of_them_writes() -> None:
    world = World(blocks=20, budget=64, slots=8)
    parent = world.add(9, 6)
    world.step()
    child = world.fork(parent, 6)
    assert child.blocks == parent.blocks
    assert world.scheduler.allocator.num_used == 3
    world.step()
    assert world.copies == [(3, 4)]
    assert child.blocks[:2] == parent.blocks[:2]
    assert {parent.blocks[2], child.blocks[2]} == {3, 4}
    world.step()
    assert world.copies == []
    world.run()
    assert set(world.finished) == {parent, child}


def test_the_last_holder_of_a_shared_block_writes_without_a_copy() -> None:
    world = World(blocks=20, budget=64, slots=8)
    parent = world.add(9, 6)
    world.step()
    child = world.fork(parent, 6)
    world.scheduler.remove(parent)
    world.step()
    assert world.copies == []
    assert child.num_generated == 2


def test_a_fork_of_a_sequence_without_blocks_is_computed_anew() -> None:
    world = World(blocks=4, budget=64, slots=1)
    parent = world.add(5, 3, priority=1)
    world.step()
    world.add(5, 2)
    world.step()
    assert not parent.blocks
    child = world.fork(parent, 3)
    assert child in world.scheduler.waiting
    world.run()
    assert {parent, child} <= set(world.finished)


def test_drafts_take_only_blocks_and_tokens_that_nobody_needs() -> None:
    world = World(blocks=5, budget=4, slots=4)
    first, second = world.add(3, 9), world.add(3, 9)
    world.step()
    world.step()
    chunks = world.step(draft=(1, 1, 1))
    assert [len(chunk.draft) for chunk in chunks if chunk.sequence in (first, second)] == [0, 0]
    world.scheduler.remove(second)
    (chunk,) = world.step(draft=(1, 1, 9))
    assert chunk.draft == (1, 1, 9)
    assert first.num_computed == len(first.tokens) - 1


def test_equal_priorities_run_in_order_of_arrival() -> None:
    world = World(blocks=64, budget=64, slots=1)
    sequences = [world.add(4, 2) for _ in range(4)]
    world.run()
    assert world.finished == sequences


def test_the_sequence_that_came_last_gives_up_its_blocks_first() -> None:
    world = World(blocks=6, budget=64, slots=4)
    first, second = world.add(6, 18), world.add(6, 10)
    world.run()
    assert world.scheduler.preemptions > 0
    assert world.finished == [first, second]
    assert second.num_generated == 10


def test_a_newcomer_waits_rather_than_take_the_block_that_a_running_sequence_needs_next() -> None:
    world = World(blocks=4, budget=64, slots=4)
    first = world.add(5, 7)
    world.step()
    second = world.add(8, 4)
    world.run()
    assert world.finished == [first, second]
    assert world.scheduler.preemptions == 0


def test_a_paused_sequence_gives_up_its_blocks_to_others_and_returns() -> None:
    world = World(blocks=6, budget=64, slots=4)
    slow = world.add(16, 4)
    world.step()
    slow.paused = True
    other = world.add(16, 4)
    world.run()
    assert world.finished == [other]
    assert not world.scheduler.runnable
    slow.paused = False
    world.run()
    assert world.finished == [other, slow]


def test_one_more_than_the_bound_is_refused_and_says_when_to_return() -> None:
    world = World(blocks=8, budget=64, slots=2, queue=3)
    for _ in range(5):
        world.add(4, 2)
    with pytest.raises(QueueFull) as caught:
        world.add(4, 2)
    assert caught.value.limit == 5
    assert caught.value.retry_after_s > 0
    world.run()
    world.add(4, 2)


def test_removing_a_sequence_that_is_not_held_is_an_error() -> None:
    world = World(blocks=8, budget=64, slots=2)
    sequence = world.add(4, 2)
    world.scheduler.remove(sequence)
    with pytest.raises(ValueError):
        world.scheduler.remove(sequence)
