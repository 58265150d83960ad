"""Reference-counted KV blocks: who holds how many, and which full ones may be used again. Knows no tensors.

A block is used (it has holders), cached (it has none, but a key under which its content can be found), or free. Cached
blocks are taken when no free one is left, the longest unused first, so the cache needs no bound but the pool.

Block 0 is never handed out: it stays zero, and padding of a batch reads from it.
"""

from collections.abc import Sequence as SequenceOf
from itertools import islice

__all__ = ["PADDING_BLOCK", "BlockAllocator"]

PADDING_BLOCK = 0


class BlockAllocator:
    """Hands out block ids 1 to num_blocks. Not thread-safe: the engine's thread owns it."""

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        # Used as a stack, lowest id on top: blocks in use stay low, so an idle pool's memory is never touched.
        self._free = list(range(num_blocks, 0, -1))
        self._holders = [0] * (num_blocks + 1)
        self._keys: dict[int, bytes] = {}
        self._blocks: dict[bytes, int] = {}
        # Blocks with a key and no holder, the longest unused first: a dict for its order.
        self._idle: dict[int, None] = {}

    @property
    def num_free(self) -> int:
        return len(self._free)

    @property
    def num_cached(self) -> int:
        return len(self._idle)

    @property
    def num_used(self) -> int:
        return self.num_blocks - self.num_available

    @property
    def num_available(self) -> int:
        """Blocks that `allocate` could hand out: free and cached ones."""
        return len(self._free) + len(self._idle)

    def key_of(self, block: int) -> bytes | None:
        """The key under which `lookup` finds a block; None if it does not."""
        return self._keys.get(block)

    def is_shared(self, block: int) -> bool:
        """More than one holds it: whoever writes to it must copy it first."""
        return self._holders[block] > 1

    def lookup(self, keys: SequenceOf[bytes]) -> list[int]:
        """The blocks that hold the content of keys[0], keys[1], ..., up to the first key that none has."""
        found = []
        for key in keys:
            block = self._blocks.get(key)
            if block is None:
                break
            found.append(block)
        return found

    def allocate(self, count: int, *, reused: SequenceOf[int] = (), spare: int = 0) -> list[int] | None:
        """The blocks of `reused`, found by `lookup`, and `count` others behind them, with one more holder each.

        None, and nothing taken, when that would leave fewer than `spare` available.
        """
        idle = sum(self._holders[block] == 0 for block in reused)
        if idle + count + spare > self.num_available:
            return None
        self.share(reused)
        self._evict(count - len(self._free))
        fresh = [self._free.pop() for _ in range(count)]
        for block in fresh:
            self._holders[block] = 1
        return [*reused, *fresh]

    def share(self, blocks: SequenceOf[int]) -> None:
        """Adds a holder to blocks that are used or cached. Raises ValueError for a free one, and changes nothing."""
        for block in blocks:
            if block not in self._idle:
                self._check_used(block)
        for block in blocks:
            self._idle.pop(block, None)
            self._holders[block] += 1

    def cache(self, block: int, key: bytes) -> None:
        """Lets `lookup` find a used block whose content is complete; the first block with a key keeps it."""
        self._check_used(block)
        if key not in self._blocks:
            self._keys[block] = key
            self._blocks[key] = block

    def forget(self, blocks: SequenceOf[int]) -> None:
        """Takes used blocks out of the cache, whoever holds them: their content is not to be trusted."""
        for block in blocks:
            self._check_used(block)
            key = self._keys.pop(block, None)
            if key is not None:
                del self._blocks[key]

    def discard(self, key: bytes) -> None:
        """Lets nobody find the content of a key any more; its block is free unless it has a holder."""
        block = self._blocks.pop(key, None)
        if block is None:
            return
        del self._keys[block]
        if block in self._idle:
            del self._idle[block]
            self._free.append(block)

    def free(self, blocks: SequenceOf[int]) -> None:
        """Takes one holder from each block. After the last one it is cached, or free if it has no key.

        Raises ValueError for a block that is not in use. Later blocks count as longer unused: without the blocks
        before it, none can be found.
        """
        for block in reversed(blocks):
            self._check_used(block)
            self._holders[block] -= 1
            if self._holders[block]:
                continue
            if block in self._keys:
                self._idle[block] = None
            else:
                self._free.append(block)

    def check(self, held: list[list[int]]) -> None:
        """Raises ValueError unless `held`, the block lists of all holders, is exactly what this allocator counts."""
        counts = [0] * (self.num_blocks + 1)
        for blocks in held:
            for block in blocks:
                counts[block] += 1
        if counts != self._holders:
            wrong = next(i for i, (a, b) in enumerate(zip(counts, self._holders, strict=True)) if a != b)
            raise ValueError(f"block {wrong} has {counts[wrong]} holders, counted {self._holders[wrong]}")
        unheld = [block for block in range(1, self.num_blocks + 1) if counts[block] == 0]
        if sorted([*self._free, *self._idle]) != unheld:
            raise ValueError("free and cached blocks are not the blocks without a holder")
        if {block: key for key, block in self._blocks.items()} != self._keys or len(self._blocks) != len(self._keys):
            raise ValueError("keys and blocks do not point at each other")
        if not self._idle.keys() <= self._keys.keys() or not self._keys.keys().isdisjoint(self._free):
            raise ValueError("a cached block has no key, or a free one has")

    def _evict(self, count: int) -> None:
        """Frees the `count` cached blocks that are longest unused; none if it is negative."""
        evicted = list(islice(self._idle, max(count, 0)))
        for block in evicted:
            del self._idle[block]
            del self._blocks[self._keys.pop(block)]
        self._free[:0] = evicted  # below those that were free before

    def _check_used(self, block: int) -> None:
        if not 1 <= block <= self.num_blocks or self._holders[block] == 0:
            raise ValueError(f"block {block} is not in use")
