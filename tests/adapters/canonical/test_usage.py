"""Token counts and logprobs."""

import math

import pytest
from msgspec.structs import fields, replace

from adapters.canonical.usage import MAX_COUNT, MIN_LOGPROB, Usage, floor_logprob, summed


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


@pytest.mark.parametrize("count", [-1, -(2**70), MAX_COUNT + 1, 10**30])
@pytest.mark.parametrize("name", [field.name for field in fields(Usage) if field.name.endswith("_tokens")])
def test_a_number_that_no_count_can_be_is_none(name: str, count: int) -> None:
    usage = Usage(prompt_tokens=3, completion_tokens=4)

    assert replace(usage, **{name: count}) == replace(usage, **{name: None})
    assert getattr(replace(usage, **{name: MAX_COUNT}), name) == MAX_COUNT


def test_a_turn_that_tells_nonsense_takes_nothing_from_the_sum() -> None:
    assert summed([Usage(prompt_tokens=7), Usage(prompt_tokens=-1)]) == Usage(prompt_tokens=7)
