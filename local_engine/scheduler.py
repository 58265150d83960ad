"""Which tokens the next step computes. Owns the queue, the running set and their KV blocks; knows no tensors.

Continuous batching: every step takes one token of each sequence that decodes, then fills the token budget with chunks
of prompts, best rank first, then admits from the queue. A sequence is admitted when blocks for all its present tokens
are free; when decoding finds no free block, the worst-ranked sequence gives up its blocks and is recomputed later.
The best-ranked sequence therefore always advances: the pool holds at least one whole window.

Full blocks stay findable by their content until the pool needs them, so a sequence begins behind what is there of its
prompt. Only full blocks are shared and nothing writes to them again.
"""

from bisect import insort
from dataclasses import dataclass
from itertools import zip_longest

from local_engine.block_allocator import BlockAllocator
from local_engine.errors import QueueFull
from local_engine.prefix_keys import extend_keys
from local_engine.sequence import Sequence

__all__ = ["Chunk", "Scheduler"]


@dataclass(frozen=True, slots=True)
class Chunk:
    """Positions start to stop of one sequence, to be computed in one step."""

    sequence: Sequence
    start: int
    stop: int

    @property
    def reaches_end(self) -> bool:
        """The last known token is in it, so its logits choose the next one."""
        return self.stop == len(self.sequence.tokens)


class Scheduler:
    """Continuous batching over a BlockAllocator. Not thread-safe: the engine's thread owns it."""

    def __init__(
        self,
        allocator: BlockAllocator,
        *,
        block_size: int,
        max_batch_tokens: int,
        max_sequences: int,
        queue: int,
        prefix_cache: bool,
    ) -> None:
        self.allocator = allocator
        self.block_size = block_size
        self.max_batch_tokens = max_batch_tokens
        self.max_sequences = max_sequences
        self.limit = max_sequences + queue
        self.prefix_cache = prefix_cache
        self.running: list[Sequence] = []
        self.waiting: list[Sequence] = []
        self.preemptions = 0

    @property
    def num_unfinished(self) -> int:
        return len(self.running) + len(self.waiting)

    @property
    def runnable(self) -> bool:
        """Some sequence could advance; False when all there are wait for their readers."""
        return any(not sequence.paused for sequence in self.running) or any(
            not sequence.paused for sequence in self.waiting
        )

    def add(self, sequence: Sequence, *, retry_after_s: float = 1.0) -> None:
        """Queues a sequence. Raises QueueFull when `max_sequences + queue` are unfinished."""
        if self.num_unfinished >= self.limit:
            raise QueueFull(limit=self.limit, retry_after_s=retry_after_s)
        insort(self.waiting, sequence, key=_rank)

    def schedule(self) -> list[Chunk]:
        """The next step's chunks, decoding sequences first, each sequence at most once. Empty if none can advance.

        At most `max_batch_tokens` tokens, save that every decoding sequence has its token and that prompts always get
        room for one block, so that neither starves the other.
        """
        plan = self._plan_decodes()
        budget = max(self.max_batch_tokens - len(plan), min(self.block_size, self.max_batch_tokens))
        for sequence in self.running:
            if not sequence.paused and sequence.num_uncomputed > 1 and budget > 0:
                budget -= self._plan_prefill(plan, sequence, budget)
        computing = {key for chunk in plan.values() for key in self._prefilled_keys(chunk)}
        expecting = 0
        for sequence in list(self.waiting):
            if budget <= 0 or (expecting and len(self.running) + expecting >= self.max_sequences):
                break
            if sequence.paused:
                continue
            if not computing.isdisjoint(self._reusable_keys(sequence)):
                expecting += 1  # a step later it finds what another computes in this one
                continue
            if not self._make_room(sequence, plan):
                break  # nobody overtakes the head of the queue, or a long prompt would starve
            budget -= self._plan_prefill(plan, sequence, budget)
            computing.update(self._prefilled_keys(plan[sequence]))
        return list(plan.values())

    def advance(self, chunk: Chunk) -> None:
        """Records that a chunk's keys and values are in the pool; blocks that it filled can be shared from now on."""
        sequence = chunk.sequence
        sequence.num_computed = chunk.stop
        filled = slice(chunk.start // self.block_size, chunk.stop // self.block_size)
        for block, key in zip(sequence.blocks[filled], self._keys(sequence)[filled], strict=False):
            self.allocator.cache(block, key)

    def remove(self, sequence: Sequence, *, sound: bool = True) -> None:
        """Forgets a sequence, finished or aborted, and frees its blocks. Raises ValueError for one that is not held.

        sound: False keeps nothing of its blocks in the prefix cache, for one that failed.
        """
        if sequence.blocks:
            self.running.remove(sequence)
            if not sound:
                self.allocator.forget(sequence.blocks)
            self._release(sequence)
        else:
            self.waiting.remove(sequence)

    def check(self) -> None:
        """Raises ValueError if blocks, sets and order do not agree. For tests, after every step."""
        self.allocator.check([sequence.blocks for sequence in self.running])
        for held in (self.running, self.waiting):
            ranks = [sequence.rank for sequence in held]
            if ranks != sorted(set(ranks)):
                raise ValueError(f"out of order or twice: {ranks}")
        if len(self.running) > self.max_sequences or self.num_unfinished > self.limit:
            raise ValueError(f"{len(self.running)} running of {self.num_unfinished} exceed the bounds")
        for sequence in self.running:
            room = len(sequence.blocks) * self.block_size
            if not sequence.num_computed <= len(sequence.tokens) <= room + 1 or sequence.num_computed > room:
                raise ValueError(f"{len(sequence.tokens)} tokens, {sequence.num_computed} computed, room for {room}")
            keys = self._keys(sequence)[: sequence.num_computed // self.block_size]
            for block, key in zip_longest(sequence.blocks, keys):
                if self.allocator.key_of(block) not in (None, key):
                    raise ValueError(f"block {block} is known by a key that is not that of its content")
        for sequence in self.waiting:
            if sequence.blocks or sequence.num_computed:
                raise ValueError("a waiting sequence holds blocks")

    def _plan_decodes(self) -> dict[Sequence, Chunk]:
        plan: dict[Sequence, Chunk] = {}
        # A copy, best rank first: whoever is preempted on the way ranks after the one that needs the block.
        for sequence in list(self.running):
            if sequence.paused or not sequence.blocks or sequence.num_uncomputed != 1:
                continue
            if self._grow(sequence):
                plan[sequence] = Chunk(sequence, sequence.num_computed, len(sequence.tokens))
        return plan

    def _plan_prefill(self, plan: dict[Sequence, Chunk], sequence: Sequence, budget: int) -> int:
        count = min(sequence.num_uncomputed, budget)
        plan[sequence] = Chunk(sequence, sequence.num_computed, sequence.num_computed + count)
        return count

    def _grow(self, sequence: Sequence) -> bool:
        """Gives a running sequence the block that its next token needs; False if it had to give up its own."""
        while len(sequence.blocks) * self.block_size < len(sequence.tokens):
            block = self.allocator.allocate(1)
            if block is not None:
                sequence.blocks += block
                continue
            victim = max(self.running, key=_cheapest_last)
            self._preempt(victim)
            if victim is sequence:
                return False
        return True

    def _make_room(self, sequence: Sequence, plan: dict[Sequence, Chunk]) -> bool:
        """Moves a waiting sequence to running with blocks for all its tokens; False if it must wait on.

        Sequences whose reader is slow, and those of a lower priority, give way.
        """
        needed = -(-len(sequence.tokens) // self.block_size)
        while True:
            if len(self.running) < self.max_sequences:
                reused = self.allocator.lookup(self._reusable_keys(sequence))
                # One spare block for each sequence that decodes, or the newcomer would soon push one out.
                spare = sum(not other.paused for other in self.running)
                blocks = self.allocator.allocate(needed - len(reused), reused=reused, spare=spare)
                if blocks is not None:
                    break
            victim = max(self.running, key=_cheapest_last, default=None)
            if victim is None or not (victim.paused or victim.request.priority > sequence.request.priority):
                return False
            self._preempt(victim)
            plan.pop(victim, None)
        sequence.blocks = blocks
        sequence.num_computed = len(reused) * self.block_size
        if sequence.cached_tokens is None:
            sequence.cached_tokens = sequence.num_computed
        self.waiting.remove(sequence)
        insort(self.running, sequence, key=_rank)
        return True

    def _keys(self, sequence: Sequence) -> list[bytes]:
        """The keys of all full blocks of a sequence; none if nothing is cached."""
        if self.prefix_cache:
            extend_keys(sequence.keys, sequence.tokens, root=sequence.root, block_size=self.block_size)
        return sequence.keys

    def _reusable_keys(self, sequence: Sequence) -> list[bytes]:
        return self._keys(sequence)[: sequence.num_reusable // self.block_size]

    def _prefilled_keys(self, chunk: Chunk) -> list[bytes]:
        """The keys of the blocks that a chunk fills; none for a single token, to spare every decode the question."""
        if chunk.stop - chunk.start == 1:
            return []
        return self._keys(chunk.sequence)[chunk.start // self.block_size : chunk.stop // self.block_size]

    def _preempt(self, sequence: Sequence) -> None:
        self.running.remove(sequence)
        self._release(sequence)
        sequence.num_computed = 0
        insort(self.waiting, sequence, key=_rank)
        self.preemptions += 1

    def _release(self, sequence: Sequence) -> None:
        self.allocator.free(sequence.blocks)
        sequence.blocks = []


def _rank(sequence: Sequence) -> tuple[int, int]:
    return sequence.rank


def _cheapest_last(sequence: Sequence) -> tuple[bool, tuple[int, int]]:
    """Sorts the sequence that should give up its blocks to the end: one without a reader, else the worst-ranked."""
    return (sequence.paused, sequence.rank)
