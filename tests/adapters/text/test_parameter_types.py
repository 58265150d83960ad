"""What is known of a parameter's type from a tool's schema."""

import json

import pytest

from adapters.text.calls.parameter_types import parameter_types


@pytest.mark.parametrize(
    ("schema", "types"),
    [
        ({"type": "string"}, {"string"}),
        ({"type": ["string", "null"]}, {"string", "null"}),
        ({"enum": ["a", 1, None]}, {"string", "integer", "null"}),
        ({"const": 1.5}, {"number"}),
        ({"anyOf": [{"type": "string"}, {"oneOf": [{"type": "array"}]}]}, {"string", "array"}),
        ({"anyOf": [{"type": "string"}, {"$ref": "#/x"}]}, None),
        ({"$ref": "#/x"}, None),
        ({"type": {}}, None),
        (True, None),
    ],
)
def test_the_types_of_a_parameter_are_told_where_its_schema_says_them(schema: object, types: set[str] | None) -> None:
    found = parameter_types(json.dumps({"properties": {"a": schema}}).encode())
    assert found == ({} if types is None else {"a": types})


def test_a_tool_without_properties_says_nothing() -> None:
    for schema in (None, b"{}", b"true", b'{"properties": []}'):
        assert parameter_types(schema) == {}


def test_unions_without_end_are_not_followed() -> None:
    deep = b'{"anyOf": [' * 40 + b'{"type": "string"}' + b"]}" * 40
    assert parameter_types(b'{"properties": {"a": ' + deep + b"}}") == {}
