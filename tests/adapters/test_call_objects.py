"""What the arguments of a call are, whatever form a host gives them."""

import json

import orjson
import pytest

from adapters.call_objects import arguments_object, arguments_text
from adapters.canonical.messages import ToolCall


@pytest.mark.parametrize("value", [b"", b"null", b'""', b"{}"])
def test_a_call_without_arguments_has_an_empty_object(value: bytes) -> None:
    assert arguments_text(value) == "{}"


def test_an_object_stays_as_it_came() -> None:
    assert arguments_text(b'{"big": 123456789012345678901, "a":1.0}') == '{"big": 123456789012345678901, "a":1.0}'


def test_an_object_that_is_written_as_a_string_is_not_quoted_again() -> None:
    assert arguments_text(rb'"{\"city\": \"K\u00f6ln\"}"') == '{"city": "Köln"}'


def test_the_input_of_a_custom_tool_is_the_one_member_of_an_object() -> None:
    call = ToolCall(id="a", name="patch", arguments='*** "x"', kind="custom")
    assert json.loads(orjson.dumps(arguments_object(call))) == {"input": '*** "x"'}
