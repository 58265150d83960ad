"""The plans of one step: one a distinct window, and none made twice."""

import torch

from local_engine.batch import Batch, build_batch
from local_engine.chunk import Chunk
from local_engine.generation import GenerationRequest
from local_engine.sampling import SamplingParams
from local_engine.sequence import Sequence


def batch_of(spans: list[tuple[int, int]], windows: tuple[int | None, ...]) -> Batch:
    chunks = []
    for number, (start, stop) in enumerate(spans):
        sequence = Sequence(GenerationRequest("r", (1,) * stop, SamplingParams()), number, 0, frozenset(), 1)
        sequence.blocks = [1 + number * 50 + index for index in range(-(-stop // 4))]
        chunks.append(Chunk(sequence, start, stop))
    return build_batch(chunks, block_size=4, device=torch.device("cpu"), dtype=torch.float32, windows=windows)


def test_layers_of_different_windows_get_a_plan_each_that_writes_to_the_same_slots() -> None:
    batch = batch_of([(30, 31), (0, 12)], (None, 5, 20))
    assert set(batch.plans) == {None, 5, 20}
    assert len({id(plan.write_slots) for plan in batch.plans.values()}) == 1
    seen = {window: [group.slots for group in plan.groups] for window, plan in batch.plans.items()}
    sizes = {window: [slots.stop - slots.start for slots in each] for window, each in seen.items()}  # type: ignore[union-attr]
    assert sizes == {None: [31, 12], 5: [5, 12], 20: [20, 12]}


def test_a_window_that_reaches_to_the_beginning_shares_the_plan_without_one() -> None:
    batch = batch_of([(6, 7), (0, 9)], (None, 9, 8))
    assert batch.plans[9] is batch.plans[None]
    assert batch.plans[8] is not batch.plans[None]
