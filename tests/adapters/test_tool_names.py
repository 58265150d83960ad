"""Names of tools that an upstream forbids: allowed there, told apart, and found again."""

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.canonical.messages import Message, Text, ToolCall, ToolResult
from adapters.canonical.request import Request, Tool, ToolChoice
from adapters.tool_names import FixedIds, NameRule, renamed, short
from tests.adapters.anthropic.exchange import chat as anthropic_chat
from tests.adapters.gemini.exchange import chat

RULE = NameRule(first="a-z_", allowed="a-z0-9_", max_length=24)
LEGAL = re.compile(r"[a-z_][a-z0-9_]{0,23}")


@given(st.sets(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=64), min_size=1, max_size=5))
def test_every_name_is_allowed_and_leads_back_to_itself(names: set[str]) -> None:
    tools = tuple([Tool(kind="function", name=name) for name in sorted(names)])
    back = RULE.originals(Request(model="m", dialect="x", tools=tools))
    for name in names:
        sent = RULE.sent(name)
        assert LEGAL.fullmatch(sent)
        assert back.get(sent, sent) == name


def test_a_name_that_is_allowed_stays() -> None:
    assert RULE.sent("get_weather") == "get_weather"
    assert RULE.originals(Request(model="m", dialect="x", tools=(Tool(kind="function", name="f"),))) == {}


def test_a_client_of_gemini_sees_its_own_names_alone() -> None:
    name = "2nd/lookup tool"
    call = {"id": "a", "type": "function", "function": {"name": name, "arguments": "{}"}}
    exchange = chat(
        messages=[
            {"role": "user", "content": "x"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "a", "content": "ok"},
        ],
        tools=[{"type": "function", "function": {"name": name}}],
        tool_choice={"type": "function", "function": {"name": name}},
    )
    sent = exchange.sent()
    told = sent["tools"][0]["functionDeclarations"][0]["name"]
    assert re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.:-]{0,127}", told)
    assert sent["toolConfig"]["functionCallingConfig"]["allowedFunctionNames"] == [told]
    assert sent["contents"][1]["parts"][0]["functionCall"]["name"] == told
    assert sent["contents"][2]["parts"][0]["functionResponse"]["name"] == told
    answer = {"content": {"parts": [{"functionCall": {"name": told, "args": {}}}]}, "finishReason": "STOP"}
    events, error = exchange.read_body(json.dumps({"candidates": [answer]}).encode())
    assert error is None
    message = json.loads(exchange.answer(events))["choices"][0]["message"]
    assert message["tool_calls"][0]["function"]["name"] == name


NAMES = NameRule(first="a-z", allowed="a-z_", max_length=40)
CALL = ToolCall(id="id 1", name="get.it", arguments="{}")
RESULT = ToolResult(call_id="id 1", parts=(Text(text="ok"),))


def asked(**fields: Any) -> Request:
    messages = (
        Message(role="user", parts=(Text(text="hi"),)),
        Message(role="assistant", parts=(CALL,)),
        Message(role="tool", parts=(RESULT,)),
    )
    tools = (Tool(kind="function", name="get.it"), Tool(kind="function", name="plain"))
    return Request(**{"model": "m", "dialect": "d", "messages": messages, "tools": tools, **fields})


def test_a_request_is_renamed_everywhere_and_the_same_each_time() -> None:
    references = (b'{"type":"function","function":{"name":"get.it"}}', b'{"type":"function","name":"plain"}')
    choice = ToolChoice(mode="auto", name="get.it", allowed=references)
    found = renamed(asked(tool_choice=choice), NAMES, FixedIds(9))
    name = NAMES.sent("get.it")
    assert found.tools is not None
    assert [tool.name for tool in found.tools] == [name, "plain"]
    assert found.tool_choice is not None
    assert found.tool_choice.name == name
    assert found.tool_choice.allowed is not None
    assert json.loads(found.tool_choice.allowed[0])["function"]["name"] == name
    assert found.tool_choice.allowed[1] is references[1]
    assert found.messages is not None
    call, result = found.messages[1].parts[0], found.messages[2].parts[0]
    assert isinstance(call, ToolCall)
    assert isinstance(result, ToolResult)
    assert call.name == name
    assert call.id == result.call_id == FixedIds(9).sent("id 1")
    assert renamed(asked(tool_choice=choice), NAMES, FixedIds(9)) == found


def test_a_request_that_is_allowed_as_it_is_stays_the_same_object() -> None:
    request = asked(
        messages=(Message(role="user", parts=(Text(text="hi"),)),), tools=(Tool(kind="function", name="f"),)
    )
    assert renamed(request, NAMES, FixedIds(9)) is request
    forbidden = asked()
    assert renamed(forbidden, None, None) is forbidden


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_an_id_of_fixed_length_is_letters_and_digits(call_id: str) -> None:
    sent = FixedIds(9).sent(call_id)
    assert re.fullmatch(r"[a-zA-Z0-9]{9}", sent)
    assert FixedIds(9).sent(sent) == sent


def test_anthropic_gets_names_that_it_allows_and_its_clients_their_own() -> None:
    tools = [{"type": "function", "function": {"name": "get.it"}}]
    allowed = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": tools}}
    exchange = anthropic_chat(tools=tools, tool_choice=allowed)
    (tool,) = exchange.sent()["tools"]
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,128}", tool["name"])
    block = {"type": "tool_use", "id": "t", "name": tool["name"], "input": {}}
    body = {"type": "message", "content": [block], "stop_reason": "tool_use"}
    events, _ = exchange.read_body(json.dumps(body).encode())
    call = json.loads(exchange.answer(events))["choices"][0]["message"]["tool_calls"][0]
    assert call["function"]["name"] == "get.it"


@pytest.mark.parametrize("name", ["a", "ann@example.test", "user äö\n", "x" * 64])
def test_a_rule_of_length_alone_lets_anything_of_that_length_be(name: str) -> None:
    assert short(64).sent(name) == name


def test_what_is_too_long_is_shortened_to_a_name_of_its_own() -> None:
    sent = {short(64).sent("x" * length) for length in (65, 66, 200)}
    assert len(sent) == 3
    assert {len(name) for name in sent} <= set(range(1, 65))
