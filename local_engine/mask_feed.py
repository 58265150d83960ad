"""A request's mask, filled by a worker while steps are computed. Owns the order of calls on one mask; knows no grammar.

A mask is filled as soon as its state is known, so that it is there when the logits are. One that is not ready in time
keeps its own sequence waiting and no other.
"""

from concurrent.futures import Executor, Future

import numpy as np
import numpy.typing as npt

from local_engine.generation import TokenMask

__all__ = ["MaskFeed"]

MaskWords = npt.NDArray[np.uint32]


class MaskFeed:
    """The mask of one sequence and the row for its next token. The engine's thread owns it.

    After `accept` it is the worker's until `ready`. Whatever the mask raises comes out of `take`.
    """

    def __init__(self, mask: TokenMask, vocab_size: int, workers: Executor) -> None:
        self._mask = mask
        self._num_words = -(-vocab_size // 32)
        self._workers = workers
        self._row: Future[MaskWords | None] = workers.submit(self._fill)

    @property
    def ready(self) -> bool:
        return self._row.done()

    @property
    def pending(self) -> "Future[MaskWords | None]":
        """Done when `ready`."""
        return self._row

    def take(self) -> MaskWords | None:
        """The row for the next token; None where the answer is complete and has none. Blocks until it is ready."""
        return self._row.result()

    def accept(self, token_id: int) -> None:
        """Goes on by a generated token, and has the next row filled."""
        self._row = self._workers.submit(self._accept, token_id)

    def fork(self) -> "MaskFeed":
        """One in the same state. Only while `ready`."""
        twin = object.__new__(MaskFeed)
        twin._mask = self._mask.fork()
        twin._num_words = self._num_words
        twin._workers = self._workers
        twin._row = self._row
        return twin

    def _fill(self) -> MaskWords | None:
        row = np.zeros(self._num_words, dtype=np.uint32)
        self._mask.fill(row)
        return row

    def _accept(self, token_id: int) -> MaskWords | None:
        return None if self._mask.accept(token_id) else self._fill()
