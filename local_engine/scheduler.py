"""Which tokens the next step computes. Owns the queue, the running set and their KV blocks; knows no tensors.

Continuous batching: every step takes one token of each sequence that decodes, then fills the token budget with chunks
of prompts, best rank first, then admits from the queue. A prompt longer than a step leaves up to half of it to shorter
ones behind it. A sequence is admitted when blocks for all its present tokens
are free; when decoding finds no free block, the worst-ranked sequence gives up its blocks and is recomputed later.
The best-ranked sequence therefore always advances: the pool holds at least one whole window.

Full blocks stay findable by their content until the pool needs them, so a sequence begins behind what is there of its
prompt. Only full blocks are shared and nothing writes to them again.

A step may be planned while the one before is under way (`launched`, then `settle`): what a sequence loses meanwhile,
blocks or life, its device may still write to. It does so before any later step, so whoever gets the blocks is safe.
"""

from bisect import insort
from collections import Counter
from collections.abc import Mapping
from itertools import islice, zip_longest
from types import MappingProxyType
from typing import Final

from local_engine.block_allocator import BlockAllocator
from local_engine.chunk import Chunk
from local_engine.errors import QueueFull
from local_engine.prefix_keys import extend_keys
from local_engine.sequence import Sequence
from local_engine.state_slots import StateSlots

__all__ = ["MAX_PASSES", "Scheduler"]

MAX_PASSES: Final = 8
_LOOK_AHEAD: Final = 16
"""So many that wait are asked what they need: behind so many long prompts a step has nothing left anyway."""
_NO_DRAFTS: Final[Mapping[Sequence, tuple[int, ...]]] = MappingProxyType({})


class Scheduler:
    """Continuous batching over a BlockAllocator and StateSlots. Not thread-safe: the engine's thread owns it."""

    def __init__(
        self,
        allocator: BlockAllocator,
        states: StateSlots,
        *,
        block_size: int,
        max_batch_tokens: int,
        max_sequences: int,
        queue: int,
        prefix_cache: bool,
    ) -> None:
        self.allocator = allocator
        self.states = states
        self.block_size = block_size
        self.max_batch_tokens = max_batch_tokens
        self.max_sequences = states.bounded(max_sequences)
        self.limit = max_sequences + queue
        self.prefix_cache = prefix_cache
        self.running: list[Sequence] = []
        self.waiting: list[Sequence] = []
        self.copies: list[tuple[int, int]] = []
        """Blocks to copy, (from, to), before the chunks of the last plan are computed."""
        self.begun: list[Sequence] = []
        """Those that run for the first time in the step that was planned last."""
        self.preemptions = 0
        self._num_needing_host = 0
        self._under_way: list[Chunk] = []
        self._requests: Counter[int] = Counter()
        self._passes = 0

    @property
    def num_unfinished(self) -> int:
        """Requests, however many sequences each has."""
        return len(self._requests)

    @property
    def runnable(self) -> bool:
        """Some sequence could advance; False when all there are wait for their readers."""
        return any(not sequence.idle and not sequence.ending for sequence in self.running) or any(
            not sequence.idle for sequence in self.waiting
        )

    @property
    def needs_host(self) -> bool:
        """The next step has to wait for the results of the last: some sequence that could advance needs them."""
        return self._num_needing_host > 0 and any(
            sequence.needs_host and not sequence.idle for sequence in (*self.running, *self.waiting)
        )

    @property
    def decoding(self) -> list[Sequence]:
        """The sequences whose next token the next step computes, if blocks allow."""
        return [sequence for sequence in self.running if not sequence.idle and sequence.num_uncomputed == 1]

    def add(self, sequence: Sequence, *, retry_after_s: float = 1.0) -> None:
        """Queues a sequence. Raises QueueFull when `max_sequences + queue` requests are unfinished."""
        if self.num_unfinished >= self.limit:
            raise QueueFull(limit=self.limit, retry_after_s=retry_after_s)
        insort(self.waiting, sequence, key=_rank)
        self._count(sequence, 1)

    def fork(self, parent: Sequence, child: Sequence, *, num_computed: int) -> None:
        """Takes in a sequence that begins with the first `num_computed` tokens of another, which it shares.

        Where there is nothing to share, or as many as allowed run, it waits and is computed anew. Forks count with
        their request, not for the bound on requests.
        """
        self._count(child, 1)
        kept = num_computed == parent.num_computed if self.states.needed else num_computed <= parent.num_computed
        if not num_computed > 0 or not kept or len(self.running) >= self.max_sequences:
            insort(self.waiting, child, key=_rank)
            return
        child.blocks = parent.blocks[: -(-num_computed // self.block_size)]
        child.num_computed = num_computed
        self.allocator.share(child.blocks)
        self.states.fork(parent, child)
        insort(self.running, child, key=_rank)

    def schedule(self, drafts: Mapping[Sequence, tuple[int, ...]] = _NO_DRAFTS) -> list[Chunk]:
        """The next step's chunks, decoding sequences first, each sequence at most once. Empty if none can advance.

        At most `max_batch_tokens` tokens, save that every decoding sequence has its token, that prompts always get room
        for one block, so that neither starves the other, and that no image is cut whose tokens see each other.
        `drafts`, guesses of what follows a decoding sequence, are taken as far as tokens and free blocks allow.
        """
        self.copies, self.begun = [], []
        plan = self._plan_decodes()
        self._plan_drafts(plan, drafts)
        planned = sum(chunk.stop - chunk.start for chunk in plan.values())
        budget = max(self.max_batch_tokens - planned, min(self.block_size, self.max_batch_tokens))
        for sequence in self.running:
            if not sequence.idle and sequence.num_uncomputed > 1 and budget > 0:
                budget -= self._plan_prefill(plan, sequence, self._share(plan, sequence, budget))
        computing = {key for chunk in (*self._under_way, *plan.values()) for key in self._prefilled_keys(chunk)}
        expecting = 0
        for sequence in list(self.waiting):
            if budget <= 0 or (expecting and len(self.running) + expecting >= self.max_sequences):
                break
            if sequence.idle:
                continue
            if not computing.isdisjoint(self._reusable_keys(sequence)):
                expecting += 1  # a step later it finds what another computes in this one
                continue
            if not self._make_room(sequence, plan):
                break  # nobody overtakes the head of the queue, or a long prompt would starve
            self._count_pass(sequence)
            budget -= self._plan_prefill(plan, sequence, self._share(plan, sequence, budget))
            computing.update(self._prefilled_keys(plan[sequence]))
        for chunk in list(plan.values()):
            if budget > 0 and chunk.stop < chunk.sequence.length:  # what it left, nobody could take
                planned = chunk.stop - chunk.start
                budget -= self._plan_prefill(plan, chunk.sequence, planned + budget) - planned
        for sequence in plan:
            self.states.prepare(sequence)
        return list(plan.values())

    def advance(self, sequence: Sequence, stop: int) -> None:
        """Records that the keys and values of a sequence's own tokens up to `stop` are in the pool.

        Blocks that are full now can be found by their content from now on.
        """
        self._cache_filled(sequence, sequence.num_computed, stop)
        self.states.advance(sequence, stop)
        sequence.num_computed = stop

    def launched(self, chunks: list[Chunk]) -> None:
        """Plans on as if the last plan were computed, and its tokens known. Empty: no step is under way any more."""
        for chunk in chunks:
            sequence = chunk.sequence
            sequence.num_pending += chunk.reaches_end
            sequence.num_computed = chunk.stop
        self._under_way = chunks

    def settle(self, chunk: Chunk) -> None:
        """As `advance`, for a launched chunk that is computed; its sequence has run all the time."""
        self._cache_filled(chunk.sequence, chunk.start, chunk.stop)

    def _cache_filled(self, sequence: Sequence, start: int, stop: int) -> None:
        filled = slice(start // self.block_size, stop // self.block_size)
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
            self._release(sequence, sound=sound)
        else:
            self.waiting.remove(sequence)
        self._count(sequence, -1)

    def check(self) -> None:
        """Raises ValueError if blocks, sets and order do not agree. For tests, after every step."""
        self.allocator.check([sequence.blocks for sequence in self.running])
        self.states.check((*self.running, *self.waiting))
        for held in (self.running, self.waiting):
            ranks = [sequence.rank for sequence in held]
            if ranks != sorted(set(ranks)):
                raise ValueError(f"out of order or twice: {ranks}")
        if len(self.running) > self.max_sequences or self.num_unfinished > self.limit:
            raise ValueError(f"{len(self.running)} running of {self.num_unfinished} exceed the bounds")
        if Counter(sequence.arrival for sequence in (*self.running, *self.waiting)) != self._requests:
            raise ValueError("sequences and requests do not add up")
        for sequence in self.running:
            room = len(sequence.blocks) * self.block_size
            if not room:
                raise ValueError("a running sequence holds no blocks")
            if not sequence.num_computed <= sequence.length <= room + 1 or sequence.num_computed > room:
                raise ValueError(f"{sequence.length} tokens, {sequence.num_computed} computed, room for {room}")
            for block, key in zip_longest(sequence.blocks, self._keys(sequence)):
                if self.allocator.key_of(block) not in (None, key):
                    raise ValueError(f"block {block} is known by a key that is not that of its content")
        for sequence in self.waiting:
            if sequence.blocks or sequence.num_computed or sequence.num_pending:
                raise ValueError("a waiting sequence holds blocks")
        if self._num_needing_host != sum(each.needs_host for each in (*self.running, *self.waiting)):
            raise ValueError("sequences that need the host are not counted right")

    def _plan_decodes(self) -> dict[Sequence, Chunk]:
        plan: dict[Sequence, Chunk] = {}
        # A copy, best rank first: whoever is preempted on the way ranks after the one that needs the block.
        for sequence in list(self.running):
            if sequence.idle or sequence.ending or not sequence.blocks or sequence.num_uncomputed != 1:
                continue
            if self._grow(sequence):
                plan[sequence] = Chunk(sequence, sequence.num_computed, sequence.length)
        return plan

    def _plan_drafts(self, plan: dict[Sequence, Chunk], drafts: Mapping[Sequence, tuple[int, ...]]) -> None:
        """Lengthens chunks by their drafts: those that fit what is left of the budget and of the free blocks."""
        budget = self.max_batch_tokens - len(plan)
        for sequence, draft in drafts.items():
            if sequence not in plan or not 0 < len(draft) <= budget:
                continue
            stop = len(sequence.tokens) + len(draft)
            fresh = self.allocator.allocate(max(0, -(-stop // self.block_size) - len(sequence.blocks)))
            if fresh is None:
                continue
            sequence.blocks += fresh
            plan[sequence] = Chunk(sequence, sequence.num_computed, stop, draft)
            budget -= len(draft)

    def _share(self, plan: Mapping[Sequence, Chunk], sequence: Sequence, budget: int) -> int:
        """What a prompt may take of the rest of a step: all, or, if it needs more than a whole step, half of it where
        another needs less than one, so that nobody waits for the end of a long prompt."""
        if sequence.num_uncomputed <= self.max_batch_tokens:
            return budget
        for other in (*self.running, *islice(self.waiting, _LOOK_AHEAD)):
            if other is sequence or other.idle or other in plan:
                continue
            cached = 0 if other.blocks else self._num_cached(self._reusable_keys(other)) * self.block_size
            if other.num_uncomputed - cached <= self.max_batch_tokens:
                return budget - budget // 2
        return budget

    def _plan_prefill(self, plan: dict[Sequence, Chunk], sequence: Sequence, budget: int) -> int:
        start = sequence.num_computed
        stop = sequence.whole_stop(start, start + min(sequence.num_uncomputed, budget))
        stop = self.states.cut(sequence, start, stop)
        plan[sequence] = Chunk(sequence, start, stop)
        return stop - start

    def _grow(self, sequence: Sequence) -> bool:
        """Gives a running sequence a block of its own for its next token; False if it had to give up all it had."""
        index = sequence.num_computed // self.block_size
        while True:
            held = index < len(sequence.blocks)
            if held and not self.allocator.is_shared(sequence.blocks[index]):
                return True
            fresh = self.allocator.allocate(1)
            if fresh is not None:
                break
            victim = max(self.running, key=_cheapest_last)
            self._preempt(victim)
            if victim is sequence:
                return False
        if held:
            self.copies.append((sequence.blocks[index], fresh[0]))
            self.allocator.free([sequence.blocks[index]])
            sequence.blocks[index] = fresh[0]
        else:
            sequence.blocks += fresh
        return True

    def _make_room(self, sequence: Sequence, plan: dict[Sequence, Chunk]) -> bool:
        """Moves a waiting sequence to running with blocks for all its tokens; False if it must wait on.

        Sequences that cannot advance, and those of a lower priority, give way.
        """
        needed = -(-len(sequence.tokens) // self.block_size)
        while True:
            if len(self.running) < self.max_sequences:
                found = self.allocator.lookup(keys := self._reusable_keys(sequence))
                reused = found[: self.states.num_usable(keys[: len(found)])]
                # One spare block for each sequence that decodes, or the newcomer would soon push one out.
                spare = sum(not other.idle for other in self.running)
                blocks = self.allocator.allocate(needed - len(reused), reused=reused, spare=spare)
                if blocks is not None:
                    break
            victim = max(self.running, key=_cheapest_last, default=None)
            if victim is None or not (victim.idle or victim.priority > sequence.request.priority):
                return False
            self._preempt(victim)
            plan.pop(victim, None)
        sequence.blocks = blocks
        sequence.num_computed, sequence.num_shared = len(reused) * self.block_size, len(found) * self.block_size
        self.states.begin(sequence, keys[: len(reused)])
        if sequence.cached_tokens is None:
            sequence.cached_tokens = sequence.num_computed
            self.begun.append(sequence)
        self.waiting.remove(sequence)
        insort(self.running, sequence, key=_rank)
        return True

    def _count_pass(self, admitted: Sequence) -> None:
        """Promotes the oldest request that waits once enough younger ones were admitted before it."""
        oldest = min((waiting for waiting in self.waiting if not waiting.idle), key=_arrival, default=admitted)
        if oldest.arrival >= admitted.arrival:
            return
        self._passes += 1
        if self._passes < MAX_PASSES:
            return
        self._passes = 0
        for held in (self.running, self.waiting):
            for sequence in held:
                sequence.promoted |= sequence.arrival == oldest.arrival
            held.sort(key=_rank)

    def _keys(self, sequence: Sequence) -> list[bytes]:
        """The keys of all full blocks of a sequence; none if nothing is cached."""
        if self.prefix_cache:
            extend_keys(
                sequence.keys, sequence.tokens, root=sequence.root, block_size=self.block_size, images=sequence.images
            )
        return sequence.keys

    def _reusable_keys(self, sequence: Sequence) -> list[bytes]:
        return self._keys(sequence)[: sequence.num_reusable // self.block_size]

    def _num_cached(self, keys: list[bytes]) -> int:
        """Behind how many blocks a sequence can begin."""
        return self.states.num_usable(keys[: len(self.allocator.lookup(keys))])

    def _prefilled_keys(self, chunk: Chunk) -> list[bytes]:
        """The keys of the blocks that a chunk fills, as far as others may begin behind them a step later.

        None for one that decodes, to spare it the question.
        """
        if chunk.stop - chunk.start == 1 or chunk.draft:
            return []
        keys = self._keys(chunk.sequence)[chunk.start // self.block_size : chunk.stop // self.block_size]
        return self.states.offered(keys, chunk.stop)

    def _preempt(self, sequence: Sequence) -> None:
        self.running.remove(sequence)
        self._release(sequence)
        sequence.num_computed = sequence.num_pending = 0
        sequence.epoch += 1
        insort(self.waiting, sequence, key=_rank)
        self.preemptions += 1

    def _count(self, sequence: Sequence, change: int) -> None:
        self._num_needing_host += change * sequence.needs_host
        self._requests[sequence.arrival] += change
        if not self._requests[sequence.arrival]:
            del self._requests[sequence.arrival]

    def _release(self, sequence: Sequence, *, sound: bool = True) -> None:
        self.allocator.free(sequence.blocks)
        self.states.release(sequence, sound=sound)
        sequence.blocks = []


def _rank(sequence: Sequence) -> tuple[int, int, int]:
    return sequence.rank


def _arrival(sequence: Sequence) -> int:
    return sequence.arrival


def _cheapest_last(sequence: Sequence) -> tuple[bool, tuple[int, int, int]]:
    """Sorts the sequence that should give up its blocks to the end: one that cannot advance, else the worst-ranked."""
    return (sequence.idle, sequence.rank)
