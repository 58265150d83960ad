"""Tools and their choice towards Gemini, of its own clients and of chat's."""

from typing import Any

import pytest

from tests.adapters.field_rules import check_hint
from tests.adapters.gemini.exchange import chat, generate

SCHEMA = {"type": "object"}
TOOLS = [{"functionDeclarations": [{"name": "f"}, {"name": "g"}]}]


@pytest.mark.parametrize(
    "calling",
    [
        {"mode": "AUTO"},
        {"mode": "ANY"},
        {"mode": "NONE"},
        {"mode": "ANY", "allowedFunctionNames": ["f"]},
        {"mode": "ANY", "allowedFunctionNames": ["f", "g"]},
        {"mode": "AUTO", "allowedFunctionNames": ["g"]},
        {"mode": "VALIDATED"},
        {"mode": "VALIDATED", "allowedFunctionNames": ["f"]},
    ],
)
def test_every_form_of_tool_choice_reaches_gemini(calling: dict[str, Any]) -> None:
    config = {"functionCallingConfig": calling}
    assert generate(tools=TOOLS, toolConfig=config).sent()["toolConfig"] == config


def test_that_calls_keep_to_their_schemas_is_a_hint_beside_the_choice() -> None:
    calling = {"mode": "VALIDATED", "allowedFunctionNames": ["f"]}
    exchange = generate(
        tools=[{"functionDeclarations": [{"name": "f"}]}], toolConfig={"functionCallingConfig": calling}
    )
    check_hint(exchange, "toolConfig.functionCallingConfig.mode")
    choice = exchange.request.tool_choice
    assert choice is not None
    assert (choice.mode, len(choice.allowed or ())) == ("auto", 1)


@pytest.mark.parametrize(
    ("choice", "calling"),
    [
        ("auto", {"mode": "AUTO"}),
        ("none", {"mode": "NONE"}),
        ("required", {"mode": "ANY"}),
        ({"type": "function", "function": {"name": "f"}}, {"mode": "ANY", "allowedFunctionNames": ["f"]}),
        (
            {
                "type": "allowed_tools",
                "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "function": {"name": "f"}}]},
            },
            {"mode": "VALIDATED", "allowedFunctionNames": ["f"]},
        ),
    ],
)
def test_chats_tool_choice_becomes_geminis(choice: Any, calling: dict[str, Any]) -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": SCHEMA}}]
    sent = chat(tools=tools, tool_choice=choice).sent()
    assert sent["toolConfig"] == {"functionCallingConfig": calling}
    assert sent["tools"] == [{"functionDeclarations": [{"name": "f", "parametersJsonSchema": SCHEMA}]}]


@pytest.mark.parametrize(
    ("choice", "calling"),
    [
        (None, {"mode": "VALIDATED"}),
        ("auto", {"mode": "VALIDATED"}),
        ("required", {"mode": "ANY"}),
        ("none", {"mode": "NONE"}),
    ],
)
def test_calls_of_strict_tools_are_held_to_their_schemas(choice: str | None, calling: dict[str, Any]) -> None:
    function = {"name": "f", "parameters": {"type": "object"}, "strict": True}
    exchange = chat(tools=[{"type": "function", "function": function}], tool_choice=choice)
    assert exchange.sent()["toolConfig"] == {"functionCallingConfig": calling}


def test_a_tools_schema_is_sent_as_it_came() -> None:
    schema = b'{"type": "object", "z": 1.50, "a": 12345678901234567890123}'
    body = (
        b'{"model":"m","messages":[{"role":"user","content":"x"}],'
        b'"tools":[{"type":"function","function":{"name":"f","parameters":%b}}]}'
    )
    exchange = chat()
    request = exchange.front.parse(body % schema, max_depth=64)
    assert b'"parametersJsonSchema":' + schema in exchange.upstream.render_request(request)
