"""The input of a custom tool, read out of the JSON that a model writes, cut anywhere."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.text.custom_input import InputReader

TEXTS = ["", "x", "SELECT \"a\" FROM b\nWHERE c = '\\';", "\t\x01é東京😊", "{}", '{"input": "y"}', "\\u0041", "\\"]


def read(*pieces: str) -> str:
    reader = InputReader()
    return "".join([*map(reader.feed, pieces), reader.flush()])


def at_every_cut(raw: str) -> set[str]:
    found = {read(raw[:cut], raw[cut:]) for cut in range(len(raw) + 1)}
    return found | {read(*raw)}


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("ascii_only", [False, True])
@pytest.mark.parametrize(
    "form", ['{{"input": {}}}', ' {{ "input" :{} }} \n', '{{"input":{}', '{{"input":{},"more":[1]}}']
)
def test_the_text_comes_out_wherever_the_json_is_cut(text: str, ascii_only: bool, form: str) -> None:
    raw = form.format(json.dumps(text, ensure_ascii=ascii_only))
    assert at_every_cut(raw) == {text}


@pytest.mark.parametrize("raw", ["SELECT 1", '{"query": "x"}', '{"input": 3}', '["input"]', '{"inputs": "x"}', "{,"])
def test_what_is_no_such_object_is_given_as_it_stands(raw: str) -> None:
    assert at_every_cut(raw) == {raw}


@pytest.mark.parametrize("raw", ["", "{}", " { } "])
def test_a_call_without_arguments_has_no_input(raw: str) -> None:
    assert "".join(at_every_cut(raw)).strip() == ""


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (r'{"input": "a\ud83d\ude0ab', "a😊b"),
        (r'{"input": "a\ud83db"}', "a\ufffdb"),
        (r'{"input": "a\ude0ab"}', "a\ufffdb"),
        (r'{"input": "a\q"}', r"a\q"),
        ('{"input": "half \\', "half \\"),
        ('{"input": "half \\u00', "half \\u00"),
        ('{"input": "line\nbreak"}', "line\nbreak"),
    ],
)
def test_odd_escapes_lose_nothing(raw: str, text: str) -> None:
    assert at_every_cut(raw) == {text}


@given(st.text(), st.lists(st.integers(min_value=0, max_value=60), max_size=6))
def test_any_text_survives_any_cuts(text: str, cuts: list[int]) -> None:
    raw = json.dumps({"input": text})
    places = [0, *sorted(min(cut, len(raw)) for cut in cuts), len(raw)]
    assert read(*(raw[start:stop] for start, stop in pairwise(places))) == text


@given(st.text(alphabet='{}"\\ :inputu01a,', max_size=30))
def test_nothing_makes_it_fail_and_the_cuts_make_no_difference(raw: str) -> None:
    assert len(at_every_cut(raw)) == 1
