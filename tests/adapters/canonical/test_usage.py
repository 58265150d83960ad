"""Token counts and logprobs."""

import math

import pytest

from adapters.canonical.usage import MIN_LOGPROB, Usage, floor_logprob


@pytest.mark.parametrize(("value", "expected"), [(-0.5, -0.5), (0.0, 0.0), (-1e9, MIN_LOGPROB)])
def test_a_logprob_stays_within_what_json_holds(value: float, expected: float) -> None:
    assert floor_logprob(value) == expected


@pytest.mark.parametrize("value", [-math.inf, math.nan])
def test_what_json_cannot_hold_becomes_the_floor(value: float) -> None:
    assert floor_logprob(value) == MIN_LOGPROB


def test_a_total_that_nobody_reported_is_unknown() -> None:
    assert Usage().total_tokens is None
    assert Usage(prompt_tokens=3).total_tokens == 3
    assert Usage(prompt_tokens=3, completion_tokens=4).total_tokens == 7
