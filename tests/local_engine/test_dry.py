"""DRY against a search in plain Python, and how far what it looks at may reach."""

import random

import pytest

from local_engine.dry import dry_penalties
from local_engine.sampling import Dry


def expected(tokens: list[int], dry: Dry) -> dict[int, float]:
    """For each token, the longest text before it anywhere that the tokens end with and no breaker is in."""
    found: dict[int, int] = {}
    for place in range(1, len(tokens)):
        length = 0
        while length < place and tokens[place - 1 - length] == tokens[-1 - length]:
            behind = len(tokens) - length
            phrases = [phrase for phrase in dry.phrases if tuple(tokens[:behind][-len(phrase) :]) == phrase]
            if tokens[behind - 1] in dry.breakers or phrases:
                break
            length += 1
        if length >= max(dry.allowed_length, 1) and tokens[place] not in dry.breakers:
            found[tokens[place]] = max(found.get(tokens[place], 0), min(length, dry.allowed_length + 50))
    return {token: dry.multiplier * dry.base ** (length - dry.allowed_length) for token, length in found.items()}


@pytest.mark.parametrize(
    "dry",
    [
        Dry(0.8),
        Dry(0.8, allowed_length=0),
        Dry(2.0, base=1.0, allowed_length=1),
        Dry(1.0, base=3.0, allowed_length=4, breakers=frozenset({1})),
        Dry(1.0, breakers=frozenset({0, 2}), phrases=((1, 1), (3, 1, 3))),
    ],
    ids=str,
)
def test_it_penalises_what_plain_python_finds(dry: Dry) -> None:
    draw = random.Random(3)
    for vocabulary in (2, 4, 9):
        for length in (0, 1, 2, 3, 20, 70):
            for _ in range(4):
                tokens = draw.choices(range(vocabulary), k=length)
                assert dry_penalties(tokens, dry) == pytest.approx(expected(tokens, dry))


def test_the_longer_a_repetition_the_less_likely_that_it_goes_on() -> None:
    phrase = [5, 6, 7, 8, 9]
    penalties = [dry_penalties([*phrase, 1, *phrase[:n]], Dry(0.5, base=2.0)).get(phrase[n], 0.0) for n in range(5)]
    assert penalties == [0.0, 0.0, 0.5, 1.0, 2.0]


def test_a_text_that_is_one_repetition_gives_a_number_that_logits_can_hold() -> None:
    assert dry_penalties([7] * 5000, Dry(100.0, base=10.0)) == {7: 1e30}
    assert dry_penalties([7] * 5000, Dry(0.8, breakers=frozenset({7}))) == {}
