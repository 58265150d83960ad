"""Steps as the engine wants them: computes chunks with an executor, then samples and scores.

The engine above sees chunks and token outputs only; the executor below sees no sampling.
"""

import torch

from local_engine.errors import GenerationFailed
from local_engine.executor import Executor
from local_engine.generation import TokenOutput
from local_engine.sampler import sample, score
from local_engine.scheduler import Chunk

__all__ = ["Runner", "StepResult"]

# Prompt scoring takes logits of this many rows at a time: 12 MB of them at a vocabulary of 49,152.
_SCORED_ROWS = 64

# What one step yields of one chunk: scores of prompt tokens, then the next token, its failure, or None mid-prompt.
StepResult = tuple[list[TokenOutput], TokenOutput | GenerationFailed | None]


class Runner:
    """Not thread-safe: the engine's thread owns it."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    @torch.inference_mode()
    def run(self, chunks: list[Chunk]) -> dict[Chunk, StepResult]:
        """Computes the chunks in one pass. Raises whatever the device raises; then nothing of them counts as done."""
        rows = self._executor.forward(chunks)
        results: dict[Chunk, StepResult] = {}
        sampled: list[tuple[Chunk, int]] = []
        for chunk, row in zip(rows.chunks, rows.first_row, strict=True):
            results[chunk] = (self._score_prompt(rows.hidden, chunk, row), None)
            if chunk.reaches_end and chunk.sequence.max_tokens > 0:
                sampled.append((chunk, row + chunk.stop - chunk.start - 1))
        if sampled:
            hidden = rows.hidden
            if len(sampled) < len(hidden):
                hidden = hidden.index_select(0, torch.tensor([row for _, row in sampled], device=hidden.device))
            tokens = sample(self._executor.logits(hidden), [chunk.sequence for chunk, _ in sampled])
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
            logits = self._executor.logits(hidden[row + begin - chunk.start : row + end - chunk.start])
            scores += score(logits, sequence.tokens[begin + 1 : end + 1], count)
        return scores
