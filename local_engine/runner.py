"""Runs a model over scheduled chunks: owns the KV cache.

Everything torch of a step happens here and in `sampler`; the engine above sees chunks and token outputs only.
"""

import torch

from local_engine.batch import build_batch
from local_engine.block_allocator import PADDING_BLOCK
from local_engine.config import EngineConfig, ModelConfig
from local_engine.errors import GenerationFailed, InvalidInput
from local_engine.generation import TokenOutput
from local_engine.layers.attention import LayerCache
from local_engine.models.model import Model
from local_engine.sampler import sample, score
from local_engine.scheduler import Chunk

__all__ = ["Runner", "StepResult", "kv_block_bytes"]

# Prompt scoring takes logits of this many rows at a time: 12 MB of them at a vocabulary of 49,152.
_SCORED_ROWS = 64

# What one step yields of one chunk: scores of prompt tokens, then the next token, its failure, or None mid-prompt.
StepResult = tuple[list[TokenOutput], TokenOutput | GenerationFailed | None]


def kv_block_bytes(model: ModelConfig, config: EngineConfig) -> int:
    """Bytes of one KV block over all layers."""
    item_bytes = getattr(torch, config.dtype).itemsize
    return int(2 * model.num_layers * model.num_kv_heads * model.head_dim * config.block_size * item_bytes)


class Runner:
    """The torch half of an engine. Not thread-safe: the engine's thread owns it."""

    def __init__(self, model: Model, config: EngineConfig) -> None:
        shape = model.config
        self._model = model
        self._block_size = config.block_size
        self._window = shape.sliding_window
        self._device = torch.device(config.device)
        self._dtype: torch.dtype = getattr(torch, config.dtype)
        self.num_blocks = config.kv_bytes // kv_block_bytes(shape, config) - 1  # one is the padding block
        if self.num_blocks < 1:
            raise InvalidInput(
                "kv_bytes", f"holds no KV block of {kv_block_bytes(shape, config)} bytes beside the padding"
            )
        slots = ((self.num_blocks + 1) * config.block_size, shape.num_kv_heads, shape.head_dim)
        padding = slice(PADDING_BLOCK * config.block_size, (PADDING_BLOCK + 1) * config.block_size)
        self._caches = []
        for _ in range(shape.num_layers):
            try:
                # Not zeroed: memory that no sequence has written yet is not even resident.
                sides = [torch.empty(slots, dtype=self._dtype, device=self._device) for _ in range(2)]
            except (MemoryError, RuntimeError) as error:
                raise InvalidInput("kv_bytes", f"{config.kv_bytes} bytes do not fit on {self._device}") from error
            cache = LayerCache(*sides)
            cache.keys[padding] = 0
            cache.values[padding] = 0
            self._caches.append(cache)

    @torch.inference_mode()
    def run(self, chunks: list[Chunk]) -> dict[Chunk, StepResult]:
        """Computes the chunks in one pass. Raises whatever the device raises; then nothing of them counts as done."""
        batch = build_batch(
            chunks, block_size=self._block_size, window=self._window, device=self._device, dtype=self._dtype
        )
        hidden = self._model.forward(batch.token_ids, batch.positions, self._caches, batch.plan)
        results: dict[Chunk, StepResult] = {}
        sampled: list[tuple[Chunk, int]] = []
        for chunk, row in zip(batch.chunks, batch.first_row, strict=True):
            results[chunk] = (self._score_prompt(hidden, chunk, row), None)
            if chunk.reaches_end and chunk.sequence.max_tokens > 0:
                sampled.append((chunk, row + chunk.stop - chunk.start - 1))
        if sampled:
            rows = torch.tensor([row for _, row in sampled], device=self._device)
            logits = self._model.logits(hidden if len(rows) == len(hidden) else hidden.index_select(0, rows))
            tokens = sample(logits, [chunk.sequence for chunk, _ in sampled])
            for (chunk, _), token in zip(sampled, tokens, strict=True):
                results[chunk] = (results[chunk][0], token)
        return results

    def _score_prompt(self, hidden: torch.Tensor, chunk: Chunk, row: int) -> list[TokenOutput]:
        """Log-probabilities of the prompt tokens that follow this chunk's positions and have none yet."""
        sequence = chunk.sequence
        count = sequence.request.sampling.prompt_logprobs
        if count is None:
            return []
        # The score of prompt token i comes from position i - 1, and the first has none.
        start = max(chunk.start, len(sequence.prompt_scores) - 1, 0)
        stop = min(chunk.stop, sequence.num_prompt - 1)
        scores = []
        for begin in range(start, stop, _SCORED_ROWS):
            end = min(begin + _SCORED_ROWS, stop)
            logits = self._model.logits(hidden[row + begin - chunk.start : row + end - chunk.start])
            scores += score(logits, sequence.tokens[begin + 1 : end + 1], count)
        return scores
