"""Samplers of one row, against the same in plain Python. Noise is a grid, so that what is drawn is counted exactly."""

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest

from local_engine.row_draw import draw_row
from local_engine.sampling import SamplingParams

GRID = 200


def drawn(logits: list[float], *, chance: float = 0.0, **values: Any) -> Counter[int]:
    sampling, row = SamplingParams(**values), np.array(logits, dtype=np.float32)
    return Counter(
        draw_row(row, sampling, top_p=sampling.top_p, noise=step / GRID, chance=chance) for step in range(GRID)
    )


def softmax(scores: dict[int, float]) -> dict[int, float]:
    largest = max(scores.values())
    weights = {token: math.exp(score - largest) for token, score in scores.items()}
    return {token: weight / sum(weights.values()) for token, weight in weights.items()}


def entropy(probabilities: dict[int, float]) -> float:
    return -sum(p * math.log(p) for p in probabilities.values())


def tempered(scores: dict[int, float], asked: SamplingParams) -> dict[int, float]:
    temperature = asked.temperature
    if asked.dynatemp_range and len(scores) > 1:
        share = entropy(softmax(scores)) / math.log(len(scores))
        low, high = max(0.0, temperature - asked.dynatemp_range), temperature + asked.dynatemp_range
        temperature = low + (high - low) * share**asked.dynatemp_exponent
    return {token: score / temperature for token, score in scores.items()}


def until(mass: float, order: list[int], probabilities: dict[int, float]) -> list[int]:
    kept: list[int] = []
    while order and sum(probabilities[token] for token in kept) < mass:
        kept.append(order.pop(0))
    return kept


def expected(logits: list[float], *, chance: float = 0.0, **values: Any) -> dict[int, float]:
    """The probability of each token that is kept."""
    asked = SamplingParams(**values)
    scores = {token: logit for token, logit in enumerate(logits) if logit > -math.inf}
    if asked.top_n_sigma:
        mean = sum(scores.values()) / len(scores)
        deviation = math.sqrt(sum((score - mean) ** 2 for score in scores.values()) / len(scores))
        floor = max(scores.values()) - asked.top_n_sigma * deviation
        scores = {token: score for token, score in scores.items() if score >= floor}
    if not asked.temperature_last:
        scores = tempered(scores, asked)
    ranked = sorted(scores, key=lambda token: -scores[token])
    ranked = ranked[: asked.top_k or len(ranked)]
    ranked = until(asked.top_p, list(ranked), softmax({token: scores[token] for token in ranked}))
    best = scores[ranked[0]]
    scores = {token: scores[token] for token in ranked if math.exp(scores[token] - best) >= asked.min_p}
    if asked.typical_p < 1.0:
        likely = softmax(scores)
        typical = sorted(likely, key=lambda token: abs(-math.log(likely[token]) - entropy(likely)))
        scores = {token: scores[token] for token in until(asked.typical_p, typical, likely)}
    if chance < asked.xtc_probability:
        likely = softmax(scores)
        top = [
            token for token in sorted(likely, key=lambda token: -likely[token]) if likely[token] >= asked.xtc_threshold
        ]
        scores = {token: score for token, score in scores.items() if token not in top[:-1]}
    if asked.temperature_last:
        scores = tempered(scores, asked)
    return softmax(scores)


RULES: list[dict[str, Any]] = [
    {"top_n_sigma": 0.5},
    {"top_n_sigma": 1.5, "temperature": 3.0},
    {"top_n_sigma": 1.0, "top_k": 3, "top_p": 0.8, "min_p": 0.1},
    {"typical_p": 0.3},
    {"typical_p": 0.9, "top_k": 9},
    {"xtc_probability": 1.0, "xtc_threshold": 0.05},
    {"xtc_probability": 0.5, "xtc_threshold": 0.1, "min_p": 0.02, "temperature": 1.7},
    {"xtc_probability": 0.5, "xtc_threshold": 0.1, "chance": 0.7},
    {"xtc_probability": 1.0, "xtc_threshold": 0.6},
    {"xtc_probability": 1.0, "xtc_threshold": 0.0},
    {"dynatemp_range": 0.5},
    {"dynatemp_range": 5.0, "dynatemp_exponent": 2.0, "top_p": 0.9},
    {"temperature_last": True, "temperature": 3.0, "top_p": 0.7, "min_p": 0.1},
    {"temperature_last": True, "temperature": 1.5, "dynatemp_range": 1.0, "top_k": 5, "typical_p": 0.8},
    {"temperature_last": True, "temperature": 2.0, "xtc_probability": 1.0, "xtc_threshold": 0.15},
]


@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize("spread", [0.3, 2.0, 6.0])
def test_each_token_comes_as_often_as_plain_python_says(rule: dict[str, Any], spread: float) -> None:
    for seed in range(2):
        logits = (np.random.default_rng(seed).standard_normal(30) * spread).tolist()
        logits[7] = logits[11] = -math.inf
        counts, probabilities = drawn(logits, **rule), expected(logits, **rule)
        assert counts.keys() <= probabilities.keys()
        for token, probability in probabilities.items():
            assert counts[token] / GRID == pytest.approx(probability, abs=1.5 / GRID)


def test_of_equal_top_choices_the_last_one_is_kept() -> None:
    assert set(drawn([3.0, 3.0, 3.0, -2.0], xtc_probability=1.0, xtc_threshold=0.2)) == {2, 3}


def test_ties_at_a_cut_are_kept() -> None:
    tied = [1.0, 1.0, 1.0, 0.0]
    assert set(drawn(tied, typical_p=0.9, top_p=0.1)) == {0, 1, 2}
    assert set(drawn(tied, typical_p=0.99, top_k=1)) == {0, 1, 2}


def test_where_one_token_is_left_it_comes() -> None:
    alone = [-math.inf, 2.0, -math.inf]
    for rule in RULES:
        assert set(drawn(alone, **rule)) == {1}
    assert set(drawn([0.0, 90.0, 0.0], temperature=0.5, dynatemp_range=0.5)) == {1}
