"""What a request's reader hears of a step: sequences and step results as plain outputs. Knows no scheduling."""

import math
from collections.abc import Sequence as SequenceOf
from dataclasses import replace

import numpy as np

from local_engine.generation import FinishReason, StepOutput, TokenOutput
from local_engine.runner import StepResult
from local_engine.search import Answer
from local_engine.sequence import Sequence

__all__ = ["answers_output", "read_prompt", "step_output"]


def read_prompt(sequence: Sequence, result: StepResult) -> bool:
    """Keeps what a step says about the prompt's positions; False if these are not numbers."""
    sampling = sequence.request.sampling
    if sampling.prompt_logprobs is not None and len(sequence.prompt_scores) < sequence.num_prompt:
        if not sequence.prompt_scores:
            sequence.prompt_scores.append(TokenOutput(sequence.tokens[0], None, ()))
        sequence.prompt_scores += result.scores
        if not all(math.isfinite(entry.logprob) for entry in result.scores if entry.logprob is not None):
            return False
    if result.context_logits is not None:
        sequence.context_logits.append(result.context_logits)
        return not np.isnan(result.context_logits).any()
    return True


def step_output(
    sequence: Sequence,
    tokens: SequenceOf[TokenOutput],
    *,
    finish: FinishReason | None = None,
    stop_token_id: int | None = None,
) -> StepOutput:
    """What is new of a request. The first one has what was asked about the prompt."""
    first, sequence.reported = not sequence.reported, True
    logits = sequence.context_logits if first else []
    return StepOutput(
        tokens=tuple(tokens),
        finish=finish,
        stop_token_id=stop_token_id,
        prompt_logprobs=tuple(sequence.prompt_scores) if first and sequence.prompt_scores else None,
        prompt_tokens=sequence.num_prompt,
        cached_tokens=sequence.cached_tokens or 0,
        accepted_draft_tokens=sequence.accepted_drafts,
        rejected_draft_tokens=sequence.rejected_drafts,
        context_logits=np.concatenate(logits) if logits else None,
        began_s=sequence.began_s if first else None,
    )


def answers_output(root: Sequence, answers: SequenceOf[Answer]) -> StepOutput:
    """The one output of a request for several answers."""
    best, *others = [
        replace(
            step_output(root, answer.tokens, finish=answer.finish, stop_token_id=answer.stop_token_id),
            score=answer.score,
        )
        for answer in answers
    ]
    return replace(best, others=tuple(others))
