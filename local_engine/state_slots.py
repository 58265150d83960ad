"""Which slot holds the state of which sequence, for models with recurrent layers. Knows no tensors.

A state says all that these layers know of a sequence's tokens so far, and cannot be cut. So a step writes the next one
to a slot of its own, and the one before is let go: to be used again, or, where it stands at the end of a full block,
to stay as a snapshot under that block's key, the longest unused given up first. A sequence may begin behind the longest
cached prefix whose last block has a snapshot.

Slot 0 is the state before all tokens.
"""

from collections.abc import Iterable
from collections.abc import Sequence as SequenceOf
from typing import Final

from local_engine.block_allocator import BlockAllocator
from local_engine.sequence import Sequence

__all__ = ["StateSlots"]

_WORTH_A_STEP: Final = 4
"""A prompt is cut for a snapshot where at least as many blocks lie between that and the one before."""


class StateSlots:
    """Slots 1 to num_states; without any, the model has no states and every method lets things be as they are.

    Each sequence that runs holds the state that it has and the one that a step writes.
    """

    def __init__(self, num_states: int, *, block_size: int) -> None:
        self._slots = BlockAllocator(num_states)
        self._block_size = block_size

    @property
    def needed(self) -> bool:
        """The model has states."""
        return self._slots.num_blocks > 0

    def bounded(self, max_sequences: int) -> int:
        """How many sequences may run at once, of so many."""
        return min(max_sequences, self._slots.num_blocks // 2) if self.needed else max_sequences

    def num_usable(self, keys: SequenceOf[bytes]) -> int:
        """Of cached blocks with these keys, how many a sequence can begin behind."""
        if not self.needed:
            return len(keys)
        return next((count for count in range(len(keys), 0, -1) if self._slots.lookup(keys[count - 1 : count])), 0)

    def offered(self, keys: list[bytes], stop: int) -> list[bytes]:
        """Of the blocks that a chunk up to `stop` fills, those behind which others can begin when it is computed."""
        if not self.needed:
            return keys
        return [] if stop % self._block_size else keys[-1:]

    def begin(self, sequence: Sequence, keys: SequenceOf[bytes]) -> None:
        """Gives it the state behind the cached blocks of these keys, as many as `num_usable` says."""
        if self.needed and keys:
            (sequence.state,) = self._slots.lookup(keys[-1:])
            self._slots.share([sequence.state])

    def fork(self, parent: Sequence, child: Sequence) -> None:
        """Both go on from the state that the parent has."""
        child.state = parent.state
        self._slots.share(_only(child.state))

    def prepare(self, sequence: Sequence) -> None:
        """Gives it a slot for the state that the next step writes."""
        if self.needed and not sequence.next_state:
            fresh = self._slots.allocate(1)
            assert fresh is not None  # `bounded` leaves two for each
            (sequence.next_state,) = fresh

    def advance(self, sequence: Sequence, stop: int) -> None:
        """Its next state is computed, that behind `stop` tokens; the keys of the blocks before are known, or none is.

        Of an answer only the last snapshot is kept: what follows it is rarely another request's.
        """
        if not sequence.next_state:
            return
        self._slots.free(_only(sequence.state))
        sequence.state, sequence.next_state = sequence.next_state, 0
        count, rest = divmod(stop, self._block_size)
        if rest or not sequence.keys:
            return
        self._slots.cache(sequence.state, sequence.keys[count - 1])
        if (count - 1) * self._block_size > sequence.num_prompt:
            self._slots.discard(sequence.keys[count - 2])

    def cut(self, sequence: Sequence, start: int, stop: int) -> int:
        """Where a prompt's chunk from start to stop ends, that a snapshot can be kept where others may need it.

        These are the last block of the prompt that may be read from the cache, and the place where what it shares with
        others ends. Chunks between end with a block.
        """
        if not self.needed:
            return stop
        size = self._block_size
        for place in (sequence.num_shared, sequence.num_reusable // size * size):
            if start + _WORTH_A_STEP * size <= place < stop:
                return place
        return stop if stop == sequence.length else max(stop // size * size, min(stop, start + size))

    def release(self, sequence: Sequence, *, sound: bool = True) -> None:
        """Takes its states. sound: False lets none of its snapshots be found, whoever made them."""
        if not sound and self.needed:
            for key in sequence.keys:
                self._slots.discard(key)
        for slot in (sequence.state, sequence.next_state):
            self._slots.free(_only(slot))
        sequence.state = sequence.next_state = 0

    def check(self, sequences: Iterable[Sequence]) -> None:
        """Raises ValueError unless these hold what is counted. For tests."""
        self._slots.check([_only(slot) for each in sequences for slot in (each.state, each.next_state)])


def _only(slot: int) -> list[int]:
    """The slot, unless it is the one of zeros, which nobody holds."""
    return [slot] if slot else []
