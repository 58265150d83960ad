"""Calls that somebody has to approve first."""

from typing import Any

import pytest

from adapters.canonical.messages import Opaque, Text
from adapters.canonical.request import EXPRESSIBLE_FIELDS
from providers.base import Capabilities
from providers.testing.scripted import ScriptedProvider
from tests.gateway.server.running import error_of, running
from tests.gateway.server.stateful.responding import body, client
from tests.gateway.tools.asking import (
    ADD,
    SMALL,
    calls,
    kinds,
    made,
    results,
    says,
    streamed,
    tools,
)

pytestmark = pytest.mark.timeout(60)


async def test_an_approval_is_asked_for_given_and_the_call_made(url: str) -> None:
    provider = ScriptedProvider("fake", calls(ADD), says("It is 3."))
    tool = {"type": "mcp", "server_label": "small"}
    async with running(provider, extra=tools(url)) as gateway, client(gateway) as sdk:
        first, _ = await streamed(gateway, tools=[tool])
        assert kinds(first) == ["mcp_list_tools", "mcp_approval_request"]
        asked = first["output"][1]
        assert (asked["name"], asked["arguments"], asked["server_label"]) == (*ADD, "small")
        assert first["status"] == "completed"
        answer = {"type": "mcp_approval_response", "approval_request_id": asked["id"], "approve": True}
        second, _ = await streamed(gateway, input=[answer], previous_response_id=first["id"], tools=[tool])
        assert kinds(second) == ["mcp_call", "message"]
        assert second["output"][0]["approval_request_id"] == asked["id"]
        assert second["output"][0]["output"] == "3"
        assert results(provider.requests[1]) == [("3", None)]
        # A third turn has the call once, from its item.
        third = await sdk.responses.create(
            model="fake/m",
            input="and?",
            previous_response_id=second["id"],
            tools=[tool],  # type: ignore[list-item]
        )
        assert results(provider.requests[2]) == [("3", None)]
        assert third.output_text == "It is 3."


async def test_a_call_that_is_not_approved_is_not_made_and_the_model_hears_why(url: str) -> None:
    provider = ScriptedProvider("fake", calls(ADD), says("All right."))
    tool = {"type": "mcp", "server_label": "small"}
    async with running(provider, extra=tools(url)) as gateway:
        first = await made(gateway, tools=[tool])
        request = first["output"][1]
        no = {"type": "mcp_approval_response", "approval_request_id": request["id"], "approve": False, "reason": "no!"}
        played_back = [{"role": "user", "content": "hi"}, *first["output"], no]
        second = await made(gateway, input=played_back, store=False, tools=[tool])
    assert kinds(second) == ["message"]
    assert results(provider.requests[1]) == [("The user did not approve this call. no!", True)]


async def test_an_approval_without_a_request_or_a_tool_is_a_400(url: str) -> None:
    yes = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}
    asked = {"type": "mcp_approval_request", "id": "mcpr_1", "server_label": "small", "name": "x", "arguments": "{}"}
    async with running(ScriptedProvider("fake", says("hi")), extra=tools(url)) as gateway:
        for items, param in (([yes], "input[0].approval_request_id"), ([asked, yes], "input[1]")):
            async with gateway.post(body(input=items, tools=[SMALL]), "/v1/responses") as answer:
                assert answer.status == 400
                assert (await error_of(answer))["param"] == param


@pytest.mark.parametrize(
    ("asked", "calls_of", "expected"),
    [
        ("never", "add", "mcp_call"),
        ("always", "add", "mcp_approval_request"),
        ({"never": {"tool_names": ["add"]}}, "add", "mcp_call"),
        ({"never": {"tool_names": ["add"]}}, "search", "mcp_approval_request"),
        ({"always": {"tool_names": ["add"]}}, "add", "mcp_approval_request"),
        ({"always": {"tool_names": ["add"]}}, "search", "mcp_call"),
        ({"never": {"read_only": True}}, "add", "mcp_call"),
        ({"never": {"read_only": True}}, "search", "mcp_approval_request"),
    ],
)
async def test_the_request_says_which_calls_need_approval(url: str, asked: Any, calls_of: str, expected: str) -> None:
    arguments = {"add": ADD[1], "search": '{"query": "x"}'}
    provider = ScriptedProvider("fake", calls((calls_of, arguments[calls_of])), says("ok"))
    async with running(provider, extra=tools(url)) as gateway:
        response = await made(gateway, tools=[{**SMALL, "require_approval": asked}])
    assert kinds(response)[1] == expected


async def test_without_a_word_of_the_request_run_yaml_decides_about_approval(url: str) -> None:
    provider = ScriptedProvider("fake", calls(ADD), says("ok"))
    async with running(provider, extra=tools(url, ", approval: never")) as gateway:
        assert kinds(await made(gateway, tools=[{"type": "mcp", "server_label": "small"}]))[1] == "mcp_call"


async def test_an_approval_of_a_call_that_the_provider_makes_goes_to_the_provider(url: str) -> None:
    native = Capabilities(
        fields=EXPRESSIBLE_FIELDS,
        forwards=frozenset(("openai.responses",)),
        parts=frozenset((Text, Opaque)),
        tool_kinds=frozenset(("function", "hosted", "mcp")),
    )
    provider = ScriptedProvider("fake", says("ok"), capabilities=native)
    asked = {"type": "mcp_approval_request", "id": "mcpr_1", "server_label": "theirs", "name": "x", "arguments": "{}"}
    yes = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}
    theirs = {"type": "mcp", "server_label": "theirs", "server_url": "https://mcp.example.com"}
    async with running(provider, extra=tools(url)) as gateway:
        for declared in ([theirs], [theirs, SMALL]):
            await made(gateway, input=[asked, yes], tools=declared)
            sent = [part for message in provider.requests[-1].messages or () for part in message.parts]
            assert [part.type for part in sent if isinstance(part, Opaque)] == [asked["type"], yes["type"]]
