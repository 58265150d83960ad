"""A scheduler with a make-believe device, which remembers what each slot of the pool was computed from."""

import itertools

from local_engine.block_allocator import BlockAllocator
from local_engine.chunk import Chunk
from local_engine.generation import GenerationRequest, TokenOutput
from local_engine.sampling import SamplingParams
from local_engine.scheduler import Scheduler
from local_engine.sequence import Sequence
from local_engine.state_slots import StateSlots

__all__ = ["BLOCK", "World"]

BLOCK = 4


class World:
    """A scheduler, the sequences put into it, and a pool that remembers what each slot was computed from.

    states: how many slots for states a model with recurrent layers has; 0 is another model.
    `step` does what an engine would, generating token 1 each time.
    """

    def __init__(
        self,
        *,
        blocks: int,
        budget: int,
        slots: int,
        queue: int = 1000,
        prefix_cache: bool = True,
        states: int = 0,
    ) -> None:
        self.scheduler = Scheduler(
            BlockAllocator(blocks),
            StateSlots(states, block_size=BLOCK),
            block_size=BLOCK,
            max_batch_tokens=budget,
            max_sequences=slots,
            queue=queue,
            prefix_cache=prefix_cache,
        )
        self.window = blocks * BLOCK
        self.pool: dict[int, tuple[bytes, list[int]]] = {}
        self.states: dict[int, tuple[bytes, list[int]]] = {}
        self.arrivals = 0
        self.members = 0
        self.finished: list[Sequence] = []

    def add(
        self, length: int, answer: int, *, priority: int = 0, token: int | None = None, scored: bool = False
    ) -> Sequence:
        """A prompt of one token, repeated; without one, no two prompts have anything in common."""
        length = min(length, self.window - 1)
        sampling = SamplingParams(prompt_logprobs=0 if scored else None)
        content = 10 + self.arrivals if token is None else token
        request = GenerationRequest("r", (content,) * length, sampling, priority)
        sequence = Sequence(request, self.arrivals, 0, frozenset(), min(answer, self.window - length))
        self.arrivals += 1
        self.scheduler.add(sequence)
        return sequence

    def fork(self, parent: Sequence, answer: int) -> Sequence:
        """Another answer to the same prompt, which goes on from where the parent is, in blocks that both hold."""
        self.members += 1
        child = parent.fork(member=self.members, seed=0)
        child.max_tokens = min(parent.num_generated + answer, self.window - parent.num_prompt)
        self.scheduler.fork(parent, child, num_computed=len(child.tokens) - 1)
        return child

    def step(self, draft: tuple[int, ...] = ()) -> list[Chunk]:
        """`draft` is what is guessed to follow each sequence that decodes."""
        drafts = {}
        for sequence in self.scheduler.decoding if draft else ():
            drafts[sequence] = draft[: sequence.max_tokens - sequence.num_generated - 1]
        chunks = self.scheduler.schedule(drafts)
        copied = {target: [self.pool.get(source * BLOCK + at) for at in range(BLOCK)] for source, target in self.copies}
        for target, contents in copied.items():
            self.pool |= {target * BLOCK + at: content for at, content in enumerate(contents) if content is not None}
        written: list[int] = []
        for chunk in chunks:
            sequence = chunk.sequence
            assert chunk.start == sequence.num_computed < chunk.stop <= len(sequence.tokens) + len(chunk.draft)
            assert len(sequence.blocks) * BLOCK >= chunk.stop
            for block in sequence.blocks[chunk.start // BLOCK : -(-chunk.stop // BLOCK)]:
                assert not self.scheduler.allocator.is_shared(block)  # nobody writes where another reads
            if self.scheduler.states.needed:
                read = self._content(sequence, chunk.start - 1) if chunk.start else None
                assert self.states.get(sequence.state) == read  # all that its recurrent layers know of its past
                written.append(sequence.next_state)
            for position in range(chunk.start):  # what it attends to is its own past, whoever computed it
                assert self.pool[self._slot(sequence, position)] == self._content(sequence, position)
        read_by = {0, *(sequence.state for sequence in self.scheduler.running)}
        assert len(written) == len({*written} - read_by)  # nobody writes where another reads, or writes
        for chunk in chunks:
            self.states[chunk.sequence.next_state] = self._content(chunk.sequence, chunk.stop - 1)
            for position in range(chunk.start, chunk.stop):
                self.pool[self._slot(chunk.sequence, position)] = self._content(chunk.sequence, position, chunk.draft)
        for chunk in chunks:
            self._apply(chunk)
        return chunks

    def _apply(self, chunk: Chunk) -> None:
        sequence = chunk.sequence
        self.scheduler.advance(sequence, chunk.stop - len(chunk.draft))
        first = len(sequence.prompt_scores)
        if sequence.request.sampling.prompt_logprobs is not None and first < sequence.num_prompt:
            assert chunk.start <= max(first - 1, 0)  # no position whose score is still asked for was left out
            stop = min(chunk.stop + 1, sequence.num_prompt)
            sequence.prompt_scores += [TokenOutput(token, 0.0, ()) for token in sequence.tokens[first:stop]]
        if chunk.reaches_end:
            accepted = list(itertools.takewhile(lambda token: token == 1, chunk.draft))
            for token in accepted:
                sequence.append(token)
            self.scheduler.advance(sequence, len(sequence.tokens))
            sequence.append(1)
            if sequence.num_generated >= sequence.max_tokens:
                self.scheduler.remove(sequence)
                self.finished.append(sequence)

    @property
    def copies(self) -> list[tuple[int, int]]:
        return self.scheduler.copies

    @staticmethod
    def _slot(sequence: Sequence, position: int) -> int:
        return sequence.blocks[position // BLOCK] * BLOCK + position % BLOCK

    @staticmethod
    def _content(sequence: Sequence, position: int, draft: tuple[int, ...] = ()) -> tuple[bytes, list[int]]:
        return sequence.root, [*sequence.tokens, *draft][: position + 1]

    def run(self, *, steps: int = 5000) -> None:
        for _ in range(steps):
            if not self.step():
                return
            self.scheduler.check()
        raise AssertionError("the scheduler did not come to an end")
