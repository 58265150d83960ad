"""Calls are written as the models' own templates write them, with the arguments that the schemas allow."""

import json
from typing import Any

import pytest

from adapters.canonical.errors import InvalidRequest, UnsupportedParameter
from adapters.canonical.messages import USER, Message, Text
from adapters.canonical.request import Request, Tool, ToolChoice
from adapters.text.calls.book import CallArguments, CallStarted
from adapters.text.calls.parameter_types import parameter_types
from adapters.text.reasoning import REASONING_FORMATS
from adapters.text.tool_calls import TOOL_FORMATS, ToolCallParser
from providers.local.call_grammar import begun_call
from providers.local.constraint import constraint
from providers.local.text_formats import TextFormats
from tests.adapters.text.written_calls import WRITERS
from tests.providers.local.grammars import Marking, follows

WEATHER = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer"},
        "unit": {"enum": ["C", "F"]},
        "hours": {"type": "array", "items": {"type": "integer"}},
    },
    "required": ["city"],
    "additionalProperties": False,
}
NOTHING = {"type": "object", "properties": {}, "additionalProperties": False}
MESSAGES = (Message(role=USER, parts=(Text(text="hi"),)),)
FULL = {"city": "Oslo", "days": 3, "unit": "C", "hours": [1, 2]}
FORMS = sorted(TOOL_FORMATS)


def tool(name: str, schema: Any, *, strict: bool = True) -> Tool:
    return Tool(kind="function", name=name, parameters=json.dumps(schema).encode(), strict=strict)


def asked(mode: str = "required", *tools: Tool, **fields: Any) -> Request:
    choice = ToolChoice(mode=mode, name=fields.pop("name", None), allowed=fields.pop("allowed", None))
    tools = tools or (tool("weather", WEATHER), tool("now", NOTHING))
    return Request(model="m", dialect="openai.chat", messages=MESSAGES, tools=tools, tool_choice=choice, **fields)


def written(form: str, *calls: tuple[str, dict[str, Any]]) -> str:
    """As the templates write it; in forms of Python's literals with the quotes of JSON, which are its quotes too."""
    text = WRITERS[form](calls)
    if form in ("pythonic", "lfm2", "olmo3", "tool_code"):
        return text.replace("'", '"')
    return text.removeprefix("```json\n").removesuffix("\n```") if form == "json" else text


async def allows(form: str, request: Request, *texts: str) -> list[bool]:
    return await follows(constraint(TextFormats(tools=TOOL_FORMATS[form]), request), *texts)


@pytest.mark.parametrize("form", FORMS)
async def test_calls_of_every_form_follow_their_schemas(form: str) -> None:
    good: list[tuple[tuple[str, dict[str, Any]], ...]] = [
        (("weather", FULL),),
        (("weather", {"city": "Oslo"}),),
        (("weather", {"city": "a", "days": 2}), ("now", {})),
    ]
    bad: list[tuple[str, dict[str, Any]]] = [
        ("weather", {"city": "Oslo", "unit": "K"}),
        ("weather", {"city": "Oslo", "days": "many"}),
        ("weather", {"days": 3}),
        ("weather", {"city": "Oslo", "more": 1}),
        ("nope", {}),
    ]
    texts = [written(form, *calls) for calls in good] + [written(form, call) for call in bad]
    for mode in ("required", "auto"):
        assert await allows(form, asked(mode), *texts) == [True] * len(good) + [False] * len(bad), mode


@pytest.mark.parametrize("form", FORMS)
async def test_an_answer_without_a_call_is_text_unless_one_is_required(form: str) -> None:
    assert await allows(form, asked("auto"), "It is warm.", "") == [True, True]
    assert await allows(form, asked(), "It is warm.", "") == [False, False]


@pytest.mark.parametrize("form", FORMS)
async def test_one_call_is_all_where_calls_are_not_to_be_parallel(form: str) -> None:
    one, two = written(form, ("now", {})), written(form, ("now", {}), ("now", {}))
    assert await allows(form, asked(parallel_tool_calls=False), one, two) == [True, False]
    assert await allows(form, asked("auto", parallel_tool_calls=False), one, two) == [True, False]
    assert await allows(form, asked(), one, two) == [True, True]


@pytest.mark.parametrize("form", FORMS)
async def test_only_tools_that_the_choice_allows_can_be_called(form: str) -> None:
    allowed = (b'{"type":"function","function":{"name":"now"}}',)
    now, weather = written(form, ("now", {})), written(form, ("weather", {"city": "a"}))
    for request in (asked(allowed=allowed), asked("auto", allowed=allowed), asked(name="now")):
        assert await allows(form, request, now, weather) == [True, False]


@pytest.mark.parametrize("form", FORMS)
async def test_what_the_grammar_lets_through_is_read_back_as_the_same_arguments(form: str) -> None:
    text = written(form, ("weather", FULL))
    assert await allows(form, asked(), text) == [True]
    schemas = {name: json.dumps(schema).encode() for name, schema in (("weather", WEATHER), ("now", NOTHING))}
    parser = ToolCallParser(
        TOOL_FORMATS[form], schemas.keys(), lambda: "c", types=lambda name: parameter_types(schemas[name])
    )
    pieces = [*parser.feed(text), *parser.flush()]
    assert [piece.name for piece in pieces if isinstance(piece, CallStarted)] == ["weather"]
    assert json.loads("".join(piece.text for piece in pieces if isinstance(piece, CallArguments))) == FULL


@pytest.mark.parametrize("form", FORMS)
async def test_tools_that_are_not_strict_are_called_with_any_arguments_where_nothing_is_required(form: str) -> None:
    loose = asked("auto", tool("weather", WEATHER, strict=False), tool("now", NOTHING))
    assert await allows(form, loose, written(form, ("weather", {"other": "x"}))) == [True]
    assert await allows(form, loose, written(form, ("now", {"other": "x"}))) == [False]


@pytest.mark.parametrize("kind", [["object"], ["object", "null"]])
async def test_arguments_that_may_be_an_object_are_one(kind: list[str]) -> None:
    request = asked("required", tool("now", {**NOTHING, "type": kind}))
    assert await allows("hermes", request, written("hermes", ("now", {}))) == [True]
    with pytest.raises(InvalidRequest, match="are an object"):
        constraint(TextFormats(tools=TOOL_FORMATS["hermes"]), asked("required", tool("now", {"type": ["null"]})))


async def test_without_strict_tools_and_with_a_free_choice_nothing_is_bound() -> None:
    request = asked("auto", tool("weather", WEATHER, strict=False))
    assert constraint(TextFormats(tools=TOOL_FORMATS["hermes"]), request) is None
    assert constraint(TextFormats(tools=TOOL_FORMATS["hermes"]), asked("none")) is None


@pytest.mark.parametrize("form", FORMS)
def test_a_begun_call_is_the_beginning_of_one(form: str) -> None:
    begun = begun_call(TOOL_FORMATS[form], "weather", '"weather"')
    if begun is None:
        assert form in {
            "pythonic", "lfm2", "olmo3", "tool_code", "gemma", "function_gemma", "glm",
            "deepseek_v32", "qwen3_coder", "seed_oss", "minimax_m2",
        }  # fmt: skip
        return
    text = written(form, ("weather", FULL))
    assert text.startswith(begun)
    assert text[len(begun) :].lstrip().startswith('{"city"')


async def test_only_the_arguments_are_left_of_a_begun_call() -> None:
    grammar = constraint(TextFormats(tools=TOOL_FORMATS["hermes"]), asked(name="weather"), begins_call=True)
    assert await follows(grammar, ' {"city": "Oslo"}', '{"city":"Oslo"}', '{"days": 1}') == [True, True, False]


async def test_marks_that_are_special_tokens_are_written_as_such() -> None:
    vocabulary = Marking(("<tool_call>", "</tool_call>"))
    formats = TextFormats(tools=TOOL_FORMATS["hermes"], special_marks=vocabulary.marks)
    text = "Yes. " + written("hermes", ("now", {}))
    for mode, expected in (("auto", [True, False]), ("required", [False, False])):
        grammar = constraint(formats, asked(mode))
        assert await follows(grammar, text, text.replace("{}", "1"), vocabulary=vocabulary) == expected
    assert await follows(constraint(formats, asked()), written("hermes", ("now", {})), vocabulary=vocabulary) == [True]


async def test_reasoning_is_free_and_the_call_behind_it_is_not() -> None:
    formats = TextFormats(reasoning=REASONING_FORMATS["think"], tools=TOOL_FORMATS["hermes"])
    call, thought = written("hermes", ("now", {})), "<think>\nA <tool_call> or <b>?\n</think>\n\n"
    texts = [thought + call, call, thought + "No.", thought + call.replace("now", "nope"), "No."]
    assert await follows(constraint(formats, asked()), *texts) == [True, True, False, False, False]
    assert await follows(constraint(formats, asked("auto")), *texts) == [True, True, True, False, True]
    opened = constraint(formats, asked(), opens_reasoning=True)
    assert await follows(opened, thought.removeprefix("<think>\n") + call, call) == [True, False]


def test_a_schema_that_is_no_object_is_refused_with_its_place() -> None:
    with pytest.raises(InvalidRequest, match=r"tools\[0\]\.function\.parameters\.type") as caught:
        constraint(TextFormats(tools=TOOL_FORMATS["hermes"]), asked("required", tool("f", {"type": "string"})))
    assert caught.value.param == "tools[0].function.parameters.type"


def test_a_choice_of_a_tool_that_is_not_there_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="nope"):
        constraint(TextFormats(tools=TOOL_FORMATS["hermes"]), asked(allowed=(b'{"type":"function","name":"nope"}',)))


def test_a_call_that_is_required_and_not_allowed_is_refused() -> None:
    formats = TextFormats(tools=TOOL_FORMATS["hermes"])
    with pytest.raises(InvalidRequest, match="no tool is allowed"):
        constraint(formats, asked(allowed=()))
    assert constraint(formats, asked("auto", allowed=())) is None


async def test_texts_without_quotes_are_held_to_their_lengths_and_choices() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string", "minLength": 2, "maxLength": 3}, "b": {"const": "x y"}},
        "required": ["a", "b"],
    }
    request = asked("required", tool("f", schema))
    texts = [written("qwen3_coder", ("f", {"a": a, "b": b})) for a, b in (("ab", "x y"), ("a", "x y"), ("ab", "x"))]
    assert await allows("qwen3_coder", request, *texts) == [True, False, False]


def test_what_a_text_without_quotes_cannot_be_held_to_is_refused_for_strict_tools() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^a"}}}
    formats = TextFormats(tools=TOOL_FORMATS["glm"])
    with pytest.raises(UnsupportedParameter) as caught:
        constraint(formats, asked("required", tool("f", schema)))
    assert caught.value.param == "tools[0].function.parameters.properties.a.pattern"
    assert constraint(formats, asked("required", tool("f", schema, strict=False))) is not None
