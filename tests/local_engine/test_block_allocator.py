"""Blocks have exactly the holders they were given; wrong use is an error, not a corruption."""

import pytest

from local_engine.block_allocator import PADDING_BLOCK, BlockAllocator


def test_all_blocks_can_be_taken_once_and_the_padding_block_never() -> None:
    allocator = BlockAllocator(5)
    blocks = allocator.allocate(5)
    assert blocks is not None
    assert sorted(blocks) == [1, 2, 3, 4, 5]
    assert PADDING_BLOCK not in blocks
    assert allocator.allocate(1) is None
    assert (allocator.num_used, allocator.num_free) == (5, 0)


def test_asking_for_too_many_takes_none() -> None:
    allocator = BlockAllocator(3)
    assert allocator.allocate(4) is None
    assert allocator.num_free == 3


def test_a_shared_block_is_free_after_its_last_holder_left() -> None:
    allocator = BlockAllocator(2)
    blocks = allocator.allocate(1)
    assert blocks is not None
    allocator.share(blocks)
    allocator.check([blocks, blocks])
    allocator.free(blocks)
    assert allocator.num_free == 1
    allocator.free(blocks)
    assert allocator.num_free == 2
    allocator.check([])


@pytest.mark.parametrize("block", [PADDING_BLOCK, 1, 9, -1])
def test_freeing_or_sharing_a_block_that_is_not_in_use_is_an_error(block: int) -> None:
    allocator = BlockAllocator(2)
    with pytest.raises(ValueError, match="not in use"):
        allocator.free([block])
    with pytest.raises(ValueError, match="not in use"):
        allocator.share([block])
    allocator.check([])


def test_the_integrity_check_notices_a_lost_and_a_doubled_block() -> None:
    allocator = BlockAllocator(4)
    blocks = allocator.allocate(2)
    assert blocks is not None
    allocator.check([blocks])
    with pytest.raises(ValueError, match="holders"):
        allocator.check([])
    with pytest.raises(ValueError, match="holders"):
        allocator.check([blocks, blocks])


def test_freed_low_blocks_are_used_again_before_untouched_ones() -> None:
    allocator = BlockAllocator(100)
    first = allocator.allocate(3)
    assert first == [1, 2, 3]
    allocator.free(first)
    assert allocator.allocate(3) == first
