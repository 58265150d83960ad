"""Plays every case of open.yaml against the whole gateway on a socket."""

from collections.abc import Awaitable, Callable, Mapping

import pytest

from tests.cases import (
    checks_door,
    checks_engine,
    checks_errors,
    checks_logprobs,
    checks_prompts,
    checks_responses,
    checks_setup,
    checks_stream,
    checks_text,
    checks_tools,
)
from tests.cases.case import Case, all_cases, case_named

Check = Callable[[Case], Awaitable[None]]

_AREAS: tuple[Mapping[str, Check], ...] = (
    checks_tools.CHECKS,
    checks_stream.CHECKS,
    checks_text.CHECKS,
    checks_logprobs.CHECKS,
    checks_prompts.CHECKS,
    checks_errors.CHECKS,
    checks_door.CHECKS,
    checks_setup.CHECKS,
    checks_engine.CHECKS,
    checks_responses.CHECKS,
)
CHECKS: Mapping[str, Check] = {name: check for area in _AREAS for name, check in area.items()}


@pytest.mark.parametrize("name", CHECKS)
async def test_the_gateway_does_what_is_right_in(name: str) -> None:
    await CHECKS[name](case_named(name))


def test_every_case_is_played() -> None:
    assert {name.partition("/")[0] for name in CHECKS} == set(all_cases())
    assert sum(len(area) for area in _AREAS) == len(CHECKS)
