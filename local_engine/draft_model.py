"""Guesses by a second, smaller model of the same vocabulary, with a KV pool of its own.

It draws with the request's own parameters and noise, so it guesses right wherever the two models' distributions agree.
What it has computed of a sequence is kept from step to step; where its pool is full, the sequence goes without guesses.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import torch

from local_engine.block_allocator import BlockAllocator
from local_engine.chunk import Chunk
from local_engine.config import EngineConfig
from local_engine.errors import GenerationFailed, InvalidInput
from local_engine.loading.load import LoadedModel
from local_engine.sampler import SamplerRow, sample
from local_engine.sequence import Sequence

__all__ = ["DraftModel"]

# Tokens that a twin may lack and still guess: they are computed with the first guess. One or two are the rule.
_SOON = 8


@dataclass(slots=True, eq=False)
class _Twin:
    """A sequence as the draft model has computed it. `known`: its tokens that are the sequence's own."""

    own: Sequence
    known: int = 0


class DraftModel:
    """Implements `Drafter`. Raises InvalidInput for a model of another vocabulary, or a pool that does not fit."""

    def __init__(self, loaded: LoadedModel, config: EngineConfig, *, vocab_size: int) -> None:
        shape = loaded.info.config
        if shape.vocab_size != vocab_size:
            raise InvalidInput("draft", f"has a vocabulary of {shape.vocab_size} tokens, the model one of {vocab_size}")
        if shape.recurrent is not None:
            raise InvalidInput("draft", "has recurrent layers, whose state cannot go back behind a wrong guess")
        self._executor = loaded.open_executor(replace(config, kv_bytes=config.draft_kv_bytes, kv_share=None))
        self._allocator = BlockAllocator(self._executor.num_blocks)
        self._block_size = config.block_size
        self._budget = config.max_batch_tokens
        self._max_context = shape.max_context
        self._twins: dict[Sequence, _Twin] = {}

    def forget(self, sequence: Sequence) -> None:
        twin = self._twins.pop(sequence, None)
        if twin is not None:
            self._allocator.free(twin.own.blocks)

    def close(self) -> None:
        self._twins.clear()
        self._executor.close()

    @torch.inference_mode()
    def draft(self, wanted: Mapping[Sequence, int]) -> dict[Sequence, tuple[int, ...]]:
        """See `Drafter.draft`. Long prompts are computed over several steps, without guesses until they are."""
        try:
            return self._draft(wanted)
        except Exception:
            # What of the step reached the pool is not known.
            for sequence in list(self._twins):
                self.forget(sequence)
            raise

    def _draft(self, wanted: Mapping[Sequence, int]) -> dict[Sequence, tuple[int, ...]]:
        drafts: dict[Sequence, tuple[int, ...]] = {
            sequence: () for sequence, count in wanted.items() if self._follow(sequence, count)
        }
        drafts = dict.fromkeys(self._catch_up(drafts), ())
        for place in range(max(wanted.values(), default=0)):
            going = [sequence for sequence in drafts if place < wanted[sequence] and len(drafts[sequence]) == place]
            if not going:
                break
            for sequence, token_id in self._next_tokens(going, drafts).items():
                drafts[sequence] += (token_id,)
                self._twins[sequence].own.tokens.append(token_id)
        return drafts

    def _follow(self, sequence: Sequence, count: int) -> bool:
        """Brings a twin's tokens up to its sequence's and gives it blocks for `count` more; False where it cannot."""
        twin = self._twins.get(sequence)
        if twin is None:
            twin = self._twins[sequence] = _Twin(sequence.fork(member=0, seed=sequence.seed))
            twin.own.adapter = None
            twin.own.masked = None
            twin.own.images = twin.own.uncut = ()  # it sees the tokens that stand for them
        own = twin.own
        same = twin.known
        while same < min(len(own.tokens), len(sequence.tokens)) and own.tokens[same] == sequence.tokens[same]:
            same += 1
        own.tokens[same:] = sequence.tokens[same:]
        own.num_computed = min(own.num_computed, same, len(own.tokens) - 1)  # the logits of the last one are needed
        twin.known = len(own.tokens)
        needed = -(-(len(own.tokens) + count) // self._block_size) - len(own.blocks)
        fresh = self._allocator.allocate(max(needed, 0))
        if fresh is None or len(own.tokens) + count > self._max_context:
            self.forget(sequence)
            return False
        own.blocks += fresh
        return True

    def _catch_up(self, sequences: Iterable[Sequence]) -> list[Sequence]:
        """Computes the long part of what twins lack, within a step's budget; those that are level, or nearly, then."""
        budget = self._budget
        chunks = []
        level = []
        for sequence in sequences:
            own = self._twins[sequence].own
            lacking = own.num_uncomputed - 1
            count = min(lacking, budget) if lacking > _SOON else 0
            if count > 0:
                chunks.append(Chunk(own, own.num_computed, own.num_computed + count))
                budget -= count
            if own.num_uncomputed - count <= _SOON + 1:
                level.append(sequence)
        if chunks:
            self._executor.forward(chunks)
            for chunk in chunks:
                chunk.sequence.num_computed = chunk.stop
        return level

    def _next_tokens(self, going: list[Sequence], drafts: Mapping[Sequence, tuple[int, ...]]) -> dict[Sequence, int]:
        """One more token for each, as its request would draw it."""
        chunks = {}
        for sequence in going:
            own = self._twins[sequence].own
            chunks[Chunk(own, own.num_computed, len(own.tokens))] = sequence
        step = self._executor.forward(list(chunks))
        ends = [row + chunk.stop - chunk.start - 1 for chunk, row in zip(step.chunks, step.first_row, strict=True)]
        logits = self._executor.logits(step.hidden[ends])
        ordered = [chunks[chunk] for chunk in step.chunks]
        tokens = sample(logits, [SamplerRow(sequence, drafts[sequence]) for sequence in ordered])
        for chunk in step.chunks:
            chunk.sequence.num_computed = chunk.stop
        return {
            sequence: token.token_id
            for sequence, token in zip(ordered, tokens, strict=True)
            if not isinstance(token, GenerationFailed)
        }
