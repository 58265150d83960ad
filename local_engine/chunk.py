"""What a step computes of one sequence: said by the scheduler, done by an executor."""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from local_engine.images import axis_positions
from local_engine.sequence import Sequence

__all__ = ["PENDING", "Chunk"]

PENDING: Final = -1
"""In place of a token that only the device knows yet."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Positions start to stop of one sequence, to be computed in one step.

    draft: tokens guessed to follow the sequence's own, the last positions of the chunk.
    """

    sequence: Sequence
    start: int
    stop: int
    draft: tuple[int, ...] = ()

    @property
    def tokens(self) -> list[int]:
        """The token at each of its positions."""
        known = self.sequence.tokens[self.start : self.stop - len(self.draft)]
        if self.draft:
            return [*known, *self.draft]
        return known if len(known) == self.stop - self.start else [*known, PENDING]

    @property
    def axis_positions(self) -> npt.NDArray[np.int64] | None:
        """See `images.axis_positions`."""
        return axis_positions(self.sequence.images, self.start, self.stop)

    @property
    def reaches_end(self) -> bool:
        """The last known token is in it, so its logits choose the next one."""
        return self.stop - len(self.draft) == self.sequence.length
