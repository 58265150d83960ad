"""A step's plan says to the other ranks what the chunks say to this one."""

import numpy as np

from local_engine.adapters import Adapter
from local_engine.chunk import Chunk
from local_engine.generation import GenerationRequest
from local_engine.parallel.step_plan import asked_rows, parsed_pairs, parsed_plan, plan_bytes
from local_engine.sampling import SamplingParams
from local_engine.sequence import Sequence


def sequence_of(num_tokens: int, blocks: list[int]) -> Sequence:
    sequence = Sequence(GenerationRequest("r", tuple(range(num_tokens)), SamplingParams()), 0, 0, frozenset(), 1)
    sequence.blocks = blocks
    return sequence


def test_a_plan_is_read_as_it_was_written() -> None:
    adapter = Adapter("7", {})
    prompt, decoding = sequence_of(9, [4, 5, 6]), sequence_of(6, [9, 8, 7, 3])
    prompt.uncut = ((0, 2), (3, 6))
    prompt.adapter = adapter
    chunks = [Chunk(prompt, 4, 9), Chunk(decoding, 5, 8, draft=(60, 61))]
    payload = plan_bytes(
        chunks,
        num_asked={chunks[1]: 3},
        adapters={chunks[0]: 7},
        logits_follow=True,
        block_size=4,
        forgotten=[2, 3],
    )
    plan = parsed_plan(payload, {7: adapter})
    assert (plan.logits_follow, plan.forgotten, plan.spans) == (True, [2, 3], [[], []])
    first, second = plan.chunks
    assert (first.start, first.stop, first.tokens, first.sequence.blocks) == (4, 9, [4, 5, 6, 7, 8], [4, 5, 6])
    assert (first.sequence.uncut, first.sequence.adapter, first.num_asked) == (((3, 6),), adapter, 0)
    # Blocks that the chunk does not reach are left out.
    assert (second.tokens, second.draft, second.sequence.blocks) == ([5, 60, 61], (60, 61), [9, 8])
    assert asked_rows(plan.chunks, [0, 5], [0, 3]) == [5, 6, 7]


def test_pairs_of_blocks_are_read_as_they_were_written() -> None:
    pairs = [(1, 2), (3, 4)]
    assert parsed_pairs(np.array(pairs, dtype=np.int32).tobytes()) == pairs
