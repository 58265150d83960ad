"""Reference-counted KV blocks: which are free, and how many sequences hold each. Knows no tensors.

Block 0 is never handed out: it stays zero, and padding of a batch reads from it.
"""

__all__ = ["PADDING_BLOCK", "BlockAllocator"]

PADDING_BLOCK = 0


class BlockAllocator:
    """Hands out block ids 1 to num_blocks. Not thread-safe: the engine's thread owns it."""

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        # Used as a stack, lowest id on top: blocks in use stay low, so an idle pool's memory is never touched.
        self._free = list(range(num_blocks, 0, -1))
        self._holders = [0] * (num_blocks + 1)

    @property
    def num_free(self) -> int:
        return len(self._free)

    @property
    def num_used(self) -> int:
        return self.num_blocks - len(self._free)

    def allocate(self, count: int) -> list[int] | None:
        """`count` blocks with one holder each, or None, and nothing taken, when fewer are free."""
        if count > len(self._free):
            return None
        blocks = [self._free.pop() for _ in range(count)]
        for block in blocks:
            self._holders[block] = 1
        return blocks

    def share(self, blocks: list[int]) -> None:
        """Adds a holder to blocks that are in use. Raises ValueError for one that is not, and changes nothing."""
        for block in blocks:
            self._check_used(block)
        for block in blocks:
            self._holders[block] += 1

    def free(self, blocks: list[int]) -> None:
        """Takes one holder from each block; the last one's leaving frees it. Raises ValueError for a free block."""
        for block in reversed(blocks):
            self._check_used(block)
            self._holders[block] -= 1
            if self._holders[block] == 0:
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
        free = sorted(self._free)
        if free != [block for block in range(1, self.num_blocks + 1) if counts[block] == 0]:
            raise ValueError("the free list is not the set of blocks without a holder")

    def _check_used(self, block: int) -> None:
        if not 1 <= block <= self.num_blocks or self._holders[block] == 0:
            raise ValueError(f"block {block} is not in use")
