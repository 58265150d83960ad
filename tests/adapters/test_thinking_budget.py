"""Efforts as budgets to think with."""

import pytest

from adapters.canonical.errors import InvalidRequest
from adapters.thinking_budget import MIN_THINKING, thinking_budget


def test_a_higher_effort_thinks_longer() -> None:
    budgets = [thinking_budget(effort, None) for effort in ("minimal", "low", "medium", "high", "xhigh", "max")]

    assert budgets == sorted(set(budgets))
    assert budgets[0] == MIN_THINKING


@pytest.mark.parametrize(("max_tokens", "expected"), [(1025, 1024), (10_000, 5000), (100_000, 16_384)])
def test_half_of_the_answer_is_left_to_say_it(max_tokens: int, expected: int) -> None:
    assert thinking_budget("high", max_tokens) == expected


def test_a_limit_without_room_to_think_is_refused_by_name() -> None:
    with pytest.raises(InvalidRequest, match="max_tokens above 1024") as caught:
        thinking_budget("low", MIN_THINKING)

    assert caught.value.param == "reasoning_effort"
