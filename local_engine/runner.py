"""Steps as the engine wants them: computes chunks with an executor, then samples and scores.

The engine above sees chunks and step results only; the executor below sees no sampling. A row whose mask is not filled
in time is kept and sampled later: a slow mask holds back its own sequence alone.
"""

from collections.abc import Sequence as SequenceOf
from concurrent.futures import FIRST_COMPLETED, wait
from dataclasses import dataclass
from dataclasses import replace as with_fields
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from local_engine.chunk import Chunk
from local_engine.errors import GenerationFailed
from local_engine.executor import Executor
from local_engine.generation import TokenOutput
from local_engine.logit_rows import copied_rows, joined_rows
from local_engine.logprobs import score
from local_engine.sampler import Candidate, SamplerRow, candidates
from local_engine.sequence import Sequence

__all__ = ["Runner", "StepResult"]

# Prompt scoring takes logits of this many rows at a time: 12 MB of them at a vocabulary of 49,152.
_SCORED_ROWS = 64
# How long a step waits for masks that are not filled yet: one that is slower is sampled in a later step.
_MASK_GRACE_S = 0.001

MaskWords = npt.NDArray[np.uint32]


@dataclass(slots=True)  # not frozen: one is made for each row of each step, and freezing costs three times as much
class StepResult:
    """What one step yields of one sequence; nobody changes it.

    scores: of prompt tokens. context_logits: [n, V] of the next prompt positions; None where not asked for.
    tokens: the drafted ones that were right, and the next one. candidates: in their place, where they were asked for.
    complete: the answer's mask allows no more. late: its mask is not filled yet; `Runner.sample_late` has the rest.
    """

    scores: SequenceOf[TokenOutput] = ()
    context_logits: npt.NDArray[np.float32] | None = None
    tokens: tuple[TokenOutput, ...] = ()
    candidates: tuple[Candidate, ...] = ()
    failure: GenerationFailed | None = None
    complete: bool = False
    late: bool = False


_LATE = StepResult(late=True)
_NOTHING = StepResult()


class _Asked(NamedTuple):
    """Rows of logits that choose the next tokens of one sequence: one, and one more for each drafted token."""

    sequence: Sequence
    first_row: int
    draft: tuple[int, ...] = ()


class Runner:
    """Not thread-safe: the engine's thread owns it."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._late: dict[Sequence, Tensor] = {}

    def close(self) -> None:
        """Gives back what the executor holds. Nothing may be run after it."""
        self._late.clear()
        self._executor.close()

    @property
    def waits_for_masks(self) -> bool:
        return bool(self._late)

    def prepare(self) -> bool:
        """See `Executor.prepare`."""
        return self._executor.prepare()

    def copy_blocks(self, pairs: SequenceOf[tuple[int, int]]) -> None:
        """See `Executor.copy_blocks`."""
        self._executor.copy_blocks(pairs)

    @torch.inference_mode()
    def run(self, chunks: list[Chunk]) -> dict[Chunk, StepResult]:
        """Computes the chunks in one pass. Raises whatever the device raises; then nothing of them counts as done."""
        step = self._executor.forward(chunks)
        results: dict[Chunk, StepResult] = {}
        asking: dict[Sequence, Chunk] = {}
        asked: list[_Asked] = []
        rows: list[int] = []
        for chunk, row in zip(step.chunks, step.first_row, strict=True):
            results[chunk] = self._read_prompt(step.hidden, chunk, row)
            if chunk.reaches_end and chunk.sequence.max_tokens > 0:
                asking[chunk.sequence] = chunk
                asked.append(_Asked(chunk.sequence, len(rows), chunk.draft))
                end = row + chunk.stop - chunk.start
                rows += range(end - 1 - len(chunk.draft), end)
        if asked:
            hidden = step.hidden
            if len(rows) < len(hidden):
                hidden = hidden.index_select(0, torch.tensor(rows, device=hidden.device))
            for sequence, result in self._choose(self._executor.logits(hidden), asked).items():
                chunk = asking[sequence]
                prompt = results[chunk]
                if prompt is not _NOTHING:
                    result = with_fields(result, scores=prompt.scores, context_logits=prompt.context_logits)
                results[chunk] = result
        return results

    @torch.inference_mode()
    def sample_late(self, *, timeout_s: float = 0.0) -> dict[Sequence, StepResult]:
        """The results of sequences whose masks have come since; waits at most `timeout_s` for the first."""
        pending = [sequence.masked.pending for sequence in self._late if sequence.masked is not None]
        if timeout_s and pending:
            wait(pending, timeout=timeout_s, return_when=FIRST_COMPLETED)
        ready = [sequence for sequence in self._late if sequence.masked is None or sequence.masked.ready]
        if not ready:
            return {}
        logits = joined_rows([self._late.pop(sequence) for sequence in ready])
        return self._choose(logits, [_Asked(sequence, row) for row, sequence in enumerate(ready)])

    def forget(self, sequence: Sequence) -> None:
        """Drops what is kept of a sequence that has ended."""
        self._late.pop(sequence, None)

    def _choose(self, logits: Tensor, asked: list[_Asked]) -> dict[Sequence, StepResult]:
        """The next tokens, or their candidates, of each sequence. logits: those of all rows."""
        results: dict[Sequence, StepResult] = {}
        masks = self._take_masks(asked, results)
        for one in asked:
            if one.sequence in results and results[one.sequence].late:
                self._late[one.sequence] = copied_rows(logits, [one.first_row])
        sampled = [one for one in asked if one.sequence not in results and not one.sequence.num_candidates]
        if sampled:
            rows = [
                SamplerRow(one.sequence, one.draft[:count], masks.get(one.sequence))
                for one in sampled
                for count in range(len(one.draft) + 1)
            ]
            tokens = iter(self._executor.sample(_rows_of(logits, sampled), rows))
            for one in sampled:
                results[one.sequence] = _accepted([next(tokens) for _ in range(len(one.draft) + 1)], one.draft)
        searched = [one for one in asked if one.sequence not in results]
        if searched:
            found = candidates(
                _rows_of(logits, searched),
                [SamplerRow(one.sequence, mask=masks.get(one.sequence)) for one in searched],
                [one.sequence.num_candidates for one in searched],
            )
            for one, outcome in zip(searched, found, strict=True):
                if isinstance(outcome, GenerationFailed):
                    results[one.sequence] = StepResult(failure=outcome)
                else:
                    results[one.sequence] = StepResult(candidates=tuple(outcome))
        return results

    def _take_masks(self, asked: list[_Asked], results: dict[Sequence, StepResult]) -> dict[Sequence, MaskWords]:
        """The masks that are there; of the other masked sequences, `results` says what became of them."""
        feeds = [(one.sequence, one.sequence.masked) for one in asked if one.sequence.masked is not None]
        pending = [feed.pending for _, feed in feeds if not feed.ready]
        if pending:
            wait(pending, timeout=_MASK_GRACE_S)
        masks: dict[Sequence, MaskWords] = {}
        for sequence, feed in feeds:
            if not feed.ready:
                results[sequence] = _LATE
                continue
            try:
                row = feed.take()
            except Exception as error:  # the mask is the caller's code: whatever it raises is its request's failure
                failure = GenerationFailed(f"the mask of the request failed: {type(error).__name__}: {error}")
                failure.__cause__ = error
                results[sequence] = StepResult(failure=failure)
                continue
            if row is None:
                results[sequence] = StepResult(complete=True)
            else:
                masks[sequence] = row
        return masks

    def _read_prompt(self, hidden: Tensor, chunk: Chunk, row: int) -> StepResult:
        """What was asked of the prompt's own positions."""
        sampling = chunk.sequence.request.sampling
        if sampling.prompt_logprobs is None and not sampling.context_logits:
            return _NOTHING
        return StepResult(self._score_prompt(hidden, chunk, row), self._context_logits(hidden, chunk, row))

    def _score_prompt(self, hidden: Tensor, chunk: Chunk, row: int) -> list[TokenOutput]:
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

    def _context_logits(self, hidden: Tensor, chunk: Chunk, row: int) -> npt.NDArray[np.float32] | None:
        """The logits at this chunk's prompt positions that have not been reported."""
        sequence = chunk.sequence
        start = max(chunk.start, sequence.num_context_logits)
        stop = min(chunk.stop, sequence.num_prompt)
        if not sequence.request.sampling.context_logits or start >= stop:
            return None
        found = []
        for begin in range(start, stop, _SCORED_ROWS):
            end = min(begin + _SCORED_ROWS, stop)
            logits = self._executor.logits(hidden[row + begin - chunk.start : row + end - chunk.start])
            found.append(logits.to("cpu", torch.float32).numpy())
        return np.concatenate(found)


def _rows_of(logits: Tensor, asked: list[_Asked]) -> Tensor:
    """The rows of these sequences, the caller's to overwrite."""
    rows = [one.first_row + place for one in asked for place in range(len(one.draft) + 1)]
    return logits if len(rows) == len(logits) else copied_rows(logits, rows)


def _accepted(tokens: list[TokenOutput | GenerationFailed], draft: tuple[int, ...]) -> StepResult:
    """The tokens up to the first that is not the drafted one: what would have come one by one.

    tokens: sampled after each part of the draft, so those behind a wrong guess are answers to what never was.
    """
    kept: list[TokenOutput] = []
    for place, token in enumerate(tokens):
        if isinstance(token, GenerationFailed):
            return StepResult(tokens=tuple(kept), failure=None if kept else token)
        kept.append(token)
        if place == len(draft) or token.token_id != draft[place]:
            break
    return StepResult(tokens=tuple(kept))
