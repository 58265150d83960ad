"""A decoder as an encoder: the hidden states behind its last norm, pooled to one vector a text.

Each text is a prefill over KV blocks of its own, which nobody reads afterwards.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import torch
from torch import Tensor

from local_engine.chunk import Chunk
from local_engine.config import EngineConfig
from local_engine.encoding import EncoderInfo, EncoderInput
from local_engine.generation import GenerationRequest
from local_engine.kv_pool import kv_block_bytes
from local_engine.layers.lora import LoraSites
from local_engine.layers.pooling import Pooling, normalized, pooled
from local_engine.models.model import Model
from local_engine.sampling import SamplingParams
from local_engine.sequence import Sequence as EngineSequence
from local_engine.torch_executor import TorchExecutor

__all__ = ["PooledDecoder"]

# Rows of one chunk, which bounds the attention masks of a long text.
_CHUNK = 512


class PooledDecoder:
    """Implements `EncoderModel`. The cache holds a batch of `max_batch_tokens`, or one text of the greatest length."""

    def __init__(
        self, model: Model, info: EncoderInfo, config: EngineConfig, *, pooling: Pooling, lora_sites: LoraSites
    ) -> None:
        self.info = info
        self._model = model
        self._pooling = pooling
        self._block_size = config.block_size
        most = max(config.max_batch_tokens, info.max_tokens)
        num_blocks = most // config.block_size + config.max_batch_tokens + 2
        block_bytes = kv_block_bytes(model.config, config)
        pool = replace(config, kv_dtype="auto", kv_bytes=num_blocks * block_bytes, kv_share=None)
        self._executor = TorchExecutor(model, pool, lora_sites=lora_sites)

    def rows(self, inputs: Sequence[EncoderInput]) -> Tensor:
        """See `EncoderModel.rows`."""
        chunks = self._chunks(inputs)
        step = self._executor.forward([chunk for chunks_of_one in chunks for chunk in chunks_of_one])
        hidden = self._model.normed(step.hidden)
        place = dict(zip(step.chunks, step.first_row, strict=True))
        lengths = [len(each.token_ids) for each in inputs]
        rows = [place[chunk] + row for each in chunks for chunk in each for row in range(chunk.stop - chunk.start)]
        in_order = hidden.index_select(0, torch.tensor(rows, device=hidden.device))
        vectors = pooled(in_order, lengths, self._pooling)
        return normalized(vectors) if self.info.normalized else vectors

    def _chunks(self, inputs: Sequence[EncoderInput]) -> list[list[Chunk]]:
        """Of each text, one after the other. None has a single row but that of a text of one token: single rows are
        computed in groups, padded to each other, which would make a text depend on its neighbours."""
        next_block = 1
        found: list[list[Chunk]] = []
        for each in inputs:
            length = len(each.token_ids)
            request = GenerationRequest("", each.token_ids, SamplingParams())
            sequence = EngineSequence(request, 0, 0, frozenset(), 1)
            count = -(-length // self._block_size)
            sequence.blocks = list(range(next_block, next_block + count))
            next_block += count
            cuts = [*range(0, length, _CHUNK), length]
            if length > 1 and cuts[-1] - cuts[-2] == 1:
                cuts[-2] -= 1
            found.append([Chunk(sequence, start, stop) for start, stop in pairwise(cuts)])
        return found
