"""Hosted tools: left to providers that have them, run by what run.yaml names, refused by name elsewhere."""

import json
from typing import Any

import pytest

from adapters.canonical.request import EXPRESSIBLE_FIELDS
from providers.base import Capabilities
from providers.testing.scripted import ScriptedProvider
from tests.gateway.server.running import error_of, running
from tests.gateway.server.stateful.responding import body
from tests.gateway.tools.asking import calls, kinds, made, results, says, streamed, tools

pytestmark = pytest.mark.timeout(60)
SEARCH = {"type": "web_search"}
FILES = {"type": "file_search"}
CODE = {"type": "code_interpreter", "container": {"type": "auto"}}
USES = ", web_search: 'mcp:small/search', file_search: 'mcp:small/search', code_interpreter: 'mcp:small/run'"


async def test_a_web_search_is_made_by_the_server_of_run_yaml(url: str) -> None:
    provider = ScriptedProvider("fake", calls(("search", '{"query": "tea"}')), says("Found."))
    async with running(provider, extra=tools(url, rest=USES)) as gateway:
        response, frames = await streamed(gateway, tools=[{"type": "web_search_preview"}])
    assert kinds(response) == ["web_search_call", "message"]
    call = response["output"][0]
    assert call["status"] == "completed"
    assert call["action"] == {"type": "search", "query": "tea", "queries": ["tea"]}
    for state in ("in_progress", "searching", "completed"):
        assert f"event: response.web_search_call.{state}".encode() in frames
    assert [tool.name for tool in provider.requests[0].tools or ()] == ["search"]
    assert results(provider.requests[1]) == [("3 pages about tea", None)]


async def test_what_the_declaration_says_becomes_arguments_which_the_model_does_not_see(url: str) -> None:
    provider = ScriptedProvider("fake", calls(("search", '{"query": "tea", "limit": 9}')), says("Found."))
    async with running(provider, extra=tools(url, rest=USES)) as gateway:
        await made(gateway, tools=[{**SEARCH, "limit": 7}])
    (tool,) = provider.requests[0].tools or ()
    assert set(json.loads(tool.parameters or b"")["properties"]) == {"query"}
    assert results(provider.requests[1]) == [("7 pages about tea", None)]


@pytest.mark.parametrize(
    ("tool", "param"),
    [
        ({**SEARCH, "search_context_size": "high"}, "tools[0].search_context_size"),
        ({**FILES, "vector_store_ids": ["vs_1"]}, "tools[0].vector_store_ids"),
        ({**CODE, "container": "cntr_1"}, "tools[0].container"),
        ({**CODE, "container": {"type": "auto", "file_ids": ["file_1"]}}, "tools[0].container"),
    ],
)
async def test_what_no_argument_can_say_is_refused_by_name(url: str, tool: dict[str, Any], param: str) -> None:
    async with (
        running(ScriptedProvider("fake", says("hi")), extra=tools(url, rest=USES)) as gateway,
        gateway.post(body(tools=[tool]), "/v1/responses") as answer,
    ):
        assert answer.status == 400
        assert (await error_of(answer))["param"] == param


@pytest.mark.parametrize("tool", [SEARCH, FILES, CODE, {"type": "image_generation"}], ids=lambda tool: tool["type"])
async def test_a_tool_that_nobody_has_is_refused_by_name(tool: dict[str, Any]) -> None:
    async with (
        running(ScriptedProvider("fake", says("hi"))) as gateway,
        gateway.post(body(tools=[tool]), "/v1/responses") as answer,
    ):
        assert answer.status == 400
        assert (await error_of(answer))["param"] == "tools[0]"


async def test_a_provider_that_has_them_gets_them_whatever_run_yaml_names(url: str) -> None:
    native = Capabilities(
        fields=EXPRESSIBLE_FIELDS,
        forwards=frozenset(("openai.responses",)),
        tool_kinds=frozenset(("function", "hosted", "mcp")),
    )
    provider = ScriptedProvider("fake", says("hi"), capabilities=native)
    declared = [SEARCH, {"type": "mcp", "server_label": "x", "server_url": "https://mcp.example.com"}]
    async with running(provider, extra=tools(url, rest=f"{USES}, from_request: true")) as gateway:
        assert kinds(await made(gateway, tools=declared)) == ["message"]
        assert [tool.kind for tool in provider.requests[0].tools or ()] == ["hosted", "mcp"]
        # A server of run.yaml is the gateway's also there.
        response = await made(gateway, tools=[{"type": "mcp", "server_label": "small"}])
        assert kinds(response) == ["mcp_list_tools", "message"]


async def test_results_are_shown_where_include_asks_for_them_and_reach_later_turns(url: str) -> None:
    turn = calls(("search", '{"query": "tea"}'), ("run", '{"code": "1+1"}'))
    provider = ScriptedProvider("fake", turn, says("Done."))
    async with running(provider, extra=tools(url, rest=USES)) as gateway:
        asked = {"tools": [FILES, CODE], "include": ["file_search_call.results", "code_interpreter_call.outputs"]}
        response, frames = await streamed(gateway, **asked)
        found, ran, _ = response["output"]
        assert found["queries"] == ["tea"]
        assert found["results"][0]["text"] == "3 pages about tea"
        assert (ran["code"], ran["outputs"]) == ("1+1", [{"type": "logs", "logs": "ran 1+1"}])
        assert b"event: response.code_interpreter_call_code.done" in frames
        await made(gateway, input="more", previous_response_id=response["id"])
        assert results(provider.requests[2]) == [("3 pages about tea", None), ("ran 1+1", None)]
        provider.play(turn, says("Done."))
        plain = await made(gateway, tools=[FILES, CODE])
        assert [plain["output"][0]["results"], plain["output"][1]["outputs"]] == [None, None]


async def test_a_hosted_tool_whose_server_is_gone_is_a_502_before_anything_is_said() -> None:
    extra = "tools: {mcp: {gone: {url: 'http://127.0.0.1:9/mcp'}}, web_search: 'mcp:gone'}\n"
    async with (
        running(ScriptedProvider("fake", says("hi")), extra=extra) as gateway,
        gateway.post(body(tools=[SEARCH], stream=True), "/v1/responses") as answer,
    ):
        assert answer.status == 502
        assert (await error_of(answer))["param"] == "tools[0]"


async def test_the_choice_of_a_hosted_tool_makes_the_model_call_it_once(url: str) -> None:
    provider = ScriptedProvider("fake", calls(("search", '{"query": "tea"}')), says("Found."))
    async with running(provider, extra=tools(url, rest=USES)) as gateway:
        await made(gateway, tools=[SEARCH], tool_choice={"type": "web_search"})
    first, second = provider.requests
    assert first.tool_choice is not None
    assert (first.tool_choice.mode, first.tool_choice.name) == ("required", "search")
    assert second.tool_choice is None


async def test_tokens_are_counted_with_the_tools_that_the_model_gets(url: str) -> None:
    seen = []

    class Counting(ScriptedProvider):
        async def count_tokens(self, request: Any) -> list[int]:
            seen.append([tool.name for tool in request.tools or ()])
            return [7]

    async with running(Counting("fake", says("hi")), extra=tools(url, rest=USES)) as gateway:
        asked = {"model": "fake/m", "input": "hi", "tools": [SEARCH]}
        async with gateway.post(asked, "/v1/responses/input_tokens") as answer:
            assert (await answer.json())["input_tokens"] == 7
    assert seen == [["search"]]
