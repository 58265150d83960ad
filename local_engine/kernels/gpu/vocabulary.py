"""The ends of a fused decoder: rows of the embedding by token, and logits of the rows that need them.

Both matrices stay in few bits where the file has them so; a tied one is there once.
"""

import torch
from torch import Tensor

from local_engine.config import ModelConfig
from local_engine.kernels.gpu.matrices import Matrices, splits_of
from local_engine.layers.quantized_matrix import QuantizedMatrix
from local_engine.layers.tiled_linear import TiledLinear

__all__ = ["Vocabulary"]

_EMBEDDING, _HEAD = "model.embed_tokens.weight", "lm_head.weight"


class Vocabulary:
    """embedding, head: [rows of this rank, hidden_size] each, dense or in few bits. dtype: of hidden states."""

    def __init__(self, config: ModelConfig, matrices: Matrices, dtype: torch.dtype) -> None:
        """Reads both. Raises ModelLoadError."""
        weights, hidden = matrices.weights, config.hidden_size
        self._kernels = matrices.kernels
        self._processors = matrices.processors
        self._dtype = dtype
        self._share = weights.vocabulary(config.vocab_size)
        self._soft_cap = config.logits_soft_cap
        # Rounded to the model's type, as it was trained.
        self._scale = float(torch.tensor(config.block.embedding_scale, dtype=dtype))
        self.embedding = matrices.embedding(_EMBEDDING, self._share.rows, hidden)
        if config.tie_embeddings:
            weights.skip(_HEAD)
            self.head = matrices.rounded_head(self.embedding)
        else:
            self.head = matrices.head(_HEAD, self._share.rows, hidden)
        self._tiled = TiledLinear(self.head) if matrices.tiled and isinstance(self.head, Tensor) else None

    def embed(self, token_ids: Tensor) -> Tensor:
        """token_ids [T] int64 -> [T, hidden_size]."""
        scale, first_id = self._scale, self._share.first_id
        if isinstance(self.embedding, QuantizedMatrix):
            found = self._kernels.quantized_embedding(
                token_ids, self.embedding, self._dtype, scale=scale, first_id=first_id
            )
        else:
            found = self._kernels.embedding(token_ids, self.embedding, scale=scale, first_id=first_id)
        return self._share.summed(found)

    def logits(self, normed: Tensor, rows: Tensor | None = None) -> Tensor:
        """normed [T, hidden_size], after the last norm -> [R, V] of these rows, in its type or in float32.

        rows: [R] int64, None for all.
        """
        if self._tiled is not None:
            logits = self._tiled(normed if rows is None else normed.index_select(0, rows))
            if self._soft_cap is not None:
                logits = (logits.float() / self._soft_cap).tanh_().mul_(self._soft_cap)
        else:
            logits = self._kernels.selected_logits(
                normed, rows, self.head, soft_cap=self._soft_cap, splits=self._splits(normed if rows is None else rows)
            )
        return self._share.joined(logits)

    def _splits(self, rows: Tensor) -> int:
        if not isinstance(self.head, QuantizedMatrix):
            return 1
        return splits_of(self._kernels, len(rows), self.head, self._processors)
