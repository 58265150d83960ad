"""Chunks as arrays: the order of rows, slots and tables, tokens that only the device knows, and padding."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from local_engine.chunk import Chunk
from local_engine.generation import GenerationRequest
from local_engine.kernels.gpu.graphs import ladder
from local_engine.kernels.gpu.step_rows import host_step, step_tensors, table_width
from local_engine.sampling import SamplingParams
from local_engine.sequence import Sequence


def sequence(prompt: list[int], blocks: list[int]) -> Sequence:
    made = Sequence(GenerationRequest("r", tuple(prompt), SamplingParams()), 0, 0, frozenset(), 9)
    made.blocks = blocks
    return made


LONG = sequence([10, 11, 12, 13, 14, 15], [3, 5])
SHORT = sequence([20, 21], [7])
CHUNKS = [Chunk(LONG, 2, 6), Chunk(SHORT, 1, 2)]


def test_rows_that_decode_come_first_then_sequence_by_sequence() -> None:
    step = host_step(CHUNKS, block_size=4, drawn={})
    assert [chunk.sequence for chunk in step.chunks] == [SHORT, LONG]
    assert step.first_row == (0, 1)
    assert step.token_ids.tolist() == [21, 12, 13, 14, 15]
    assert step.positions.tolist() == [1, 2, 3, 4, 5]
    assert step.slots.tolist() == [29, 14, 15, 20, 21]
    assert step.lengths.tolist() == [2, 6]
    assert (step.num_decodes, step.query_starts.tolist(), step.max_queries) == (1, [0, 4], 4)
    assert step.block_tables[:, :2].tolist() == [[7, 0], [3, 5]]


def test_without_rows_that_decode_apart_every_chunk_is_a_prompt() -> None:
    step = host_step(CHUNKS, block_size=4, drawn={}, decodes_apart=False)
    assert [chunk.sequence for chunk in step.chunks] == [LONG, SHORT]
    assert (step.num_decodes, step.query_starts.tolist(), step.max_queries) == (0, [0, 4, 5], 4)


def test_tokens_that_only_the_device_knows_are_taken_there() -> None:
    ahead = sequence([30], [9])
    ahead.num_pending = 1
    step = host_step([Chunk(SHORT, 1, 2), Chunk(ahead, 1, 2)], block_size=4, drawn={ahead: 1})
    drawn = torch.tensor([55, 66])
    on_device = step_tensors(step, torch.device("cpu"), drawn=drawn, splits=1)
    assert on_device.token_ids.tolist() == [21, 66]
    failed = step_tensors(step, torch.device("cpu"), drawn=torch.tensor([55, -1]), splits=1)
    assert failed.token_ids.tolist() == [21, 0]  # a token that can be looked up; nobody reads what follows


def test_padding_attends_to_nothing_and_writes_nowhere() -> None:
    step = host_step([Chunk(SHORT, 1, 2)], block_size=4, drawn={}).padded(4)
    assert step.token_ids.tolist() == [21, 0, 0, 0]
    assert step.slots.tolist() == [29, -1, -1, -1]
    assert step.lengths.tolist() == [2, 0, 0, 0]
    assert step.block_tables.shape == (4, 16)
    assert step.only_decodes


@pytest.mark.parametrize("largest", [1, 2, 5, 31, 256, 1000])
def test_a_ladder_ends_at_the_largest_batch_and_pads_at_most_by_half(largest: int) -> None:
    sizes = ladder(largest)
    assert sizes[-1] == largest
    assert list(sizes) == sorted(set(sizes))
    assert all(after <= 2 * before for before, after in pairwise(sizes))


def test_tables_have_widths_that_sixteen_divides() -> None:
    assert [table_width(longest, 4) for longest in (1, 64, 65, 1000)] == [16, 16, 32, 256]
    assert np.array(host_step(CHUNKS, block_size=4, drawn={}).block_tables).shape == (2, 16)
