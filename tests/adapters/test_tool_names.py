"""Names of tools that an upstream forbids: allowed there, told apart, and found again."""

import json
import re

from hypothesis import given
from hypothesis import strategies as st

from adapters.canonical.request import Request, Tool
from adapters.tool_names import NameRule
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
