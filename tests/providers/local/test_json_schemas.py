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


def test_values_and_names_are_no_keywords() -> None:
    schema = {
        "type": "object",
        "properties": {"pattern": {"const": "[a"}, "not": {"enum": [{"not": {}}, {"maximum": 1e300}]}},
        "required": ["not"],
        "default": {"maxLength": 1.0},
        "exclusiveMinimum": True,
    }
    assert for_compiler(schema) == schema
    assert json.dumps(for_compiler(schema)) == json.dumps(schema)
