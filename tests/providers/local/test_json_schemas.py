"""Schemas as other programs write them bind an answer as their words mean it, whatever the compiler makes of them."""

import json
from typing import Any

import pytest

from providers.local.grammar_text import Grammar, GrammarWriter
from providers.local.json_schemas import for_compiler
from tests.providers.local.grammars import follows, refusal

INT64 = 2**63
SAFE = 2**53 - 1


def of_schema(schema: Any) -> Grammar:
    writer = GrammarWriter()
    return writer.finish(writer.schema(schema, "guided_json"))


@pytest.mark.parametrize(
    ("schema", "right", "wrong"),
    [
        ({"type": "integer", "minimum": -INT64, "maximum": INT64 - 1}, ["0", "-7", str(INT64 - 1)], ["1.5", '"a"']),
        ({"type": "integer", "minimum": -INT64}, ["0", "-7", "12"], ["1.5"]),
        ({"type": "integer", "minimum": 0, "maximum": 2 * INT64 - 1}, ["0", "12"], ["-1"]),
        ({"type": "integer", "minimum": -SAFE, "maximum": SAFE}, [str(SAFE), str(-SAFE)], [str(SAFE + 1)]),
        ({"type": "number", "minimum": 0, "maximum": 1.7976931348623157e308}, ["0", "0.5", "12"], ["-1"]),
        ({"type": "number", "minimum": -3.4028235e38, "maximum": 3.4028235e38}, ["-0.5", "12"], ['"a"']),
        ({"type": "number", "exclusiveMinimum": -1e300, "exclusiveMaximum": 0}, ["-0.5", "-12"], ["0", "1"]),
        ({"type": "number", "maximum": float("inf")}, ["0.5"], ['"a"']),
    ],
)
async def test_bounds_of_any_size_are_kept(schema: Any, right: list[str], wrong: list[str]) -> None:
    found = await follows(of_schema(schema), *right, *wrong)
    assert found == [True] * len(right) + [False] * len(wrong)


@pytest.mark.parametrize(
    ("schema", "right", "wrong"),
    [
        ({"type": "string", "maxLength": 2.0}, '"ab"', '"abc"'),
        ({"type": "string", "minLength": 2.0}, '"ab"', '"a"'),
        ({"type": "array", "minItems": 1.0, "maxItems": 1.0}, "[1]", "[]"),
        ({"type": "object", "properties": {"a": {"type": "array", "maxItems": 0.0}}, "required": ["a"]},
         '{"a": []}', '{"a": [1]}'),
    ],
)  # fmt: skip
async def test_a_count_may_be_written_as_a_whole_float(schema: Any, right: str, wrong: str) -> None:
    assert await follows(of_schema(schema), right, wrong) == [True, False]


@pytest.mark.parametrize("nothing", [{"not": {}}, {"not": True, "description": "never"}, False])
async def test_what_nothing_satisfies_may_stand_wherever_something_else_does(nothing: Any) -> None:
    either = {"anyOf": [nothing, {"type": "string"}]}
    assert await follows(of_schema(either), '"a"', "1") == [True, False]
    closed = {"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": nothing}
    assert await follows(of_schema(closed), '{"a": 1}', '{"b": 1}') == [True, False]
    error = await refusal(of_schema(nothing))
    assert error.param == "guided_json"


NUMBER = {"type": "integer"}


def of(required: list[str] | None = None, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, **({} if required is None else {"required": required})}


@pytest.mark.parametrize(
    ("schema", "right", "wrong"),
    [
        (of(a=NUMBER, b=NUMBER), ["{}", '{"b": 1}', '{"a": 1, "b": 2}'], ['{"c": 1}', '{"a": 1, "c": 1}']),
        (of(["p"], p=of(["a"], a=NUMBER)), ['{"p": {"a": 1}}'], ['{"p": {"a": 1, "b": 1}}', '{"p": {"a": 1}, "b": 1}']),
        ({"anyOf": [of(["a"], a=NUMBER), of(["b"], b=NUMBER)]}, ['{"a": 1}', '{"b": 1}'], ['{"a": 1, "b": 1}']),
        ({"$defs": {"n": of(["v"], v=NUMBER, n={"$ref": "#/$defs/n"})}, "$ref": "#/$defs/n"},
         ['{"v": 1, "n": {"v": 2}}'], ['{"v": 1, "w": 1}']),
        (of(), ["{}"], ['{"c": 1}']),
        # What says something of others, or is joined with more of the same object, stays open.
        ({**of(["a"], a=NUMBER), "additionalProperties": True}, ['{"a": 1, "c": 2}'], ['{"c": 2}']),
        (of(["a", "z"], a=NUMBER), ['{"a": 1, "z": 2}', '{"a": 1, "z": "x", "c": 3}'], ['{"a": 1}']),
        ({"type": "object"}, ["{}", '{"c": 1}'], ["1"]),
        ({"allOf": [of(["a"], a=NUMBER), of(["b"], b=NUMBER)]}, ['{"a": 1, "b": 2}'], ['{"a": 1}']),
        ({**of(["a"], a=NUMBER), "anyOf": [of(["b"], b=NUMBER), of(["c"], c=NUMBER)]},
         ['{"a": 1, "b": 2}', '{"a": 1, "c": 2}'], ['{"a": 1}']),
        ({"$defs": {"a": of(["a"], a=NUMBER)}, "$ref": "#/$defs/a", **of(["b"], b=NUMBER)},
         ['{"a": 1, "b": 2}'], ['{"a": 1}']),
    ],
)  # fmt: skip
async def test_objects_have_the_properties_that_they_name_and_no_others(
    schema: Any, right: list[str], wrong: list[str]
) -> None:
    found = await follows(of_schema(schema), *right, *wrong)
    assert found == [True] * len(right) + [False] * len(wrong)


async def test_of_one_of_several_objects_no_other_may_hold_by_being_open() -> None:
    # {"a": 1, "b": 2} would be an answer if both were closed; it satisfies both as they are.
    error = await refusal(of_schema({"oneOf": [of(["a"], a=NUMBER, b=NUMBER), of(["b"], b=NUMBER)]}))
    assert "oneOf" in str(error)


def test_values_and_names_are_no_keywords() -> None:
    schema = {
        "type": "object",
        "properties": {"pattern": {"const": "[a"}, "not": {"enum": [{"not": {}}, {"maximum": 1e300}]}},
        "required": ["not"],
        "additionalProperties": {"const": {"type": "object", "properties": {"a": {}}}},
        "default": {"maxLength": 1.0},
        "exclusiveMinimum": True,
    }
    assert for_compiler(schema) == schema
    assert json.dumps(for_compiler(schema)) == json.dumps(schema)
