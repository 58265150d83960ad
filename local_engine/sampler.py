"""Logits to tokens, or to a beam search's candidates, for all rows of a step at once, each with its own parameters.

Noise is one uniform a row from (seed, number of generated tokens), through the inverse of the cumulative distribution
in the order of token ids: nothing about the batch enters a draw. A row whose logits are not numbers fails alone.
"""

import math
from collections import Counter
from collections.abc import Collection, Mapping
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from local_engine.dry import dry_penalties
from local_engine.errors import GenerationFailed, NothingAllowed
from local_engine.generation import TokenOutput
from local_engine.kernels.cpu.draw import DrawRules, draw, library_for, likeliest
from local_engine.kernels.cpu.library import DRAW_RULE
from local_engine.logit_rows import copied_rows
from local_engine.logprobs import LOGPROB_FLOOR, log_probabilities, report, scored, with_listed
from local_engine.philox import uniforms
from local_engine.row_draw import draw_row
from local_engine.sampling import SamplingParams
from local_engine.sequence import Sequence

__all__ = [
    "Candidate",
    "SamplerRow",
    "candidates",
    "failure_of",
    "forbidden_ids",
    "sample",
    "top_p_at",
]

# Nucleus cuts are looked for among this many likeliest tokens first: 4 ms for 16 rows of 49,152, where sorting them
# all takes 29 ms (2 cores of an AMD EPYC, 2026-11).
_NUCLEUS_CANDIDATES = 1024


class SamplerRow(NamedTuple):
    """What a row of logits is the next token of: a sequence, and tokens drafted to follow it up to this row.

    mask: which tokens may come, as `TokenMask.fill` writes it. None: any.
    ahead: tokens before this row's that only the device knows yet; those of the sequence go before them.
    """

    sequence: Sequence
    draft: tuple[int, ...] = ()
    mask: npt.NDArray[np.uint32] | None = None
    ahead: int = 0

    @property
    def sampling(self) -> SamplingParams:
        return self.sequence.request.sampling

    @property
    def position(self) -> int:
        """Tokens of the answer before this row's."""
        return self.sequence.num_generated + len(self.draft) + self.ahead

    @property
    def keeps_logits(self) -> bool:
        """Nothing changes its logits before a token is drawn."""
        sampling = self.sampling
        return self.mask is None and not (
            sampling.logit_bias
            or sampling.allowed_token_ids is not None
            or sampling.min_tokens
            or sampling.bad_words
            or sampling.dry is not None
            or self.sequence.penalised
        )

    def tail(self, count: int | None, *, first: int = 0) -> tuple[int, ...]:
        """The last `count` tokens before this row's (None: all), none of which stands before place `first`."""
        known = self.sequence.tokens
        if count is not None:
            first = max(first, len(known) + len(self.draft) - count)
        return (*known[first:], *self.draft[max(first - len(known), 0) :])


@dataclass(frozen=True, slots=True)
class Candidate:
    """A token that may continue a beam. logprob: under bias, penalties and masks, not normalised again."""

    token: TokenOutput
    logprob: float


def sample(logits: Tensor, rows: SequenceOf[SamplerRow]) -> list[TokenOutput | GenerationFailed]:
    """The next token of each row. logits: [B, V] float32, row i of rows[i]; may be overwritten."""
    params = [row.sampling for row in rows]
    # Answers of which the best are kept are ranked by their log-probabilities.
    reported = [row for row, sampling in enumerate(params) if sampling.logprobs is not None or sampling.width > 1]
    # What is reported is of the untouched distribution.
    intact = len(reported) == len(rows) and all(row.keeps_logits for row in rows)
    own = logits if intact or not reported else copied_rows(logits, reported)
    best, choice = _likeliest(logits)
    # A fault of the model is one of the raw logits: later, a bias could hide it and a mask could look like it.
    sound = torch.isfinite(best).tolist()
    open_rows = sound
    if _shape_distribution(logits, rows):
        best, choice = _likeliest(logits)
        open_rows = torch.isfinite(best).tolist()
    drawn = [row for row, sampling in enumerate(params) if not sampling.greedy and sound[row] and open_rows[row]]
    if drawn:
        drawn_from = logits if len(drawn) == len(params) else copied_rows(logits, drawn)
        choice[drawn] = _draw(drawn_from, [rows[row] for row in drawn])
    tokens = choice.tolist()
    outputs: list[TokenOutput | GenerationFailed] = [
        TokenOutput(token_id, None, ()) if sound[row] and open_rows[row] else failure_of(sound=sound[row])
        for row, token_id in enumerate(tokens)
    ]
    if reported:
        counts = [params[row].logprobs or 0 for row in reported]
        listed = [params[row].logprob_token_ids for row in reported]
        told = scored(own, [tokens[row] for row in reported], counts, listed)
        for row, output in zip(reported, told, strict=True):
            if sound[row] and open_rows[row]:
                outputs[row] = output
    return outputs


def candidates(
    logits: Tensor, rows: SequenceOf[SamplerRow], counts: SequenceOf[int]
) -> list[list[Candidate] | GenerationFailed]:
    """The counts[i] likeliest next tokens of each row, best first; fewer where the masks leave fewer.

    logits: [B, V] float32, may be overwritten.
    """
    sound = torch.isfinite(logits.amax(-1)).tolist()
    logprobs = log_probabilities(logits)
    shaped = logprobs.clone()
    _shape_distribution(shaped, rows)
    values, ids = shaped.topk(min(max(counts), shaped.shape[1]), dim=-1)
    own = logprobs.gather(1, ids).clamp_(min=LOGPROB_FLOOR).tolist()
    # The likeliest tokens of a row are the same beside each of its candidates.
    reported = report(logprobs, ids[:, 0].tolist(), [row.sampling.logprobs or 0 for row in rows])
    reported = with_listed(logprobs, reported, [row.sampling.logprob_token_ids for row in rows])
    found: list[list[Candidate] | GenerationFailed] = []
    for row, (row_values, row_ids) in enumerate(zip(values.tolist(), ids.tolist(), strict=True)):
        kept = [
            Candidate(TokenOutput(token_id, logprob, reported[row].top), value)
            for token_id, logprob, value in zip(row_ids, own[row], row_values, strict=True)
            if value > -math.inf
        ]
        if not sound[row] or not kept:
            found.append(failure_of(sound=sound[row]))
            continue
        # Equal values in the order of token ids, whatever order the device finds them in.
        kept.sort(key=lambda candidate: (-candidate.logprob, candidate.token.token_id))
        found.append(kept[: counts[row]])
    return found


def failure_of(*, sound: bool) -> GenerationFailed:
    """Of a row for which no token could be chosen. sound: its logits were numbers."""
    if sound:
        return NothingAllowed("what the request allows leaves no token that may come next")
    return GenerationFailed("the model's logits are not finite numbers")


def _shape_distribution(logits: Tensor, rows: SequenceOf[SamplerRow]) -> bool:
    """Applies bias, penalties and masks in place to the rows that ask for them. True if one did."""
    shaped = False
    for index, row in enumerate(rows):
        sampling = row.sampling
        forbidden = forbidden_ids(row)
        if sampling.logit_bias:
            ids = torch.tensor(list(sampling.logit_bias), device=logits.device)
            logits[index, ids] += torch.tensor(list(sampling.logit_bias.values()), device=logits.device)
        if row.sequence.penalised:
            _penalise(logits[index], row)
        if sampling.dry is not None:
            penalties = dry_penalties(row.tail(sampling.dry.last_n), sampling.dry)
            ids = torch.tensor(list(penalties), device=logits.device, dtype=torch.int64)
            logits[index, ids] -= torch.tensor(list(penalties.values()), device=logits.device)
        if sampling.allowed_token_ids is not None:
            ids = torch.tensor(sampling.allowed_token_ids, device=logits.device)
            kept = logits[index, ids]
            logits[index] = -torch.inf
            logits[index, ids] = kept
        if forbidden:
            logits[index, forbidden] = -torch.inf
        shaped = shaped or bool(
            sampling.logit_bias
            or row.sequence.penalised
            or sampling.dry is not None
            or sampling.allowed_token_ids is not None
            or forbidden
        )
    return _apply_masks(logits, rows) or shaped


def forbidden_ids(row: SamplerRow) -> list[int]:
    """The tokens that must not come next: end tokens too early, bad words and the ends of begun ones."""
    sampling, sequence = row.sampling, row.sequence
    forbidden = list(sequence.stop_ids) if row.position < sampling.min_tokens else []
    if sampling.bad_words:
        forbidden += sampling.forbidden_ids
        begins = sequence.num_prompt
        forbidden += [word[-1] for word in sampling.phrases if row.tail(len(word) - 1, first=begins) == word[:-1]]
    return forbidden


def _apply_masks(logits: Tensor, rows: SequenceOf[SamplerRow]) -> bool:
    """Rules out what the rows' bit masks do not allow, in place. True if there was one."""
    masked = [index for index, row in enumerate(rows) if row.mask is not None]
    if not masked:
        return False
    words = np.stack([row.mask for row in rows if row.mask is not None])
    # Little-endian words: bit t % 32 of word t // 32 is bit t of the bytes.
    bits = np.unpackbits(words.astype("<u4", copy=False).view(np.uint8), axis=1, bitorder="little")
    forbidden = bits[:, : logits.shape[1]] == 0
    if logits.device.type == "cpu":
        # Without torch: waking its threads beside those of the kernels costs 10 to 30 ms where cores are scarce.
        values = logits.numpy()
        for index, row_forbidden in zip(masked, forbidden, strict=True):
            np.copyto(values[index], -np.inf, where=row_forbidden)
    else:
        logits[masked] = logits[masked].masked_fill_(torch.from_numpy(forbidden).to(logits.device), -torch.inf)
    return True


def _penalise(logits: Tensor, row: SamplerRow) -> None:
    """One row's repetition, presence and frequency penalties, in place. logits: [V]."""
    sampling = row.sampling
    seen: Collection[int] = row.sequence.seen
    counts: Mapping[int, int] = row.sequence.answer_counts
    if sampling.repeat_last_n is not None:
        counts = Counter(row.tail(sampling.repeat_last_n))
        seen = counts.keys()
    elif row.draft:
        seen = row.sequence.seen.union(row.draft)
        counts = Counter(row.sequence.answer_counts)
        counts.update(row.draft)
    if sampling.repetition_penalty != 1.0:
        ids = torch.from_numpy(np.fromiter(seen, np.int64, len(seen))).to(logits.device)
        values = logits[ids]
        penalty = sampling.repetition_penalty
        logits[ids] = torch.where(values > 0, values / penalty, values * penalty)
    if counts and (sampling.presence_penalty or sampling.frequency_penalty):
        ids = torch.from_numpy(np.fromiter(counts.keys(), np.int64, len(counts))).to(logits.device)
        times = torch.from_numpy(np.fromiter(counts.values(), np.float32, len(counts))).to(logits.device)
        logits[ids] -= sampling.presence_penalty + sampling.frequency_penalty * times


def _likeliest(logits: Tensor) -> tuple[Tensor, Tensor]:
    """The largest logit of each row, NaN where one is, and its token: [B] and [B] int64."""
    library = library_for(logits)
    return logits.max(-1) if library is None else likeliest(library, logits)


def _draw(logits: Tensor, rows: SequenceOf[SamplerRow]) -> Tensor:
    """A token for each row at its own temperature and cuts: [B] int64."""
    apart = [index for index, row in enumerate(rows) if row.sampling.drawn_apart]
    if not apart:
        return _draw_together(logits, rows)
    tokens = torch.empty(len(rows), dtype=torch.int64, device=logits.device)
    together = [index for index, row in enumerate(rows) if not row.sampling.drawn_apart]
    if together:
        tokens[together] = _draw_together(copied_rows(logits, together), [rows[index] for index in together])
    for index in apart:
        row, sampling = rows[index], rows[index].sampling
        (noise,), (chance,) = (uniforms([row.sequence.seed], [row.position], lane=lane) for lane in (0, 1))
        top_p = top_p_at(sampling, row.position)
        tokens[index] = draw_row(logits[index].cpu().numpy(), sampling, top_p=top_p, noise=noise, chance=chance)
    return tokens


def _draw_together(logits: Tensor, rows: SequenceOf[SamplerRow]) -> Tensor:
    """A token for each row, by what kernels draw by: [B] int64.

    The CPU kernels draw a row of 49,152 logits in 0.1 ms, torch in 0.3 to 6 ms (AMD EPYC Zen 4, 2026-11).
    """
    library = library_for(logits)
    if library is not None:
        return draw(library, logits, _draw_rules(rows))
    temperatures = torch.tensor([row.sampling.temperature for row in rows], device=logits.device)
    # The largest logit is taken off first, or a tiny temperature would overflow.
    logits = (logits - logits.amax(-1, keepdim=True)) / temperatures[:, None]
    floor = _cut(logits, rows)
    if floor is not None:
        logits = logits.masked_fill(logits < floor[:, None], -torch.inf)
    cumulative = logits.exp_().cumsum(-1, dtype=torch.float64)
    noise = uniforms([row.sequence.seed for row in rows], [row.position for row in rows])
    targets = torch.from_numpy(noise).to(logits.device)[:, None] * cumulative[:, -1:]
    # The first id whose cumulative weight exceeds the target: one of weight 0 cannot be it.
    return torch.searchsorted(cumulative, targets, right=True)[:, 0]


def _draw_rules(rows: SequenceOf[SamplerRow]) -> DrawRules:
    rules = np.zeros(len(rows), dtype=DRAW_RULE)
    rules["noise"] = uniforms([row.sequence.seed for row in rows], [row.position for row in rows])
    for rule, row in zip(rules, rows, strict=True):
        sampling = row.sampling
        rule["top_p"], rule["top_k"], rule["temperature"] = (
            top_p_at(sampling, row.position),
            sampling.top_k,
            sampling.temperature,
        )
        rule["log_min_p"] = math.log(sampling.min_p) if sampling.min_p > 0.0 else -math.inf
    return rules


def _cut(logits: Tensor, rows: SequenceOf[SamplerRow]) -> Tensor | None:
    """The smallest logit that each row keeps under top_k, top_p and min_p: [B]; None if no row cuts."""
    params = [row.sampling for row in rows]
    floor = torch.full((len(params),), -torch.inf, device=logits.device)
    vocab_size = logits.shape[1]
    top_k = [row for row, sampling in enumerate(params) if 0 < sampling.top_k < vocab_size]
    top_p = [row for row, sampling in enumerate(params) if sampling.top_p < 1.0 or sampling.top_p_decay < 1.0]
    min_p = [row for row, sampling in enumerate(params) if sampling.min_p > 0.0]
    if not (top_k or top_p or min_p):
        return None
    if top_k:
        counts = torch.tensor([params[row].top_k for row in top_k], device=logits.device)
        likeliest = logits[top_k].topk(int(counts.max()), dim=-1).values
        floor[top_k] = likeliest.gather(1, counts[:, None] - 1)[:, 0]
    if top_p:
        mass = torch.tensor(
            [top_p_at(params[row], rows[row].position) for row in top_p], device=logits.device, dtype=torch.float64
        )
        floor[top_p] = torch.maximum(floor[top_p], _nucleus_floor(logits[top_p], floor[top_p], mass))
    if min_p:
        share = torch.tensor([math.log(params[row].min_p) for row in min_p], device=logits.device)
        floor[min_p] = torch.maximum(floor[min_p], logits[min_p].amax(-1) + share)
    return floor


def top_p_at(sampling: SamplingParams, position: int) -> float:
    """top_p as it has decayed by the answer's token at `position`."""
    if position == 0:
        return sampling.top_p
    return max(sampling.top_p * sampling.top_p_decay**position, sampling.top_p_min)


def _nucleus_floor(logits: Tensor, floor: Tensor, mass: Tensor) -> Tensor:
    """The smallest logit of the smallest set of likeliest tokens whose probability reaches `mass`: [B].

    Probabilities are of the tokens at or above `floor`.
    """
    weights = logits.exp().masked_fill_(logits < floor[:, None], 0.0)
    needed = mass * weights.sum(-1, dtype=torch.float64)
    width = min(_NUCLEUS_CANDIDATES, logits.shape[1])
    values, order = weights.topk(width, dim=-1)
    reached = values.cumsum(-1, dtype=torch.float64)
    if bool((reached[:, -1] < needed).any()):
        values, order = weights.sort(dim=-1, descending=True)
        reached = values.cumsum(-1, dtype=torch.float64)
    # A token is kept while those before it have not reached the mass: the likeliest one always is.
    kept = (reached - values < needed[:, None]).sum(-1)
    return logits.gather(1, order.gather(1, (kept - 1)[:, None]))[:, 0]
