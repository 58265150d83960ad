"""The processes that compute one model together, as its layers see them: what is summed, joined and handed out.

Tensor parallel (Shoeybi et al. 2019): each rank has a part of every matrix. Where a matrix is cut along its inputs, the
product is a sum over the ranks; the embedding and the head are cut along the vocabulary. `parallel` has the processes.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from local_engine.layers.linear import Linear

__all__ = ["ALONE", "Ranks", "SummedLinear", "VocabularyShare", "even_share"]


class Ranks(Protocol):
    """Every rank calls the same methods in the same order, with tensors of the same shapes."""

    @property
    def rank(self) -> int:
        """Which of them this process is; 0 has the scheduler and the sampler."""

    @property
    def size(self) -> int: ...

    def sum(self, x: Tensor) -> Tensor:
        """Of all ranks' x, on each of them. x may be overwritten."""

    def join_columns(self, x: Tensor) -> Tensor:
        """On rank 0 the x [R, C] of all ranks beside each other in their order: [R, size * C]. Elsewhere x."""

    def broadcast(self, x: Tensor) -> None:
        """Fills x with that of rank 0."""


class _Alone:
    """One process that has the whole model."""

    rank = 0
    size = 1

    def sum(self, x: Tensor) -> Tensor:
        return x

    def join_columns(self, x: Tensor) -> Tensor:
        return x

    def broadcast(self, x: Tensor) -> None:
        pass


ALONE: Ranks = _Alone()


def even_share(count: int, ranks: Ranks) -> range:
    """This rank's of `count` things; the first ranks have one more where they do not divide."""
    each, more = divmod(count, ranks.size)
    first = ranks.rank * each + min(ranks.rank, more)
    return range(first, first + each + (ranks.rank < more))


@dataclass(frozen=True, slots=True)
class SummedLinear:
    """Implements `Linear` over another, whose matrix has a part of the inputs on each rank."""

    linear: Linear
    ranks: Ranks

    def __call__(self, x: Tensor) -> Tensor:
        return self.ranks.sum(self.linear(x))


class VocabularyShare:
    """The tokens whose embeddings and logits this rank has. first_id: of these; rows: how many they are."""

    def __init__(self, vocab_size: int, ranks: Ranks) -> None:
        self._ranks = ranks
        self._vocab_size = vocab_size
        self._most = -(-vocab_size // ranks.size)
        self._share = even_share(vocab_size, ranks)
        self.first_id = self._share.start
        self.rows = len(self._share)

    def embed(self, token_ids: Tensor, table: Tensor) -> Tensor:
        """token_ids [T] -> [T, hidden_size] of all ranks' tables [rows, hidden_size], on every rank."""
        if self._ranks.size == 1:
            return F.embedding(token_ids, table)
        own = token_ids - self.first_id
        elsewhere = (own < 0) | (own >= self.rows)
        found = F.embedding(own.clamp(0, self.rows - 1), table).masked_fill_(elsewhere[:, None], 0)
        return self.summed(found)

    def summed(self, found: Tensor) -> Tensor:
        """Embeddings [T, hidden_size], zeros for tokens that are elsewhere, of all ranks."""
        return self._ranks.sum(found)

    def joined(self, logits: Tensor) -> Tensor:
        """This rank's logits [R, rows] -> on rank 0 [R, V], elsewhere what is of no use."""
        if self._ranks.size == 1:
            return logits
        joined = self._ranks.join_columns(F.pad(logits, (0, self._most - self.rows)))
        if self._ranks.rank or joined.shape[1] == self._vocab_size:
            return joined
        # The ranks behind the first few have one column of padding.
        places = torch.arange(joined.shape[1], device=joined.device)
        longer = self._vocab_size % self._ranks.size
        real = (places // self._most < longer) | (places % self._most < self._most - 1)
        return joined[:, real]
