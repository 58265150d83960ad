"""Structural tags, in both of their forms: free text goes on up to what ends it, and tags hold what they say."""

import json
from typing import Any

import pytest

from adapters.canonical.errors import InvalidRequest, UnsupportedParameter
from providers.local.grammar_text import Grammar, GrammarWriter
from providers.local.structural_tags import structural_tag
from tests.providers.local.grammars import follows

NUMBER = {"type": "json_schema", "json_schema": {"type": "integer"}}
TEXT = {"type": "any_text"}


def const(value: str) -> dict[str, Any]:
    return {"type": "const_string", "value": value}


def tag(begin: str, content: Any, end: Any) -> dict[str, Any]:
    return {"type": "tag", "begin": begin, "content": content, "end": end}


def grammar(found: Any) -> Grammar:
    writer = GrammarWriter()
    return writer.finish(structural_tag(writer, json.dumps(found).encode(), "t"))


def tree(found: Any) -> Grammar:
    return grammar({"type": "structural_tag", "format": found})


CALLS = [tag("<f=a>", NUMBER, "</f>"), tag("<f=b>", TEXT, "</f>")]
TRIGGERED = {"type": "triggered_tags", "triggers": ["<f="], "tags": CALLS}
SEPARATED = {"type": "tags_with_separator", "separator": ",", "tags": CALLS}
FORMATS: list[tuple[Any, list[str], list[str]]] = [
    # A format, texts that follow it, and texts that don't.
    (const("ab"), ["ab"], ["a", "abc"]),
    (NUMBER, ["12"], ["a"]),
    ({"type": "regex", "pattern": "a+"}, ["aa"], ["b"]),
    ({"type": "grammar", "grammar": 'root ::= "x"'}, ["x"], ["y"]),
    (TEXT, ["", "any <thing>\n"], []),
    ({**TEXT, "excludes": ["<f"]}, ["a < b", ""], ["a <f b"]),
    ({"type": "sequence", "elements": [const("a"), NUMBER, TEXT]}, ["a1 b", "a1"], ["a", "1"]),
    ({"type": "or", "elements": [const("a"), NUMBER]}, ["a", "1"], ["b", "a1"]),
    ({"type": "optional", "content": const("a")}, ["a", ""], ["aa"]),
    ({"type": "star", "content": const("a")}, ["", "aaa"], ["b"]),
    ({"type": "plus", "content": const("a")}, ["a", "aa"], [""]),
    ({"type": "repeat", "min": 1, "max": 2, "content": const("a")}, ["a", "aa"], ["", "aaa"]),
    ({"type": "repeat", "min": 2, "max": -1, "content": const("a")}, ["aa", "aaaa"], ["a"]),
    (tag("<x>", NUMBER, "</x>"), ["<x>1</x>"], ["<x>a</x>", "<x>1", "1"]),
    (tag("<x>", TEXT, ["</x>", "</y>"]), ["<x>a </z></x>", "<x></y>"], ["<x>a", "<x></x></x>"]),
    (
        tag("<x>", {"type": "sequence", "elements": [const("a"), TEXT]}, "</x>"),
        ["<x>a b</x>", "<x>a</x>"],
        ["<x>b</x>"],
    ),
    (tag("<x>", {"type": "or", "elements": [NUMBER, TEXT]}, "</x>"), ["<x>1</x>", "<x>b</x>"], ["<x>b"]),
    (tag("<x>", {"type": "optional", "content": NUMBER}, "</x>"), ["<x>1</x>", "<x></x>"], ["<x>a</x>"]),
    (
        TRIGGERED,
        ["", "hi", "hi <f=a>1</f> and <f=b>x</f>", "<f=a>1</f>"],
        ["hi <f=c>", "<f=a>x</f>", "hi <f=a>1"],
    ),
    ({**TRIGGERED, "at_least_one": True}, ["<f=a>1</f>", "<f=a>1</f> and <f=b>x</f>"], ["", "hi <f=a>1</f>"]),
    ({**TRIGGERED, "stop_after_first": True}, ["hi", "hi <f=a>1</f>"], ["<f=a>1</f> more"]),
    (
        {**TRIGGERED, "stop_after_first": True, "at_least_one": True},
        ["<f=a>1</f>"],
        ["hi", "hi <f=a>1</f>", "<f=a>1</f>x"],
    ),
    (tag("<o>", TRIGGERED, "</o>"), ["<o>hi <f=a>1</f> x</o>", "<o></o>"], ["<o>hi <f=a>x</f></o>", "<o>hi"]),
    (
        SEPARATED,
        ["", "<f=a>1</f>", "<f=a>1</f>,<f=b></f>"],
        ["<f=a>1</f>,", "x"],
    ),
    (
        {**SEPARATED, "at_least_one": True, "stop_after_first": True},
        ["<f=a>1</f>"],
        ["", "<f=a>1</f>,<f=b></f>"],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("found", "good", "bad"), FORMATS)
async def test_every_format_is_enforced(found: Any, good: list[str], bad: list[str]) -> None:
    assert await follows(tree(found), *good, *bad) == [True] * len(good) + [False] * len(bad)


async def test_the_older_form_is_text_with_tags_of_json() -> None:
    older = {
        "type": "structural_tag",
        "structures": [{"begin": "<f=a>", "schema": {"type": "integer"}, "end": "</f>"}],
        "triggers": ["<f="],
    }
    texts = ["", "hi <f=a>1</f> bye", "hi <f=a>x</f>", "hi <f=b>"]
    assert await follows(grammar(older), *texts) == [True, True, False, False]


BROKEN: list[tuple[Any, str]] = [
    ({"type": "const_string"}, "t.format.value"),
    ({"type": "sequence", "elements": []}, "t.format.elements"),
    ({"type": "sequence", "elements": [const("a"), "b"]}, "t.format.elements[1]"),
    ({"type": "or", "elements": [const("a"), {"type": "regex"}]}, "t.format.elements[1].pattern"),
    ({"type": "repeat", "min": 3, "max": 1, "content": TEXT}, "t.format"),
    ({"type": "repeat", "min": 0, "max": 10**6, "content": TEXT}, "t.format"),
    (tag("<x>", None, "</x>"), "t.format.content"),
    ({**TRIGGERED, "triggers": ["<g="]}, "t.format.triggers"),
    ({**TRIGGERED, "triggers": []}, "t.format.triggers"),
    ({**TRIGGERED, "tags": []}, "t.format.tags"),
    ({**TRIGGERED, "tags": ["x"]}, "t.format.tags[0]"),
    ("x", "t.format"),
    ({"type": "json_schema", "json_schema": 5}, "t.format.json_schema"),
]
UNSUPPORTED: list[tuple[Any, str]] = [
    ({"type": "token", "token": 5}, "t.format.type"),
    ({**NUMBER, "style": "qwen_xml"}, "t.format.style"),
    ({**NUMBER, "any_order": True}, "t.format.any_order"),
    ({**TEXT, "max_tokens": 5}, "t.format.max_tokens"),
    (tag("<x>", {**TEXT, "excludes": ["a"]}, "</x>"), "t.format.content.excludes"),
    ({**TRIGGERED, "excludes": ["a"]}, "t.format.excludes"),
    ({**tag("<x>", TEXT, ""), "begin": {"type": "token", "token": 5}}, "t.format.begin"),
]


@pytest.mark.parametrize(("found", "path"), BROKEN)
def test_what_is_no_format_is_refused_with_its_place(found: Any, path: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        tree(found)
    assert caught.value.param == path


@pytest.mark.parametrize(("found", "path"), UNSUPPORTED)
def test_what_has_no_expression_is_refused_by_name(found: Any, path: str) -> None:
    with pytest.raises(UnsupportedParameter) as caught:
        tree(found)
    assert caught.value.param == path


def test_a_tag_that_is_no_object_is_refused() -> None:
    tags: list[Any] = [[], {"type": "structural_tag"}, {"structures": [5], "triggers": ["a"]}]
    for found in tags:
        with pytest.raises(InvalidRequest):
            grammar(found)
