"""Patterns of a schema mean what they mean in JavaScript, and no text gets past one by being escaped in JSON."""

import json

import pytest

from adapters.canonical.errors import InvalidRequest, UnsupportedParameter
from providers.local.grammar_text import Grammar, GrammarWriter
from providers.local.schema_patterns import as_rust, looks_around
from tests.providers.local.grammars import follows, refusal

CHARACTERS = ('"', "\\", "\n", "\t", "a", "[", "]", "&", "-", "~", "é", "\x01")


def of_pattern(pattern: str) -> Grammar:
    writer = GrammarWriter()
    return writer.finish(writer.schema({"type": "string", "pattern": pattern}, "guided_json"))


@pytest.mark.parametrize(
    ("pattern", "matched"),
    [
        (r'^[^"]$', "\\\n\ta[]&-~é\x01"),
        (r"^[^\\]$", '"\n\ta[]&-~é\x01'),
        (r'^[^"\\]$', "\n\ta[]&-~é\x01"),
        (r'^[^\w"]$', "\\\n\t[]&-~é\x01"),
        (r'^[^\x00-\x1f"]$', "\\a[]&-~é"),
        (r"^[\x00-\x1f]$", "\n\t\x01"),
        (r"^[^[\]]$", '"\\\n\ta&-~é\x01'),
        (r"^[[a]$", "[a"),
        (r"^[a&&&]$", "a&"),
        (r"^[&--]$", "&-"),
        (r"^[~~a]$", "~a"),
        (r"^\[$", "["),
        (r"^[\[]$", "["),
        (r"^[\s\S]$", "".join(CHARACTERS)),
        (r"^\S$", '"\\a[]&-~é\x01'),
    ],
)
async def test_a_class_holds_its_characters_and_no_others(pattern: str, matched: str) -> None:
    found = await follows(of_pattern(pattern), *[json.dumps(one, ensure_ascii=False) for one in CHARACTERS])
    assert {one for one, fits in zip(CHARACTERS, found, strict=True) if fits} == set(matched)


async def test_names_of_properties_are_held_to_their_patterns_too() -> None:
    writer = GrammarWriter()
    schema = {"type": "object", "patternProperties": {'^[^"]+$': {"type": "integer"}}, "additionalProperties": False}
    grammar = writer.finish(writer.schema(schema, "guided_json"))
    assert await follows(grammar, '{"ab": 1}', '{"a\\"b": 1}') == [True, False]


@pytest.mark.parametrize("pattern", ["[a", "[^", "a]", "(", r"\[a-z]{2}", "^abc$", r"\d+(?:\.\d{1,2})?"])
def test_what_has_no_whole_class_stays_as_it_is(pattern: str) -> None:
    assert as_rust(pattern) == pattern


@pytest.mark.parametrize(
    ("pattern", "looks"),
    [
        (r"^(?!\.)(?!.*\.\.)([a-z.]+)@[a-z]+$", True),
        (r"^(?=a)", True),
        (r"(?<=a)b", True),
        (r"\bfoo\b", True),
        (r"(a)\1", True),
        (r"^\(?=a$", False),
        (r"\\b", False),
        (r"^(?:a|b)(?<name>c)$", False),
        (r"^\d{3}-\w+$", False),
    ],
)
async def test_a_pattern_that_looks_around_is_left_out_where_that_is_allowed(pattern: str, looks: bool) -> None:
    assert looks_around(pattern) == looks
    if looks:
        writer = GrammarWriter()
        free = writer.finish(writer.schema({"type": "string", "pattern": pattern, "maxLength": 3}, "x", lenient=True))
        assert await follows(free, '"zz"', '"zzzz"') == [True, False]
        assert isinstance(await refusal(of_pattern(pattern)), UnsupportedParameter)


async def test_a_refusal_shows_a_pattern_as_its_client_wrote_it() -> None:
    error = await refusal(of_pattern(r"^(?!^[-+.]*$)[^\]a-z]+$"))
    assert r"^(?!^[-+.]*$)[^\]a-z]+$" in str(error)


async def test_a_pattern_that_is_none_is_still_refused() -> None:
    error = await refusal(of_pattern("^[a"))
    assert isinstance(error, InvalidRequest)
    assert "unclosed character class" in str(error)
