"""A token from one row of logits, by samplers that the kernels lack. Knows no torch: a row would only wake its threads.

0.5 to 5 ms for a row of 49,152 logits, by how many tokens have to be sorted (AMD EPYC with AVX2, 2026-11).
"""

import math

import numpy as np
import numpy.typing as npt

from local_engine.sampling import SamplingParams

__all__ = ["draw_row"]

Scores = npt.NDArray[np.float32]
Kept = npt.NDArray[np.bool_]

# Where a temperature that follows the entropy would be none.
_LEAST_TEMPERATURE = 1e-5


def draw_row(logits: Scores, sampling: SamplingParams, *, top_p: float, noise: float, chance: float) -> int:
    """The token at which the weights of what is kept, added in the order of ids, first exceed noise times their sum.

    logits: [V], the largest a finite number. top_p: the request's as it has decayed. noise, chance: uniform in [0, 1).
    """
    tokens = np.flatnonzero(logits > -np.inf)
    scores = logits[tokens]
    scores -= scores.max()

    def keep(kept: Kept) -> None:
        nonlocal tokens, scores
        tokens, scores = tokens[kept], scores[kept]

    if sampling.top_n_sigma > 0.0:
        keep(scores >= -sampling.top_n_sigma * scores.std(dtype=np.float64))
    if not sampling.temperature_last:
        scores = _tempered(scores, sampling)
    if 0 < sampling.top_k < len(scores):
        keep(scores >= np.partition(scores, -sampling.top_k)[-sampling.top_k])
    if top_p < 1.0:
        keep(_nucleus(scores, top_p))
    if sampling.min_p > 0.0:
        keep(scores >= math.log(sampling.min_p))
    if sampling.typical_p < 1.0:
        keep(_typical(scores, sampling.typical_p))
    if chance < sampling.xtc_probability:
        keep(_without_top_choices(scores, sampling.xtc_threshold))
    if sampling.temperature_last:
        scores = _tempered(scores, sampling)
    reached = _probabilities(scores).cumsum(dtype=np.float64)
    return int(tokens[np.searchsorted(reached, noise * reached[-1], side="right")])


def _tempered(scores: Scores, sampling: SamplingParams) -> Scores:
    """The scores divided by the temperature, which the entropy may lower or raise."""
    temperature, reach = sampling.temperature, sampling.dynatemp_range
    if reach > 0.0 and len(scores) > 1:
        probabilities = _probabilities(scores)
        share = _entropy(probabilities) / math.log(len(scores))
        low, high = max(temperature - reach, 0.0), temperature + reach
        temperature = max(low + (high - low) * share**sampling.dynatemp_exponent, _LEAST_TEMPERATURE)
    tempered: Scores = (scores - scores.max()) / np.float32(temperature)
    return tempered


def _probabilities(scores: Scores) -> Scores:
    weights: Scores = np.exp(scores - scores.max())
    weights /= weights.sum(dtype=np.float64)
    return weights


def _entropy(probabilities: Scores) -> float:
    some = probabilities[probabilities > 0.0]
    return max(-float((some * np.log(some)).sum(dtype=np.float64)), 0.0)


def _nucleus(scores: Scores, mass: float) -> Kept:
    """The likeliest tokens until they hold the mass: one is kept while those before it do not."""
    probabilities = _probabilities(scores)
    ranked = np.sort(probabilities)[::-1]
    count = max(int((ranked.cumsum(dtype=np.float64) - ranked < mass).sum()), 1)
    kept: Kept = probabilities >= ranked[count - 1]
    return kept


def _typical(scores: Scores, mass: float) -> Kept:
    """The same of the tokens whose information is nearest to the entropy."""
    probabilities = _probabilities(scores)
    with np.errstate(divide="ignore"):  # a token that is all but impossible is infinitely far
        distance = np.abs(-np.log(probabilities) - _entropy(probabilities))
    order = np.argsort(distance)
    last = min(int((probabilities[order].cumsum(dtype=np.float64) < mass).sum()), len(order) - 1)
    kept: Kept = distance <= distance[order[last]]
    return kept


def _without_top_choices(scores: Scores, threshold: float) -> Kept:
    """All but the tokens of this probability, of which the least likely one, and of equal ones the last, is kept."""
    probabilities = _probabilities(scores)
    kept: Kept = probabilities < threshold
    top = np.flatnonzero(~kept)[::-1]
    if top.size:
        kept[top[np.argmin(probabilities[top])]] = True
    return kept
