"""Every format of calls: what its models write is read as the calls that it stands for, wherever it is cut."""

import json
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.text.tool_calls import (
    MAX_DEPTH,
    TOOL_FORMATS,
    CallArguments,
    CallStarted,
    ToolCallParser,
)
from tests.adapters.text.cuts import all_cuts, cut_at
from tests.adapters.text.seen_calls import Seen, seen_by
from tests.adapters.text.written_calls import WRITERS, written_calls

TYPES = {"text": frozenset(("string",)), "maybe": frozenset(("string", "null")), "n": frozenset(("integer",))}
FORMS = sorted(TOOL_FORMATS)
PLAIN_VALUES = ("qwen3_coder", "seed_oss", "minimax_m2", "glm")
"""Formats whose values are plain text, so that the schema's types decide what they are."""
CUTS = st.lists(st.integers(0, 200), max_size=12)


def parser(form: str, *, parallel: bool = True, must_call: bool = False) -> ToolCallParser:
    numbers = count()
    return ToolCallParser(
        TOOL_FORMATS[form],
        frozenset(("f", "g")),
        lambda: f"call_{next(numbers)}",
        types=lambda name: TYPES,
        parallel=parallel,
        must_call=must_call,
    )


def seen(form: str, pieces: list[str], *, parallel: bool = True, must_call: bool = False, is_cut: bool = False) -> Seen:
    return seen_by(parser(form, parallel=parallel, must_call=must_call), pieces, is_cut=is_cut)


def read(form: str, pieces: list[str]) -> list[str | tuple[str, object]]:
    """The same with arguments decoded."""
    return [found if isinstance(found, str) else (found[0], json.loads(found[1])) for found in seen(form, pieces)]


def test_every_format_has_a_writer() -> None:
    assert WRITERS.keys() == TOOL_FORMATS.keys()


ARGUMENTS: dict[str, Any] = {"text": 'a "b"\\ \n <b> 😊', "n": 7, "list": [1.5, "x", {"y": None}], "on": True}


@pytest.mark.parametrize("form", FORMS)
def test_a_written_turn_is_read_alike_wherever_it_is_cut(form: str) -> None:
    text = written_calls(form, ("f", ARGUMENTS), ("g", {}), ("f", {"text": "7", "maybe": "null"}))
    last = {"text": "7", "maybe": None if form in PLAIN_VALUES else "null"}
    expected = [("f", ARGUMENTS), ("g", {}), ("f", last)]
    for pieces in all_cuts(text):
        assert read(form, pieces) == expected, pieces


@given(
    text=st.text(),
    values=st.dictionaries(
        st.sampled_from(["a", "b_1", "list"]),
        st.recursive(
            st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text(),
            lambda inner: st.lists(inner, max_size=3),
        ),
        max_size=3,
    ),
    places=CUTS,
    form=st.sampled_from(FORMS),
)
def test_any_arguments_are_read_back_as_they_were(
    text: str, values: dict[str, Any], places: list[int], form: str
) -> None:
    if form in PLAIN_VALUES:  # without a type, what looks like JSON is JSON
        values = {key: value for key, value in values.items() if not isinstance(value, str)}
    arguments = {"text": text, **values}
    written = written_calls(form, ("f", arguments))
    assert read(form, cut_at(written, places)) == [("f", arguments)]


MARKS = [mark for form in TOOL_FORMATS.values() for mark in (form.start, form.end) if mark]
SNIPPETS = [
    *dict.fromkeys(MARKS),
    *(written_calls(form, ("f", {"text": "x"})) for form in FORMS),
    *(written_calls(form, ("f", ARGUMENTS))[:60] for form in FORMS),
    "<function=f>", "</function>", "<parameter=a>", "</parameter>", "<arg_key>a</arg_key>", "<arg_value>",
    "[ARGS]", "[CALL_ID]", "f", "g", "(", ")", "{", "}", "[", "]", ",", ":", "=", '"', "'", "\\", "\n", " ", "1", "```",
    "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<|tool_call_begin|>", "<|tool_call_argument_begin|>",
    '<|"|>', "<escape>", "call:", "</arg_value>", "😊",
]  # fmt: skip


@given(
    parts=st.lists(st.sampled_from(SNIPPETS) | st.text(max_size=3), max_size=10),
    places=CUTS,
    form=st.sampled_from(FORMS),
    parallel=st.booleans(),
)
def test_any_text_is_read_alike_wherever_it_is_cut(
    parts: list[str], places: list[int], form: str, parallel: bool
) -> None:
    text = "".join(parts)
    assert seen(form, cut_at(text, places), parallel=parallel) == seen(form, [text], parallel=parallel)


@given(parts=st.lists(st.sampled_from(SNIPPETS) | st.text(max_size=3), max_size=10), form=st.sampled_from(FORMS))
def test_what_is_no_call_is_never_lost(parts: list[str], form: str) -> None:
    """What is missing between texts holds a declared name, since it is a call; a text without one comes out whole."""
    text = "".join(parts)
    shown = [found for found in seen(form, [text]) if isinstance(found, str)]
    if not any(isinstance(found, tuple) for found in seen(form, [text])):
        assert shown == ([text] if text else [])
    at = 0
    for piece in shown:
        start = text.index(piece, at)
        assert start == at or any(name in text[at:start] for name in "fg")
        at = start + len(piece)
    assert at == len(text) or any(name in text[at:] for name in "fg")


SPELLED: list[tuple[str, str, Seen]] = [
    # How each format's models go astray, and how they do not.
    ("mistral_args", 'Hm.[TOOL_CALLS]f[ARGS]{"a": 1}', ["Hm.", ("f", '{"a": 1}')]),
    ("mistral_args", '[TOOL_CALLS]f[CALL_ID]abc[ARGS]{"a": 1}', [("f", '{"a": 1}')]),
    ("mistral_args", "[TOOL_CALLS]f[ARGS]", [("f", "{}")]),
    ("mistral_args", "[TOOL_CALLS]f[ARGS]a=1 b", [("f", "a=1 b")]),
    ("mistral_args", "[TOOL_CALLS]evil[ARGS]{}", ["[TOOL_CALLS]evil[ARGS]{}"]),
    ("mistral_args", "[TOOL_CALLS]f", ["[TOOL_CALLS]f"]),
    ("json", '{"name": "f", "arguments": {"a": 1}}', [("f", '{"a": 1}')]),
    ("json", '[{"name": "f"}, {"name": "g"}]', [("f", "{}"), ("g", "{}")]),
    ("json", '```json\n{"name": "f"}\n```\nSo.', [("f", "{}"), "So."]),
    ("json", '```\n{"name": "f"}\n``` So.', [("f", "{}"), " So."]),
    ("json", "```python\nx = 1\n```", ["```python\nx = 1\n```"]),
    ("json", "[1, 2]", ["[1, 2]"]),
    ("json", 'I say {"name": "f"}', ['I say {"name": "f"}']),
    ("pythonic", "<|python_start|>[f(a=1)]<|python_end|>", [("f", '{"a": 1}')]),
    ("pythonic", "[f(a=(1, [None]), b={'k': True,}, c='it\\'s \\x41')]", [
        ("f", '{"a": [1, [null]], "b": {"k": true}, "c": "it\'s A"}')]),
    ("pythonic", "[f(a=1), evil(b=2)]", [("f", '{"a": 1}'), ", evil(b=2)]"]),
    ("pythonic", "[f(1)]", [("f", "1)]")]),
    ("pythonic", "[f(a=1, b=print('x'))]", [("f", '{"a": 1, "b": print(\'x\'))]')]),
    ("pythonic", "[1, 2]", ["[1, 2]"]),
    ("pythonic", "[x for x in y]", ["[x for x in y]"]),
    ("lfm2", "<|tool_call_start|>[f(a='x]')]<|tool_call_end|>Done", [("f", '{"a": "x]"}'), "Done"]),
    ("lfm2", "<|tool_call_start|>[f(a='cut", [("f", '{"a": "cut')]),
    ("olmo3", "<function_calls>f(a=1)\ng()</function_calls>", [("f", '{"a": 1}'), ("g", "{}")]),
    ("gemma", '<|tool_call>call:f{a:{b:[<|"|>x,y<|"|>,null]},c:true}<tool_call|>', [
        ("f", '{"a": {"b": ["x,y", null]}, "c": true}')]),
    ("gemma", '<|tool_call>call:f{a:New York,"b":"x\\n"}<tool_call|>', [("f", '{"a": "New York", "b": "x\\n"}')]),
    ("gemma", "<|tool_call>call:f{a}<tool_call|>", [("f", "{a}")]),
    ("gemma", '<|tool_call>call:f{a:<|"|>cut', [("f", '{"a": "cut')]),
    ("gemma", "<|tool_call>call:evil{}<tool_call|>", ["<|tool_call>call:evil{}<tool_call|>"]),
    ("deepseek_v3", "<｜tool▁calls▁begin｜>x<｜tool▁calls▁end｜>", ["<｜tool▁calls▁begin｜>x<｜tool▁calls▁end｜>"]),
    ("deepseek_v31", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"a\": 1<｜tool▁call▁end｜>", [
        ("f", '{"a": 1')]),
    ("deepseek_v32", '<｜DSML｜function_calls><｜DSML｜invoke name="f"><｜DSML｜parameter name="a" string="true">7'
        '</｜DSML｜parameter></｜DSML｜invoke></｜DSML｜function_calls>', [("f", '{"a": "7"}')]),
    ("qwen3_coder", "<tool_call>\n<function=f>\n<parameter=text>\n\n a \n\n</parameter>\n</function>\n</tool_call>", [
        ("f", '{"text": "\\n a \\n"}')]),
    ("qwen3_coder", "<tool_call><function=f><parameter=n>True</parameter><parameter=n>x</parameter></function>", [
        ("f", '{"n": true, "n": "x"}')]),
    ("qwen3_coder", "<tool_call><function=f>{\"a\": 1}</function></tool_call>", [
        ("f", '{"a": 1}'), "</function></tool_call>"]),
    ("qwen3_coder", "<tool_call><function=f><parameter=text>cut </param", [("f", '{"text": "cut </param')]),
    ("qwen3_coder", "<tool_call><function=f><parameter=n>12", [("f", '{"n": 12')]),
    ("qwen3_coder", "<tool_call><function=evil></function></tool_call>", [
        "<tool_call><function=evil></function></tool_call>"]),
    ("glm", "<tool_call>f</tool_call>", [("f", "{}")]),
    ("glm", "<tool_call>evil\n</tool_call>", ["<tool_call>evil\n</tool_call>"]),
    ("glm", "<tool_call>f\n<arg_key>n</arg_key>x</tool_call>", [("f", "\n<arg_key>n</arg_key>x")]),
    ("kimi_k2", "<|tool_calls_section_begin|><|tool_call_begin|>f<|tool_call_argument_begin|>{}<|tool_call_end|>", [
        "<|tool_calls_section_begin|><|tool_call_begin|>f<|tool_call_argument_begin|>{}<|tool_call_end|>"]),
]  # fmt: skip


@pytest.mark.parametrize(("form", "text", "expected"), SPELLED)
def test_a_text_is_read_alike_wherever_it_is_cut(form: str, text: str, expected: Seen) -> None:
    for pieces in all_cuts(text):
        assert seen(form, pieces) == expected, pieces


def test_a_models_own_id_of_a_call_is_kept_once() -> None:
    text = written_calls("kimi_k2", ("f", {}))
    found = parser("kimi_k2").feed(text + text)
    assert [part.id for part in found if isinstance(part, CallStarted)] == ["functions.f:0", "call_0"]


@pytest.mark.parametrize(
    ("form", "head", "tail"),
    [
        ("qwen3_coder", "<tool_call>\n<function=f>\n<parameter=text>\n", "\n</parameter>"),
        ("gemma", '<|tool_call>call:f{text:<|"|>', '<|"|>'),
        ("lfm2", "<|tool_call_start|>[f(text='", "'"),
        ("mistral_args", '[TOOL_CALLS]f[ARGS]{"text": "', '"'),
    ],
)
def test_texts_go_out_while_they_arrive(form: str, head: str, tail: str) -> None:
    calls = parser(form)
    begun = calls.feed(head)
    assert begun[0] == CallStarted("call_0", "f")
    assert "".join(part.text for part in begun if isinstance(part, CallArguments)) == '{"text": "'
    assert calls.feed("abc") == [CallArguments("abc")]
    assert "".join(part.text for part in calls.feed("d" + tail) if isinstance(part, CallArguments)) == 'd"'


@pytest.mark.parametrize("form", ["pythonic", "gemma"])
def test_nesting_beyond_the_bound_is_given_as_it_stands(form: str) -> None:
    head, key = ("[f(", "a=") if form == "pythonic" else ("<|tool_call>call:f{", "a:")
    assert seen(form, [head + key + "[" * 5000]) == [("f", '{"a": ' + "[" * 5000)]
    assert MAX_DEPTH < 5000


@pytest.mark.parametrize("form", FORMS)
def test_of_calls_that_have_to_be_made_no_cut_leaves_a_piece_as_text(form: str) -> None:
    text = written_calls(form, ("f", {"n": 7}), ("g", {"text": "a"}))
    for end in range(len(text)):
        for pieces in ([text[:end]], list(text[:end])):
            found = seen(form, pieces, must_call=True, is_cut=True)
            assert [each[0] for each in found if isinstance(each, tuple)] == ["f", "g"][: len(found)], pieces


@pytest.mark.parametrize("form", [form for form in FORMS if TOOL_FORMATS[form].start])
def test_of_calls_that_a_mark_began_no_cut_leaves_a_piece_as_text(form: str) -> None:
    written = written_calls(form, ("f", {"n": 7}), ("g", {"text": "a"}))
    start = TOOL_FORMATS[form].start
    if not written.startswith(start):
        written = start + written
    half = {start[:size] for size in range(1, len(start))}  # of a second mark, which may as well be text
    for end in range(len(start), len(written)):
        texts = [each for each in seen(form, ["Look. ", written[:end]], is_cut=True) if isinstance(each, str)]
        assert [each for each in texts if each.strip("\n") not in half] == ["Look. "], end


@pytest.mark.parametrize("form", FORMS)
def test_what_looks_like_half_a_call_is_text_where_the_model_itself_ended(form: str) -> None:
    text = f"Look: {TOOL_FORMATS[form].start}"
    assert seen(form, [text], must_call=True) == [text]
