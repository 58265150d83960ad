"""The scheduler alone, with a make-believe device: any order of arrivals, aborts and pauses keeps every promise."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from local_engine.block_allocator import BlockAllocator
from local_engine.errors import QueueFull
from local_engine.generation import GenerationRequest
from local_engine.sampling import SamplingParams
from local_engine.scheduler import Chunk, Scheduler
from local_engine.sequence import Sequence

BLOCK = 4


class World:
    """A scheduler and the sequences put into it. `step` does what an engine would, generating token 1 each time."""

    def __init__(self, *, blocks: int, budget: int, slots: int, queue: int = 1000) -> None:
        self.scheduler = Scheduler(
            BlockAllocator(blocks), block_size=BLOCK, max_batch_tokens=budget, max_sequences=slots, queue=queue
        )
        self.window = blocks * BLOCK
        self.arrivals = 0
        self.finished: list[Sequence] = []

    def add(self, length: int, answer: int, *, priority: int = 0) -> Sequence:
        length = min(length, self.window - 1)
        request = GenerationRequest("r", (1,) * length, SamplingParams(), priority)
        sequence = Sequence(request, self.arrivals, 0, frozenset(), min(answer, self.window - length))
        self.arrivals += 1
        self.scheduler.add(sequence)
        return sequence

    def step(self) -> list[Chunk]:
        chunks = self.scheduler.schedule()
        for chunk in chunks:
            sequence = chunk.sequence
            assert chunk.start == sequence.num_computed < chunk.stop <= len(sequence.tokens)
            assert len(sequence.blocks) * BLOCK >= chunk.stop
            self.scheduler.advance(chunk)
            if chunk.reaches_end:
                sequence.append(1)
                if sequence.num_generated >= sequence.max_tokens:
                    self.scheduler.remove(sequence)
                    self.finished.append(sequence)
        return chunks

    def run(self, *, steps: int = 5000) -> None:
        for _ in range(steps):
            if not self.step():
                return
            self.scheduler.check()
        raise AssertionError("the scheduler did not come to an end")


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
    )
    def start(self, blocks: int, budget: int, slots: int, queue: int) -> None:
        self.world = World(blocks=blocks, budget=budget, slots=slots, queue=queue)
        self.budget = budget

    @rule(length=st.integers(1, 60), answer=st.integers(1, 30), priority=st.integers(-1, 1))
    def add(self, length: int, answer: int, priority: int) -> None:
        scheduler = self.world.scheduler
        full = scheduler.num_unfinished >= scheduler.limit
        try:
            self.live.append(self.world.add(length, answer, priority=priority))
        except QueueFull:
            assert full
        else:
            assert not full

    @rule(count=st.integers(1, 6))
    def step(self, count: int) -> None:
        for _ in range(count):
            runnable = self.world.scheduler.runnable
            chunks = self.world.step()
            assert bool(chunks) == runnable  # whoever can run makes progress, every step
            assert len({chunk.sequence for chunk in chunks}) == len(chunks)
            assert not any(chunk.sequence.paused for chunk in chunks)
            prompts = sum(chunk.stop - chunk.start for chunk in chunks if chunk.stop - chunk.start > 1)
            assert prompts <= max(self.budget, BLOCK)
            self.live = [sequence for sequence in self.live if sequence not in self.world.finished]

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        sequence = data.draw(st.sampled_from(self.live))
        self.live.remove(sequence)
        held = len(sequence.blocks)
        before = self.world.scheduler.allocator.num_free
        self.world.scheduler.remove(sequence)
        assert self.world.scheduler.allocator.num_free == before + held

    @precondition(lambda self: self.live)
    @rule(data=st.data(), paused=st.booleans())
    def pause(self, data: st.DataObject, paused: bool) -> None:
        data.draw(st.sampled_from(self.live)).paused = paused

    @invariant()
    def blocks_and_sets_agree(self) -> None:
        self.world.scheduler.check()

    def teardown(self) -> None:
        for sequence in self.live:
            sequence.paused = False
        self.world.run()  # nothing starves
        assert not self.world.scheduler.num_unfinished
        assert self.world.scheduler.allocator.num_used == 0
        assert all(sequence in self.world.finished for sequence in self.live)


SchedulerMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
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
