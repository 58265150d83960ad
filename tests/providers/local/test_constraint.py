"""An answer has the form that was asked for, behind the model's reasoning and beside the calls that it may make."""

import json
from typing import Any

import pytest

from adapters.canonical.errors import InvalidRequest, UnsupportedParameter
from adapters.canonical.messages import USER, Message, Text
from adapters.canonical.request import OutputFormat, Request, Tool, ToolChoice
from adapters.text.reasoning import REASONING_FORMATS
from adapters.text.tool_calls import TOOL_FORMATS
from providers.local.constraint import FORMAT_KINDS, constraint
from providers.local.text_formats import TextFormats
from tests.providers.local.grammars import Marking, follows, refusal

PLAIN = TextFormats()
MESSAGES = (Message(role=USER, parts=(Text(text="hi"),)),)
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
TOOLS = (Tool(kind="function", name="f", parameters=b'{"type":"object"}'),)
CALL = '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'
LARK = "start: NUMBER /[+*]/ NUMBER\nNUMBER: /[0-9]+/"
GBNF = 'root ::= num ("," num)*\nnum ::= [0-9]+'


def asked(**fields: Any) -> Request:
    return Request(model="m", dialect="openai.chat", **{"messages": MESSAGES, **fields})


def wanted(kind: str, **fields: Any) -> Request:
    return asked(output_format=OutputFormat(kind=kind, **fields))


def schema(schema: Any, **fields: Any) -> Request:
    return wanted("json_schema", schema=json.dumps(schema).encode(), **fields)


@pytest.mark.parametrize(
    ("request_", "good", "bad"),
    [
        (wanted("json_object"), ['{"a": [1, null]}', "{}"], ["[1]", '{"a": }', "text", ""]),
        (schema(SCHEMA), ['{"a": 1}', '{"a":1}', '{\n  "a": 1\n}'], ['{"b": 1}', "{}", '{"a":     1}', ' {"a": 1}']),
        (wanted("json_schema"), ['{"a": 1}'], ["1"]),
        (schema({"type": "array", "items": {"type": "boolean"}}), ["[true, false]", "[]"], ["[1]"]),
        (schema(True), ["1", '"a"', "{}"], ["a"]),
        (wanted("regex", text=r"\d{2}/[a-z]+"), ["12/ab"], ["1/ab", "12/", "x12/ab"]),
        (wanted("regex", text="^a$"), ["a"], ["aa", "^a$"]),
        (wanted("choice", choices=("yes", "no", "né 😀")), ["yes", "no", "né 😀"], ["yesno", "y", ""]),
        (wanted("grammar", text=LARK), ["1+2", "12*3"], ["1-2", "1+"]),
        (wanted("grammar", text=GBNF), ["1", "1,22"], ["1,", "a"]),
        (wanted("grammar", text=r'root ::= "\u00e9\x41\u0022\\u0041" [\U0001F600-\U0001F602]'),
         ['éA"\\u0041😀', 'éA"\\u0041😂'], ["é", 'éA"A😀', 'éA"\\u0041😃']),
        (wanted("grammar", text=r'root ::= [^\u0041-\u005D\x20]+ "\n"'), ["ab\n"], ["aB\n", "a]\n", "a b\n"]),
    ],
)  # fmt: skip
async def test_every_kind_of_format_is_enforced(request_: Request, good: list[str], bad: list[str]) -> None:
    grammar = constraint(PLAIN, request_)
    assert await follows(grammar, *good, *bad) == [True] * len(good) + [False] * len(bad)


async def test_prompts_without_roles_are_held_to_a_format_too() -> None:
    prompts = Request(
        model="m", dialect="openai.completions", prompts=("x",), output_format=OutputFormat(kind="regex", text="a+")
    )
    thinks = TextFormats(reasoning=REASONING_FORMATS["think"])
    assert await follows(constraint(thinks, prompts), "aa", "<think>x</think>aa") == [True, False]


async def test_blanks_between_the_tokens_of_json_are_those_that_were_asked_for() -> None:
    texts = ['{"a":1}', '{"a": 1}', '{"a":   1}']
    assert await follows(constraint(PLAIN, schema(SCHEMA, whitespace="")), *texts) == [True, False, False]
    assert await follows(constraint(PLAIN, schema(SCHEMA, whitespace=" {3}")), *texts[1:]) == [False, True]
    assert await follows(constraint(PLAIN, schema(SCHEMA, whitespace=" *")), *texts) == [True, True, True]


async def test_a_model_never_goes_on_with_blanks_for_ever() -> None:
    assert await follows(constraint(PLAIN, schema(SCHEMA)), '{"a": 1' + "\n" * 2 + "}", '{"a": 1' + " " * 50 + "}") == [
        False,
        False,
    ]


@pytest.mark.parametrize("name", ["think", "mistral", "seed_oss"])
async def test_the_constraint_begins_behind_the_reasoning(name: str) -> None:
    form = REASONING_FORMATS[name]
    formats = TextFormats(reasoning=form)
    thought = f"{form.start}\nIs it {{1}} or <b>?\n{form.end}\n\n"
    texts = [f'{thought}{{"a": 1}}', '{"a": 1}', f"{thought}no", thought, f'{{"a": 1}}{thought}']
    assert await follows(constraint(formats, schema(SCHEMA)), *texts) == [True, True, False, False, False]
    opened = constraint(formats, schema(SCHEMA), opens_reasoning=True)
    rest = thought.removeprefix(form.start)
    assert await follows(opened, f'{rest}{{"a": 1}}', '{"a": 1}') == [True, False]


async def test_marks_of_reasoning_that_are_special_tokens_are_known_as_such() -> None:
    vocabulary = Marking(("<think>", "</think>"))
    formats = TextFormats(reasoning=REASONING_FORMATS["think"], special_marks=vocabulary.marks)
    texts = ['<think>a</think>\n{"a": 1}', '{"a": 1}', "<think>a</think>x", '<think>{"a": 1}']
    assert await follows(constraint(formats, schema(SCHEMA)), *texts, vocabulary=vocabulary) == [
        True,
        True,
        False,
        False,
    ]


async def test_beside_a_format_a_model_may_still_call_its_tools() -> None:
    formats = TextFormats(tools=TOOL_FORMATS["hermes"])
    texts = ['{"a": 1}', CALL, "text", f'{CALL}{{"a": 1}}', CALL.replace('"f"', '"g"')]
    free = asked(tools=TOOLS, output_format=schema(SCHEMA).output_format)
    assert await follows(constraint(formats, free), *texts) == [True, True, False, False, False]
    none = asked(tools=TOOLS, tool_choice=ToolChoice(mode="none"), output_format=free.output_format)
    assert await follows(constraint(formats, none), *texts) == [True, False, False, False, False]
    forced = asked(tools=TOOLS, tool_choice=ToolChoice(mode="required"), output_format=free.output_format)
    assert await follows(constraint(formats, forced), *texts) == [False, True, False, False, False]


async def test_a_form_whose_calls_look_like_json_needs_its_mark_beside_a_format() -> None:
    formats = TextFormats(tools=TOOL_FORMATS["llama3_json"])
    call = '{"name": "f", "parameters": {}}'
    texts = ['{"a": 1}', f"<|python_tag|>{call}", call]
    request = asked(tools=TOOLS, output_format=schema(SCHEMA).output_format)
    assert await follows(constraint(formats, request), *texts) == [True, True, False]


def test_nothing_is_bound_where_nothing_was_asked_for() -> None:
    formats = TextFormats(reasoning=REASONING_FORMATS["think"], tools=TOOL_FORMATS["hermes"])
    assert constraint(formats, asked()) is None
    assert constraint(formats, asked(tools=TOOLS)) is None
    assert constraint(formats, wanted("text")) is None


@pytest.mark.parametrize("kind", sorted(FORMAT_KINDS - {"json_object", "json_schema"}))
def test_a_format_without_its_expression_is_refused(kind: str) -> None:
    with pytest.raises(InvalidRequest, match=kind):
        constraint(PLAIN, wanted(kind, path="response_format"))


def test_an_unknown_kind_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedParameter, match="brand_new"):
        constraint(PLAIN, wanted("brand_new", raw=b"{}"))


SHAPES: list[tuple[Any, str]] = [
    ({"properties": {"a": {"type": "string"}, "b": "oops"}}, ".properties.b"),
    ({"type": "strin"}, ""),
    ({"items": {"anyOf": [{"type": "string"}, {"type": "string", "minLength": -1}]}}, ".items.anyOf[1]"),
    ({"properties": {"a": {"items": {"pattern": "("}}}}, ".properties.a.items"),
    ({"$ref": "#/$defs/none"}, ""),
    ({"properties": {"x": {"$ref": "https://example.com/s"}}}, ".properties.x"),
    ({"$defs": {"d": {"required": "a"}}, "properties": {"x": {"$ref": "#/$defs/d"}}}, ".$defs.d"),
    ({"enum": []}, ""),
    ({"type": "object", "properties": {"n": False}, "required": ["n"]}, ""),
    ({"type": "array", "items": {"type": "integer", "minimum": 3, "maximum": 1}, "minItems": 1}, ""),
]


@pytest.mark.parametrize(("broken", "place"), SHAPES)
async def test_a_fault_in_a_schema_is_told_with_its_place(broken: Any, place: str) -> None:
    error = await refusal(constraint(PLAIN, schema(broken, path="guided_json")))
    assert error.status == 400
    assert error.param == f"guided_json{place}"
    assert str(error).startswith(f"guided_json{place}: ")


@pytest.mark.parametrize(
    ("request_", "param"),
    [
        (wanted("regex", text="(", path="guided_regex"), "guided_regex"),
        (wanted("regex", text="(?=a)b", path="guided_regex"), "guided_regex"),
        (wanted("grammar", text="start: missing", path="guided_grammar"), "guided_grammar"),
    ],
)
async def test_a_fault_in_an_expression_is_told_with_its_field(request_: Request, param: str) -> None:
    assert (await refusal(constraint(PLAIN, request_))).param == param


def test_text_that_is_no_grammar_is_refused_with_its_field() -> None:
    for text in ("root = x", "root ::= (", "root ::= missing", "(" * 5000):
        with pytest.raises(InvalidRequest) as caught:
            constraint(PLAIN, wanted("grammar", text=text, path="ebnf"))
        assert caught.value.param == "ebnf"


def test_a_schema_that_nests_too_deep_is_refused_before_anything_reads_it() -> None:
    deep = b'{"items":' * 120 + b"{}" + b"}" * 120
    with pytest.raises(InvalidRequest, match="nested too deep") as caught:
        constraint(PLAIN, wanted("json_schema", schema=deep, path="guided_json"))
    assert caught.value.param == "guided_json"


async def test_what_cannot_be_enforced_is_refused_unless_it_need_not_be() -> None:
    overlapping = {"oneOf": [{"type": "string", "minLength": 1}, {"type": "string", "maxLength": 9}]}
    error = await refusal(constraint(PLAIN, schema(overlapping, path="p")))
    assert isinstance(error, UnsupportedParameter)
    assert error.param == "p"
    assert await follows(constraint(PLAIN, schema(overlapping, strict=False)), '"abc"', "1") == [True, False]


async def test_options_that_a_client_hides_in_its_schema_do_not_count() -> None:
    sly = {**SCHEMA, "x-guidance": {"whitespace_pattern": " *", "lenient": True}}
    assert await follows(constraint(PLAIN, schema(sly)), '{"a":      1}', '{"a": 1}') == [False, True]
