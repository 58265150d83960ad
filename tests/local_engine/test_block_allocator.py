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


def taken(allocator: BlockAllocator, count: int) -> list[int]:
    blocks = allocator.allocate(count)
    assert blocks is not None
    return blocks


def cached(allocator: BlockAllocator, *keys: bytes) -> list[int]:
    """Blocks with these keys that nobody holds."""
    blocks = taken(allocator, len(keys))
    for block, key in zip(blocks, keys, strict=True):
        allocator.cache(block, key)
    allocator.free(blocks)
    return blocks


def test_a_cached_block_is_found_by_its_key_and_used_again() -> None:
    allocator = BlockAllocator(4)
    blocks = cached(allocator, b"a", b"b")
    assert (allocator.num_free, allocator.num_cached, allocator.num_used) == (2, 2, 0)
    assert allocator.lookup([b"a", b"b", b"c"]) == blocks
    assert allocator.lookup([b"c", b"a"]) == []
    assert allocator.allocate(1, reused=blocks) == [*blocks, 3]
    allocator.check([[*blocks, 3]])
    assert (allocator.num_free, allocator.num_cached, allocator.num_used) == (1, 0, 3)


def test_a_used_block_is_shared_through_its_key() -> None:
    allocator = BlockAllocator(4)
    first = taken(allocator, 2)
    allocator.cache(first[0], b"a")
    second = allocator.allocate(1, reused=allocator.lookup([b"a"]))
    assert second == [first[0], 3]
    allocator.check([first, second])
    allocator.free(first)
    allocator.check([second])
    assert allocator.lookup([b"a"]) == [first[0]]


def test_the_longest_unused_blocks_are_taken_when_no_free_one_is_left() -> None:
    allocator = BlockAllocator(4)
    cached(allocator, b"a")
    cached(allocator, b"b", b"b2")
    allocator.allocate(0, reused=allocator.lookup([b"a"]))
    allocator.free([1])
    assert sorted(taken(allocator, 2)) == [3, 4]  # the free one, and the end of the older chain
    assert allocator.lookup([b"b", b"b2"]) == [2]
    assert taken(allocator, 1) == [2]
    assert allocator.lookup([b"a"]) == [1]
    assert taken(allocator, 1) == [1]
    assert allocator.lookup([b"a"]) == []
    assert allocator.allocate(1) is None
    allocator.check([[1, 2, 3, 4]])


def test_blocks_to_reuse_are_never_the_ones_evicted_for_what_follows_them() -> None:
    allocator = BlockAllocator(3)
    reused = cached(allocator, b"a", b"b")
    assert allocator.allocate(2, reused=reused) is None
    assert allocator.allocate(1, reused=reused, spare=1) is None
    allocator.check([])
    assert allocator.allocate(1, reused=reused) == [1, 2, 3]


def test_the_first_block_with_a_content_keeps_its_key() -> None:
    allocator = BlockAllocator(3)
    cached(allocator, b"a")
    (other,) = taken(allocator, 1)
    allocator.cache(other, b"a")
    assert allocator.lookup([b"a"]) == [1]
    allocator.free([other])
    assert (allocator.num_free, allocator.num_cached) == (2, 1)
    allocator.check([])


def test_forgotten_blocks_are_found_no_more_and_stay_with_their_holders() -> None:
    allocator = BlockAllocator(3)
    blocks = taken(allocator, 2)
    allocator.share(blocks)
    allocator.cache(blocks[0], b"a")
    allocator.forget(blocks)
    assert allocator.lookup([b"a"]) == []
    allocator.free(blocks)
    allocator.check([blocks])
    allocator.free(blocks)
    assert allocator.num_free == 3


def test_only_a_block_in_use_can_be_cached_or_forgotten() -> None:
    allocator = BlockAllocator(2)
    with pytest.raises(ValueError, match="not in use"):
        allocator.cache(1, b"a")
    cached(allocator, b"a")
    with pytest.raises(ValueError, match="not in use"):
        allocator.forget([1])
    with pytest.raises(ValueError, match="not in use"):
        allocator.free([1])
    allocator.check([])
