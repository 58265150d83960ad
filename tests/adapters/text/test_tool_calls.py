"""Calls are found the same way however the text is cut; what is no call stays text, and no character is lost."""

import json
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.text.tool_calls import (
    MAX_DEPTH,
    TOOL_FORMATS,
    CallArguments,
    CallFinished,
    CallStarted,
    TextPiece,
    ToolCallParser,
)
from tests.adapters.text.cuts import all_cuts, cut_at
from tests.adapters.text.seen_calls import Seen, seen_by

NAMES = frozenset(("f", "g"))
SNIPPETS = [
    "<tool_call>", "</tool_call>", "[TOOL_CALLS]", "<|python_tag|>", "\n", " ", ";", ",", "[", "]", "{", "}", ":", '"',
    "\\", '"name"', '"f"', '"evil"', '"arguments"', '{"a": 1}', '{"name": "f", "arguments": {"a": "b"}}', "x", "</",
]  # fmt: skip
CUTS = st.lists(st.integers(0, 120), max_size=12)
JSON_FORMS = st.sampled_from(["hermes", "llama3_json", "mistral"])
"""Those whose text is shown here; the others are in test_tool_formats."""
FORMS = st.sampled_from(sorted(TOOL_FORMATS))


def parser(form: str, *, parallel: bool = True, must_call: bool = False) -> ToolCallParser:
    numbers = count()
    return ToolCallParser(
        TOOL_FORMATS[form], NAMES, lambda: f"call_{next(numbers)}", parallel=parallel, must_call=must_call
    )


def seen(form: str, pieces: list[str], *, parallel: bool = True, must_call: bool = False, is_cut: bool = False) -> Seen:
    found = seen_by(parser(form, parallel=parallel, must_call=must_call), pieces, is_cut=is_cut)
    assert all(isinstance(one, str) or one[0] in NAMES for one in found)
    return found


HARD = '{"a": "}{</tool_call", "b": [1, {"c": "\\"}]\\\\"}], "d": "😊\\ud83d\\ude0a\\n"}'
CALL = '{"name": "f", "arguments": {"a": 1}}'
GOLDEN: list[tuple[str, str, Seen]] = [
    ("hermes", f"<tool_call>\n{CALL}\n</tool_call>", [("f", '{"a": 1}')]),
    ("hermes", f"<tool_call>{CALL}</tool_call>", [("f", '{"a": 1}')]),
    (
        "hermes",
        f"Look.\n\n<tool_call>\n{CALL}\n</tool_call>\n<tool_call>\n" + '{"name":"g"}\n</tool_call>\nDone.\n',
        ["Look.", ("f", '{"a": 1}'), ("g", "{}"), "Done.\n"],
    ),
    ("hermes", '<tool_call>\n{ "name" : "f" ,\r\n\t"arguments" :' + HARD + " }\n</tool_call>", [("f", HARD)]),
    ("hermes", '<tool_call>{"arguments": {"a": [1]}, "name": "f"}</tool_call>', [("f", '{"a": [1]}')]),
    ("hermes", '<tool_call>{"id": [{"x": "]"}, 1.5e3, null], "name": "f"}</tool_call>', [("f", "{}")]),
    ("hermes", '<tool_call>{"name": "f", "arguments": {"a": 1}, "id": "x}"}</tool_call>', [("f", '{"a": 1}')]),
    ("hermes", '<tool_call>{"name": "f", "arguments": "{\\"a\\": 1}"}</tool_call>', [("f", '{"a": 1}')]),
    ("hermes", '<tool_call>{"name": "f", "arguments": ""}</tool_call>', [("f", "{}")]),
    ("hermes", '<tool_call>{"name": "f", "arguments": null}</tool_call>', [("f", "{}")]),
    ("hermes", '<tool_call>{"\\u006eame": "\\u0066", "parameters": {}}</tool_call>', [("f", "{}")]),
    ("hermes", f"<tool_call>{CALL}\n{CALL}</tool_call>", [("f", '{"a": 1}')] * 2),
    # The model's own faults.
    ("hermes", f"<tool_call>{CALL}", [("f", '{"a": 1}')]),
    ("hermes", f"<tool_call>{CALL}\n<tool_call>{CALL}</tool_call>", [("f", '{"a": 1}')] * 2),
    ("hermes", '<tool_call>{"name": "f", "arguments": {"a": 1}\n</tool_call>x', [("f", '{"a": 1}'), "x"]),
    ("hermes", '<tool_call>{"name": "f", "arguments": {"a": {"b": 1}</tool_call>x', [("f", '{"a": {"b": 1}'), "x"]),
    ("hermes", '<tool_call>{"name": "f", "arguments": {"a": "cut', [("f", '{"a": "cut')]),
    ("hermes", '<tool_call>{"name": "f", "arguments": {"a": "cut\\', [("f", '{"a": "cut\\')]),
    ("hermes", '<tool_call>{"name": "f", "arguments": {}, junk}', [("f", "{}"), ", junk}"]),
    ("hermes", f"<tool_call>{CALL}}}\n</tool_call>x", [("f", '{"a": 1}'), "x"]),
    ("hermes", f"<tool_call>{CALL}}} and", [("f", '{"a": 1}'), "} and"]),
    ("hermes", f"<tool_call>{CALL}\n ", [("f", '{"a": 1}')]),
    ("hermes", '<tool_call>{"name": "f", "arguments": {"a":\n"x\ny\tz", "b": "\\n"}}</tool_call>',
     [("f", '{"a":\n"x\\ny\\tz", "b": "\\n"}')]),
    ("hermes", '<tool_call>{"name": "f", "arguments": {"a": "x\n\r', [("f", '{"a": "x\\n\\r')]),
    ("hermes", f"<tool_call>{CALL} and more", [("f", '{"a": 1}'), " and more"]),
    # What is no call.
    ("hermes", '<tool_call>\n{"name": "evil", "arguments": {}}\n</tool_call>', []),
    ("hermes", '<tool_call>{"name": "", "arguments": {}}</tool_call>', []),
    ("hermes", '<tool_call>{"name": 1}</tool_call>', []),
    ("hermes", '<tool_call>{"name": "\\ud800"}</tool_call>', []),
    ("hermes", '<tool_call>{"name": "f", "arguments": [1]}</tool_call>', []),
    ("hermes", '<tool_call>{"name": "f", "arguments": 7}</tool_call>', []),
    ("hermes", '<tool_call>{"name": "f", "arguments": "Oslo"}</tool_call>', []),
    ("hermes", '<tool_call>{"name": "f", "arguments": "{\\ud800"}</tool_call>', []),
    ("hermes", '<tool_call>{"name": "f", "argum', []),
    ("hermes", '<tool_call>{"arguments": {"a": 1}}</tool_call>', []),
    ("hermes", "<tool_call>{}</tool_call>", []),
    ("hermes", "<tool_call>get_weather</tool_call>", []),
    ("hermes", "a < b\n\n<tool", []),
    ("hermes", CALL, []),
    ("hermes", "", []),
    ("hermes", f"<tool_call><tool_call>{CALL}</tool_call>", ["<tool_call>", ("f", '{"a": 1}')]),
    # The other forms.
    ("qwen3_coder", "Hm.\n\n<function=f>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>\nx",
     ["Hm.", ("f", '{"a": 1}'), "x"]),
    ("qwen3_coder", "<function=f>\n</function>\n<function=g>\n</function>", [("f", "{}"), ("g", "{}")]),
    ("qwen3_coder", "<tool_call>\n<function=f>\n</function>\n</tool_call>\n<function=g>\n</function>",
     [("f", "{}"), ("g", "{}")]),
    ("qwen3_coder", "a <function=evil>\n</function> b", []),
    ("qwen3_coder", "a <function", []),
    ("llama3_json", '{"name": "f", "parameters": {"a": 1}}', [("f", '{"a": 1}')]),
    ("llama3_json", '\n<|python_tag|>{"type": "function", "name": "f", "parameters": {}}\n', [("f", "{}")]),
    ("llama3_json", f"{CALL}; {CALL}\n{CALL}", [("f", '{"a": 1}')] * 3),
    ("llama3_json", f"{CALL}; more", [("f", '{"a": 1}'), "; more"]),
    ("llama3_json", '{"city": "Oslo"}', []),
    ("llama3_json", f"I call {CALL}", []),
    ("llama3_json", "<|python_tag|>import os", []),
    ("llama3_json", '<|python_tag|>f.call(query="a, \\"b\\"", n=2)', [("f", '{"query": "a, \\"b\\"", "n": 2}')]),
    ("llama3_json", "<|python_tag|> g.call()\n", [("g", "{}")]),
    ("llama3_json", '<|python_tag|>evil.call(query="x")', []),
    ("llama3_json", '<|python_tag|>f.call(query="x', [("f", '{"query": "x')]),
    ("llama3_json", "<|python_tag|>", []),
    ("tool_code", "Sure.\n```tool_code\nf(a=1)\n```\nDone", ["Sure.", ("f", '{"a": 1}'), "Done"]),
    ("tool_code", "```tool_code\nf(a=1)\ng()\n```", [("f", '{"a": 1}'), ("g", "{}")]),
    ("tool_code", "```tool_code\nprint(1)\n```", []),
    ("tool_code", "```python\nf(a=1)\n```", []),
    ("mistral", f"[TOOL_CALLS][{CALL}]", [("f", '{"a": 1}')]),
    ("mistral", f'[TOOL_CALLS] [{CALL}, {{"name": "g", "id": "a"}}]\nx', [("f", '{"a": 1}'), ("g", "{}"), "x"]),
    ("mistral", f"[TOOL_CALLS][{CALL}", [("f", '{"a": 1}')]),
    ("mistral", f'[TOOL_CALLS][{CALL}, {{"name": "evil"}}]', [("f", '{"a": 1}'), ', {"name": "evil"}]']),
    ("mistral", "[TOOL_CALLS][]", []),
    ("granite", f"Well. <|tool_call|>[{CALL}, {CALL}]", ["Well. ", *[("f", '{"a": 1}')] * 2]),
    ("cohere", '<|START_ACTION|>[\n {"tool_call_id": "0", "tool_name": "f", "parameters": {"a": 1}}\n]<|END_ACTION|>x',
     [("f", '{"a": 1}'), "x"]),
    ("cohere", '<|START_ACTION|>[{"tool_name": "evil", "parameters": {}}]<|END_ACTION|>', []),
    ("mistral", f"[TOOL_CALLS]{CALL}", []),
]  # fmt: skip


@pytest.mark.parametrize(("form", "text", "expected"), GOLDEN)
def test_a_text_is_read_alike_wherever_it_is_cut(form: str, text: str, expected: Seen) -> None:
    if not expected:  # no call: the text as it came
        expected = [text] if text else []
    for pieces in all_cuts(text):
        assert seen(form, pieces) == expected, pieces


@given(parts=st.lists(st.sampled_from(SNIPPETS), max_size=14), places=CUTS, form=FORMS, parallel=st.booleans())
def test_any_text_is_read_alike_wherever_it_is_cut(
    parts: list[str], places: list[int], form: str, parallel: bool
) -> None:
    text = "".join(parts)
    assert seen(form, cut_at(text, places), parallel=parallel) == seen(form, [text], parallel=parallel)


@given(parts=st.lists(st.sampled_from(SNIPPETS) | st.text(max_size=3), max_size=14), form=JSON_FORMS)
def test_all_that_is_no_call_comes_out_in_its_order(parts: list[str], form: str) -> None:
    """What is missing between the pieces that came out begins with a mark or a call, or is what closes one."""
    text = "".join(parts)
    at = 0
    for found in seen(form, [text]):
        shown = found if isinstance(found, str) else found[1]
        if shown == "{}" and text.find(shown, at) < 0:
            continue
        start = text.index(shown, at)
        assert start == at or _is_form(text[at:start], form), (text, text[at:start])
        at = start + len(shown)
    assert at == len(text) or _is_form(text[at:], form), (text, text[at:])


def _is_form(gap: str, form: str) -> bool:
    marks = [mark for mark in TOOL_FORMATS[form][:2] if mark]
    return any(mark in gap for mark in marks) or not gap.strip(" \t\r\n{}[],;") or '"name"' in gap


@given(text=st.text(), places=CUTS, form=FORMS)
def test_text_without_marks_passes_whole(text: str, places: list[int], form: str) -> None:
    assert seen(form, cut_at(text, places)) == ([text] if text else [])


@given(
    arguments=st.dictionaries(
        st.text(max_size=5),
        st.recursive(st.none() | st.integers() | st.text(), lambda inner: st.lists(inner, max_size=3), max_leaves=5),
        max_size=4,
    ),
    places=CUTS,
    form=JSON_FORMS,
    compact=st.booleans(),
)
def test_arguments_are_the_models_own_to_the_character(
    arguments: dict[str, object], places: list[int], form: str, compact: bool
) -> None:
    written = json.dumps(arguments, ensure_ascii=compact, separators=(",", ":") if compact else None)
    call = f'{{"name": "f", "arguments": {written}}}'
    text = {"hermes": f"<tool_call>{call}</tool_call>", "mistral": f"[TOOL_CALLS][{call}]", "llama3_json": call}[form]
    assert seen(form, cut_at(text, places)) == [("f", written)]


def test_arguments_go_out_while_they_arrive() -> None:
    calls = parser("hermes")
    assert calls.feed('<tool_call>{"name": "f", "arguments": ') == []
    assert calls.feed('{"a') == [CallStarted("call_0", "f"), CallArguments('{"a')]
    assert calls.feed('": "x</tool') == [CallArguments('": "x</tool')]
    assert calls.feed('" </to') == [CallArguments('" ')]
    assert calls.feed("n}") == [CallArguments("</ton}"), CallFinished()]
    assert calls.feed("}</tool_call>") == calls.flush() == []


def test_nothing_is_held_back_but_what_could_become_a_mark() -> None:
    calls = parser("hermes")
    assert calls.feed("a < b\n") == [TextPiece("a < b", 0)]
    assert calls.feed("<tool_") == []
    assert calls.feed("x") == [TextPiece("\n<tool_x", 5)]


def test_without_parallel_calls_only_the_first_is_given_out() -> None:
    text = f"a<tool_call>{CALL}</tool_call>b<tool_call>{CALL}</tool_call>c"
    for pieces in all_cuts(text):
        assert seen("hermes", pieces, parallel=False) == ["a", ("f", '{"a": 1}'), "bc"]


def test_nesting_beyond_the_bound_is_no_call_and_costs_no_stack() -> None:
    deep = "[" * 100_000
    text = f'<tool_call>{{"arguments": {deep}'
    assert seen("hermes", [text]) == [text]
    nested = '{"a": ' + "[" * 2 * MAX_DEPTH + "]" * 2 * MAX_DEPTH + "}"
    assert seen("hermes", [f'<tool_call>{{"name": "f", "arguments": {nested}}}</tool_call>']) == [("f", nested)]


@pytest.mark.parametrize(
    ("declared", "types", "key"),
    [
        (("f", "code_interpreter"), {}, "code"),
        (("ipython",), {"code": frozenset(("string",)), "note": frozenset(("string",))}, "code"),
        (("python", "f"), {"source": frozenset(("string",)), "n": frozenset(("integer",))}, "source"),
    ],
)
def test_code_behind_llamas_python_tag_is_a_call_of_the_tool_that_runs_code(
    declared: tuple[str, ...], types: dict[str, frozenset[str]], key: str
) -> None:
    code = 'import os\nprint(f"{os.name}.call(x)")\n'
    text = f"<|python_tag|>{code}"
    for pieces in all_cuts(text):
        parser = ToolCallParser(TOOL_FORMATS["llama3_json"], declared, lambda: "c", types=lambda name: types)
        found = [*(piece for part in pieces for piece in parser.feed(part)), *parser.flush()]
        assert [type(piece).__name__ for piece in found if not isinstance(piece, CallArguments)] == [
            "CallStarted",
            "CallFinished",
        ]
        assert json.loads("".join(piece.text for piece in found if isinstance(piece, CallArguments))) == {key: code}
