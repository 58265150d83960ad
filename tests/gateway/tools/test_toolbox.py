"""Which tools a request gets, by what names, and what is refused by name."""

import json
import re
from typing import Any

import pytest

from providers.testing.scripted import ScriptedProvider
from tests.gateway.server.running import error_of, running
from tests.gateway.server.stateful.responding import body
from tests.gateway.tools.asking import (
    ADD,
    SMALL,
    calls,
    made,
    says,
    shown,
    streamed,
    tools,
)

pytestmark = pytest.mark.timeout(60)


async def test_the_tools_may_be_fewer_than_the_server_has(url: str) -> None:
    provider = ScriptedProvider("fake", says("hi"))
    async with running(provider, extra=tools(url, ", allowed_tools: [add, search]")) as gateway:
        for asked, expected in (
            (None, ["add", "search"]),
            (["search", "fail"], ["search"]),
            ({"read_only": True}, ["add"]),
            ({"tool_names": ["search"], "read_only": False}, ["search"]),
        ):
            response = await made(gateway, tools=[{**SMALL, "allowed_tools": asked}])
            assert [tool["name"] for tool in response["output"][0]["tools"]] == expected
            assert [tool.name for tool in provider.requests[-1].tools or ()] == expected


async def test_names_that_stand_twice_get_their_servers_before_them(url: str) -> None:
    row = f"{{url: '{url}/mcp', allowed_tools: [add]}}"
    two = f"tools: {{mcp: {{a: {row}, b: {row}}}}}\n"
    own = {"type": "function", "name": "run", "parameters": {"type": "object"}}
    provider = ScriptedProvider("fake", calls(("b__add", ADD[1])), says("3"))
    async with running(provider, extra=two) as gateway:
        declared = [{**SMALL, "server_label": "a"}, {**SMALL, "server_label": "b"}, own]
        response = await made(gateway, tools=declared)
    assert [tool.name for tool in provider.requests[0].tools or ()] == ["a__add", "b__add", "run"]
    assert (response["output"][2]["name"], response["output"][2]["server_label"]) == ("add", "b")


async def test_a_name_that_apis_forbid_is_spelt_otherwise_for_the_model_alone(url: str) -> None:
    provider = ScriptedProvider("fake", says("hi"))
    async with running(provider, extra=tools(url, ", allowed_tools: [odd.name/1]")) as gateway:
        await made(gateway, tools=[SMALL])
        (tool,) = provider.requests[0].tools or ()
        assert re.fullmatch("[a-zA-Z0-9_-]{1,64}", tool.name)
        provider.play(calls((tool.name, "{}")), says("hi"))
        call = (await made(gateway, tools=[SMALL]))["output"][1]
    assert (call["name"], call["output"]) == ("odd.name/1", "odd")


@pytest.mark.parametrize(
    ("choice", "name", "allowed"),
    [
        ({"type": "mcp", "server_label": "small", "name": "add"}, "add", None),
        (
            {
                "type": "allowed_tools",
                "mode": "auto",
                "tools": [{"type": "mcp", "server_label": "small", "name": "add"}],
            },
            None,
            ["add"],
        ),
    ],
)
async def test_70_a_choice_of_the_gateways_tools_is_a_hard_limit(
    url: str, choice: dict[str, Any], name: str | None, allowed: list[str] | None
) -> None:
    provider = ScriptedProvider("fake", calls(ADD, ("search", '{"query": "x"}')), says("3"))
    async with running(provider, extra=tools(url)) as gateway:
        response = await made(gateway, tools=[SMALL], tool_choice=choice)
    first, second = provider.requests
    assert first.tool_choice is not None
    assert first.tool_choice.name == name
    assert [json.loads(raw)["name"] for raw in first.tool_choice.allowed or ()] == (allowed or [])
    assert second.tool_choice is None or second.tool_choice.mode == "auto"
    assert [item["status"] for item in response["output"][1:3]] == ["completed", "failed"]
    assert response["tool_choice"] == choice


async def test_a_server_of_the_request_is_called_only_where_run_yaml_allows_it(url: str) -> None:
    tool = {**SMALL, "server_label": "mine", "server_url": f"{url}/mcp"}
    reach = "fetch: {schemes: [http], private_addresses: true}\n"
    provider = ScriptedProvider("fake", calls(ADD), says("3"))
    async with running(provider, extra="tools: {from_request: true}\n" + reach) as gateway:
        response, _ = await streamed(gateway, tools=[tool])
        assert response["output"][1]["output"] == "3"
        sse = await made(gateway, tools=[{**tool, "server_url": f"{url}/sse"}])
        assert sse["output"][0]["tools"]
    provider = ScriptedProvider("fake", says("hi"))
    async with (
        running(provider, extra=reach) as gateway,
        gateway.post(body(tools=[tool]), "/v1/responses") as answer,
    ):
        assert answer.status == 400
        error = await error_of(answer)
        assert error["param"] == "tools[0]"
        assert "only with 'tools: {from_request: true}' in run.yaml" in str(error["message"])
    async with (
        running(provider, extra=tools(url)) as gateway,
        gateway.post(body(tools=[SMALL, tool, {**tool, "server_label": "too"}]), "/v1/responses") as answer,
    ):
        error = await error_of(answer)
        assert error["param"] == "tools[1]"  # by the client's number, whatever functions stand before it now
        assert str(error["message"]).startswith("tools[1], tools[2]: not supported by the model 'fake/m'; the gateway")
    async with (
        running(provider, extra=reach) as gateway,
        gateway.post(body(tools=[{**tool, "server_url": None, "connector_id": "c"}]), "/v1/responses") as answer,
    ):
        assert (await error_of(answer))["message"] == "tools[0]: not supported by the model 'fake/m'"
    provider = ScriptedProvider("fake", says("hi"))
    async with running(provider, extra="tools: {from_request: true}\nfetch: {schemes: [http]}\n") as gateway:
        listed = (await made(gateway, tools=[tool]))["output"][0]
        assert listed["tools"] == []
        assert "not on the public network" in listed["error"]


async def test_what_a_server_of_run_yaml_cannot_be_asked_is_refused_by_name(url: str) -> None:
    async with running(ScriptedProvider("fake", says("hi")), extra=tools(url)) as gateway:
        for fields, param in (
            ({"headers": {"x": "y"}}, "tools[0].headers"),
            ({"authorization": "t"}, "tools[0].headers"),
            ({"defer_loading": True}, "tools[0].defer_loading"),
            ({"server_label": "other"}, "tools[0].server_label"),
            ({"require_approval": "maybe"}, "tools[0].require_approval"),
            ({"allowed_tools": 3}, "tools[0].allowed_tools"),
        ):
            async with gateway.post(body(tools=[{**SMALL, **fields}]), "/v1/responses") as answer:
                assert answer.status == 400, fields
                assert (await error_of(answer))["param"] == param
        async with gateway.post(body(tools=[SMALL, SMALL]), "/v1/responses") as answer:
            assert (await error_of(answer))["param"] == "tools[1].server_label"


async def test_credentials_in_a_declaration_are_not_said_again() -> None:
    tool = {"type": "mcp", "server_label": "x", "server_url": "http://127.0.0.1:9/", "authorization": "s3cret-token"}
    provider = ScriptedProvider("fake", says("hi"))
    extra = "tools: {from_request: true}\nfetch: {schemes: [http], private_addresses: true}\n"
    async with running(provider, extra=extra) as gateway:
        response = await made(gateway, tools=[{**tool, "headers": {"x-key": "s3cret-header"}}])
        text = json.dumps([response, await shown(gateway, response["id"]), gateway.lines()])
    assert "s3cret" not in text
