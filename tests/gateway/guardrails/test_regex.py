"""A regular expression finds the same in a stream, however it is cut, and holds little of it back."""

import asyncio
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.canonical.errors import ContentRefused
from gateway.guardrails.guardrail import Subject
from gateway.guardrails.regex import RegexGuardrail

SUBJECT = Subject("m")
LENGTH = 8
PATTERNS = [r"\d{4}", r"\bab+\b", r"(?<=a)b", r"a.*?c", r"[ab]{2,5}", r"b(?=c)", r"^a", r"c$", r"x*"]


async def in_pieces(pattern: str, pieces: list[str]) -> str:
    looks = RegexGuardrail(pattern, "[x]", max_length=LENGTH).output_filter(SUBJECT)
    return "".join([await looks.feed(piece) for piece in pieces] + [await looks.finish()])


@pytest.mark.parametrize("pattern", PATTERNS)
@given(pieces=st.lists(st.text("abc1 ", max_size=12), max_size=8))
async def test_the_result_does_not_depend_on_the_cuts(pattern: str, pieces: list[str]) -> None:
    whole = "".join(pieces)
    guardrail = RegexGuardrail(pattern, "[x]", max_length=LENGTH)
    assert await in_pieces(pattern, pieces) == (await guardrail.check_input([whole], SUBJECT))[0]


@pytest.mark.parametrize("pattern", [r"\d{4}", r"\bab{1,3}\b", r"[ab]{2}"])
@given(text=st.text("abc1 ", max_size=40))
async def test_short_matches_are_those_of_the_regular_expression_itself(pattern: str, text: str) -> None:
    assert await in_pieces(pattern, list(text)) == re.sub(pattern, "[x]", text)


async def test_no_more_than_the_longest_match_is_held_back() -> None:
    looks = RegexGuardrail(r"\d{16}", "[card]", max_length=16).output_filter(SUBJECT)
    passed = await looks.feed("a" * 1000)
    assert len(passed) == 1000 - 16


async def test_groups_are_put_in() -> None:
    guardrail = RegexGuardrail(r"(\w+)@(\w+)", r"\2", max_length=64)
    assert await guardrail.check_input(["write to me@home now"], SUBJECT) == ["write to home now"]


async def test_without_a_replacement_the_text_is_refused() -> None:
    guardrail = RegexGuardrail("bomb", None, max_length=64)
    assert await guardrail.check_input(["fine"], SUBJECT) == ["fine"]
    with pytest.raises(ContentRefused):
        await guardrail.check_input(["a bomb"], SUBJECT)


async def test_a_long_text_holds_nobody_else_up() -> None:
    guardrail = RegexGuardrail(r"\d{16}", "[card]", max_length=64)
    checking = asyncio.ensure_future(guardrail.check_input(["a 12 b " * 30_000 + "4" * 16], SUBJECT))
    turns = 0
    while not checking.done():  # how often others have their turn is what is measured
        await asyncio.sleep(0)
        turns += 1
    assert turns > 5
    assert (await checking)[0].endswith("b [card]")
