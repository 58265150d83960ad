"""The tokens of a step from its logits: on the device by kernels, without a wait, or by the reference sampler.

Owns the histories of sequences with penalties: which tokens each has seen, counted on the device as they are drawn.
"""

from collections.abc import Collection
from collections.abc import Sequence as SequenceOf
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from local_engine.errors import GenerationFailed
from local_engine.generation import GenerationRequest, TokenOutput
from local_engine.kernels.gpu.sampling import runs_on_device, sampling_tensors
from local_engine.kernels.triton.draw_tokens import RowState
from local_engine.kernels.triton.sample_tokens import SampledTokens, sample_tokens
from local_engine.kernels.triton.sampling_rules import begin_history, new_histories
from local_engine.sampler import SamplerRow, failure_of, sample
from local_engine.sampling import SamplingParams
from local_engine.sequence import Sequence
from local_engine.transfers import Fetched, to_device

__all__ = ["DrawnRows", "KernelSampler", "ReferenceSampler", "StepSampler", "compile_sampler"]

Outcome = TokenOutput | GenerationFailed


class DrawnRows(Protocol):
    """Tokens that are drawn, or will be."""

    @property
    def token_ids(self) -> Tensor:
        """[B] int64 on the device, for the next step to follow; any token where none could be drawn."""

    def fetch(self) -> list[Outcome]:
        """The same on the host, with what was asked about them. Waits."""


class StepSampler(Protocol):
    """Not thread-safe."""

    def draw(self, logits: Tensor, rows: SequenceOf[SamplerRow]) -> DrawnRows:
        """A token for each row of logits [B, V], in float32 or the model's type, which may be overwritten."""


class _Known:
    """Implements `DrawnRows` of what the host has already."""

    def __init__(self, outcomes: list[Outcome], device: torch.device) -> None:
        self._outcomes = outcomes
        known = [outcome.token_id if isinstance(outcome, TokenOutput) else 0 for outcome in outcomes]
        self.token_ids = torch.tensor(known, dtype=torch.int64, device=device)

    def fetch(self) -> list[Outcome]:
        return self._outcomes


class ReferenceSampler:
    """Implements `StepSampler` by `sampler.sample`: the twin of the other, for a device whose results do not wait."""

    def __init__(self) -> None:
        self._last: dict[Sequence, int] = {}

    def draw(self, logits: Tensor, rows: SequenceOf[SamplerRow]) -> DrawnRows:
        known = [row._replace(draft=(self._last[row.sequence],), ahead=0) if row.ahead else row for row in rows]
        drawn = _Known(sample(logits.float(), known), logits.device)
        self._last = dict(zip((row.sequence for row in rows), drawn.token_ids.tolist(), strict=True))
        return drawn


class _Drawn:
    """Implements `DrawnRows` of what the device was told to draw."""

    def __init__(self, rows: SequenceOf[SamplerRow], sampled: SampledTokens) -> None:
        drawn = sampled.drawn
        self.token_ids = drawn.token_ids
        self._rows = rows
        self._numbers = Fetched(drawn.token_ids, drawn.states, drawn.logprobs)
        self._top: Fetched | None = None
        if sampled.top_ids is not None and sampled.top_logprobs is not None:
            self._top = Fetched(sampled.top_ids, sampled.top_logprobs)

    def fetch(self) -> list[Outcome]:
        token_ids, states, logprobs = (tensor.tolist() for tensor in self._numbers.wait())
        tops = self._likeliest()
        outcomes: list[Outcome] = []
        for row, token_id, state, logprob, top in zip(self._rows, token_ids, states, logprobs, tops, strict=True):
            sampling = row.sampling
            if state != RowState.DRAWN:
                outcomes.append(failure_of(sound=state == RowState.NOTHING_ALLOWED))
            elif sampling.logprobs is None and sampling.width == 1:
                outcomes.append(TokenOutput(token_id, None, ()))
            else:
                outcomes.append(TokenOutput(token_id, logprob, tuple(top[: sampling.logprobs or 0])))
        return outcomes

    def _likeliest(self) -> list[list[tuple[int, float]]]:
        """Of each row, best first, equal ones in the order of their ids."""
        if self._top is None:
            return [[] for _ in self._rows]
        ids, logprobs = (tensor.tolist() for tensor in self._top.wait())
        return [
            sorted(zip(row_ids, row_logprobs, strict=True), key=lambda pair: (-pair[1], pair[0]))
            for row_ids, row_logprobs in zip(ids, logprobs, strict=True)
        ]


class KernelSampler:
    """Implements `StepSampler` by the kernels. slots: sequences with penalties that are drawn at once, at most."""

    def __init__(self, vocab_size: int, *, slots: int, device: torch.device) -> None:
        self._vocab_size = vocab_size
        self._device = device
        self._slots = slots
        self._histories: Tensor | None = None
        self._held: dict[Sequence, tuple[int, int]] = {}
        """The slot of each sequence, and the place of its next token."""

    def draw(self, logits: Tensor, rows: SequenceOf[SamplerRow]) -> DrawnRows:
        if not all(map(runs_on_device, rows)):
            # Rare rules, for which the host waits with all its rows: each is looked at by itself.
            return _Known(sample(logits.float(), rows), logits.device)
        histories = self._histories_of(rows)
        rules = sampling_tensors(rows, self._vocab_size, histories=histories, device=self._device)
        sampled = sample_tokens(
            logits,
            rules,
            histories=self._histories if any(slot >= 0 for slot in histories) else None,
            num_logprobs=min(max((row.sampling.logprobs or 0 for row in rows), default=0), self._vocab_size),
            all_greedy=all(row.sampling.greedy for row in rows),
        )
        return _Drawn(rows, sampled)

    def _histories_of(self, rows: SequenceOf[SamplerRow]) -> list[int]:
        """The slot of each row's history, begun anew where the device has not drawn the token before; -1 for none."""
        penalised = [row for row in rows if row.sequence.penalised]
        if not penalised:
            return [-1] * len(rows)
        if self._histories is None:
            self._histories = new_histories(self._slots, self._vocab_size, device=self._device)
        here = {row.sequence for row in penalised}
        if len(here | self._held.keys()) > self._slots:
            self._held = {sequence: held for sequence, held in self._held.items() if sequence in here}
        free = iter(sorted(set(range(self._slots)) - {slot for slot, _ in self._held.values()}))
        for row in penalised:
            slot, place = self._held.get(row.sequence, (-1, -1))
            if slot < 0:
                slot = next(free)
            if place != row.position:
                self._begin(slot, row.sequence)
            self._held[row.sequence] = (slot, row.position + 1)
        return [self._held[row.sequence][0] if row.sequence.penalised else -1 for row in rows]

    def _begin(self, slot: int, sequence: Sequence) -> None:
        assert self._histories is not None
        tokens = np.array(sequence.tokens, dtype=np.int64)
        prompt, answer = tokens[: sequence.num_prompt], tokens[sequence.num_prompt :]
        begin_history(self._histories, slot, to_device(prompt, self._device), to_device(answer, self._device))


@torch.inference_mode()
def compile_sampler(vocab_size: int, device: torch.device, dtypes: Collection[torch.dtype]) -> None:
    """Draws a row of each kind from logits of each type, so that no request waits until the kernels are compiled."""
    sampler = KernelSampler(vocab_size, slots=1, device=device)
    for params in (SamplingParams(temperature=0.0), SamplingParams(top_k=5, top_p=0.9, presence_penalty=0.1)):
        sequence = Sequence(GenerationRequest("", (0,), params), 0, 0, frozenset(), 1)
        for dtype in dtypes:
            sampler.draw(torch.zeros(1, vocab_size, dtype=dtype, device=device), [SamplerRow(sequence)]).fetch()
