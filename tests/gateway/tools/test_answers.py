"""Answers of models that call tools of the gateway: real MCP servers, scripted models, clients over HTTP."""

import json

import pytest

from adapters.canonical.errors import UpstreamInternal
from adapters.canonical.events import ChoiceFinished, Started, ToolArgumentsDelta, ToolCallStarted
from adapters.canonical.stop_reason import StopReason
from providers.base import Batch
from providers.testing.scripted import ScriptedProvider
from tests.gateway.server.running import running
from tests.gateway.server.stateful.responding import answers, body, client
from tests.gateway.tools.asking import (
    ADD,
    SMALL,
    calls,
    kinds,
    made,
    results,
    says,
    shown,
    streamed,
    tools,
    without_ids,
)
from tests.gateway.tools.serving import COMMAND, PLAIN

pytestmark = pytest.mark.timeout(60)


@pytest.mark.parametrize("transport", ["http", "sse", "stdio"])
async def test_a_call_is_made_over_each_transport_and_the_model_goes_on_with_its_result(
    url: str, transport: str
) -> None:
    rows = {
        "http": f"{{url: '{url}/mcp'}}",
        "sse": f"{{url: '{url}/sse', transport: sse}}",
        "stdio": f"{{command: {json.dumps(COMMAND)}}}",
    }
    provider = ScriptedProvider("fake", calls(ADD), says("It is 3."))
    async with running(provider, extra=f"tools: {{mcp: {{small: {rows[transport]}}}}}\n") as gateway:
        response, _ = await streamed(gateway, tools=[SMALL])
        assert kinds(response) == ["mcp_list_tools", "mcp_call", "message"]
        listed, call, message = response["output"]
        assert "add" in [tool["name"] for tool in listed["tools"]]
        assert (call["name"], call["arguments"], call["output"]) == (*ADD, "3")
        assert (call["status"], call["error"], call["server_label"]) == ("completed", None, "small")
        assert message["content"][0]["text"] == "It is 3."
        first, second = provider.requests
        assert results(second) == [("3", None)]
        assert [tool.kind for tool in first.tools or ()] == ["function"] * len(listed["tools"])
        assert await shown(gateway, response["id"]) == response


async def test_a_stream_tells_every_event_of_a_call(url: str) -> None:
    async with running(ScriptedProvider("fake", calls(ADD), says("3")), extra=tools(url)) as gateway:
        _, frames = await streamed(gateway, tools=[SMALL])
    names = [line.removeprefix("event: response.") for line in frames.decode().splitlines() if line.startswith("event")]
    assert names == [
        *("created", "in_progress"),
        *("output_item.added", "mcp_list_tools.in_progress", "mcp_list_tools.completed", "output_item.done"),
        *("output_item.added", "mcp_call.in_progress", "mcp_call_arguments.delta", "mcp_call_arguments.delta"),
        *("mcp_call_arguments.done", "mcp_call.completed", "output_item.done"),
        *("output_item.added", "content_part.added", "output_text.delta", "output_text.done", "content_part.done"),
        *("output_item.done", "completed"),
    ]


async def test_a_stream_and_a_body_of_one_answer_are_the_same(url: str) -> None:
    script = (calls(ADD, ("search", '{"query": "x"}')), says("Done."))
    outputs = []
    for stream in (True, False):
        async with running(ScriptedProvider("fake", *script), extra=tools(url)) as gateway:
            found = (await streamed(gateway, tools=[SMALL]))[0] if stream else await made(gateway, tools=[SMALL])
            assert await shown(gateway, found["id"]) == found
            outputs.append(([without_ids(item) for item in found["output"]], found["usage"]))
    assert outputs[0] == outputs[1]


async def test_the_sdk_reads_every_item_and_event(url: str) -> None:
    provider = ScriptedProvider("fake", calls(ADD), says("It is 3."))
    async with running(provider, extra=tools(url)) as gateway, client(gateway) as sdk:
        async with sdk.responses.stream(model="fake/m", input="1+2?", tools=[SMALL]) as events:  # type: ignore[list-item]
            seen = [event.type async for event in events]
            final = await events.get_final_response()
        assert "response.mcp_call_arguments.done" in seen
        assert "response.mcp_call.completed" in seen
        assert final.output_text == "It is 3."
        assert [item.type for item in final.output] == ["mcp_list_tools", "mcp_call", "message"]
        assert (await sdk.responses.retrieve(final.id)).output_text == "It is 3."


async def test_usage_is_summed_and_told_by_turn(url: str) -> None:
    provider = ScriptedProvider("fake", calls(ADD, usage=(10, 5)), says("3", usage=(20, 2)))
    async with running(provider, extra=tools(url)) as gateway:
        usage = (await made(gateway, tools=[SMALL]))["usage"]
        await streamed(gateway, tools=[SMALL])
        line = next(line for line in gateway.lines() if line["event"] == "request")
    assert (usage["input_tokens"], usage["output_tokens"], usage["total_tokens"]) == (30, 7, 37)
    assert usage["input_tokens_details"] == {
        "cached_tokens": 14,
        "cache_write_tokens": 0,
        "input_tokens_per_turn": [10, 20],
        "cached_tokens_per_turn": [2, 12],
    }
    assert usage["output_tokens_details"] == {
        "reasoning_tokens": 0,
        "tool_output_tokens": 5,
        "output_tokens_per_turn": [5, 2],
        "tool_output_tokens_per_turn": [0, 5],
    }
    assert (line["prompt_tokens"], line["completion_tokens"]) == (30, 7)


async def test_usage_that_an_upstream_does_not_report_is_estimated_for_each_turn(url: str) -> None:
    silent: list[Batch] = [[Started()], *calls(ADD)[1:-1], [ChoiceFinished(0, StopReason.TOOL_CALLS)]]
    provider = ScriptedProvider("fake", silent, answers("Three it is."))
    async with running(provider, extra=tools(url)) as gateway:
        usage = (await made(gateway, tools=[SMALL]))["usage"]
    assert usage["estimated"] is True
    assert len(usage["input_tokens_details"]["input_tokens_per_turn"]) == 2
    assert usage["output_tokens"] == sum(usage["output_tokens_details"]["output_tokens_per_turn"]) > 0


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (("fail", "{}"), "Error executing tool fail"),
        (("add", '{"a": "x"}'), "validation error"),
        (("add", "[1, 2]"), "the arguments are not a JSON object"),
        (("add", '{"a": 1'), "the arguments are not JSON"),
        (("long", '{"chars": 1000001}'), "its answer is longer than 1000000 characters"),
    ],
)
async def test_a_call_that_fails_is_a_failed_item_and_the_model_sees_why(
    url: str, call: tuple[str, str], told: str
) -> None:
    provider = ScriptedProvider("fake", calls(call), says("Sorry."))
    async with running(provider, extra=tools(url)) as gateway:
        response, frames = await streamed(gateway, tools=[SMALL])
    item = response["output"][1]
    assert (item["status"], item["output"]) == ("failed", None)
    assert told in json.dumps(item["error"])
    assert b"event: response.mcp_call.failed" in frames
    ((text, is_error),) = results(provider.requests[1])
    assert told in text
    assert is_error is True
    assert response["status"] == "completed"


async def test_a_server_that_hangs_dies_or_talks_nonsense_never_holds_a_response(url: str) -> None:
    rows = (
        f"hangs: {{url: '{url}/mcp', timeout_s: 3}}, dies: {{command: {json.dumps(PLAIN)}}}, "
        "babbles: {command: [sh, -c, 'while read line; do echo nonsense; done'], timeout_s: 0.5}, "
        "nowhere: {url: 'http://127.0.0.1:9/mcp'}, missing: {command: [no-such-program]}"
    )
    labels = ("hangs", "dies", "babbles", "nowhere", "missing")
    declared = [{**SMALL, "server_label": label} for label in labels]
    turn = calls(("hangs__hang", "{}"), ("dies__die", "{}"), ("hangs__add", '{"a": 1, "b": 1}'))
    provider = ScriptedProvider("fake", turn, says("Well."))
    async with running(provider, extra=f"tools: {{mcp: {{{rows}}}}}\n") as gateway:
        response, frames = await streamed(gateway, tools=declared)
        lost = {str(line["server"]) for line in gateway.lines() if line["event"] == "tool_server_lost"}
    by_label = {item["server_label"]: item for item in response["output"][:5]}
    assert [bool(by_label[label].get("error")) for label in labels] == [False, False, True, True, True]
    hung, died, added = response["output"][5:8]
    assert "no answer within 3 s" in hung["error"]["message"]
    assert "broke off" in died["error"]["message"]
    assert added["output"] == "2"
    assert frames.count(b"event: response.mcp_list_tools.failed") == 3
    assert [is_error for _, is_error in results(provider.requests[1])] == [True, True, None]
    assert {"babbles", "nowhere", "missing", "dies"} <= lost


async def test_a_kept_server_is_shared_and_started_anew_after_its_end(url: str) -> None:
    extra = f"tools: {{mcp: {{small: {{command: {json.dumps(PLAIN)}}}}}}}\n"
    provider = ScriptedProvider("fake")
    async with running(provider, extra=extra) as gateway:

        async def process() -> str:
            provider.play(calls(("whoami", "{}")), says("ok"))
            found: str = (await made(gateway, tools=[SMALL]))["output"][1]["output"]
            return found

        first = await process()
        assert await process() == first
        provider.play(calls(("die", "{}")), says("ok"))
        assert (await made(gateway, tools=[SMALL]))["output"][1]["status"] == "failed"
        assert await process() != first


async def test_calls_of_one_turn_run_at_the_same_time_and_are_told_in_their_order(url: str) -> None:
    made_calls = [("add", f'{{"a": {n}, "b": 0}}') for n in range(5)]
    provider = ScriptedProvider("fake", calls(*made_calls), says("done"))
    async with running(provider, extra=tools(url)) as gateway:
        response, _ = await streamed(gateway, tools=[SMALL])
    assert [item["output"] for item in response["output"][1:6]] == ["0", "1", "2", "3", "4"]
    assert [text for text, _ in results(provider.requests[1])] == ["0", "1", "2", "3", "4"]


async def test_70_no_more_calls_are_made_than_max_tool_calls_and_the_model_is_told(url: str) -> None:
    provider = ScriptedProvider("fake", calls(ADD, ADD, ADD), calls(ADD), says("Enough."))
    async with running(provider, extra=tools(url)) as gateway:
        response, _ = await streamed(gateway, tools=[SMALL], max_tool_calls=2)
    assert kinds(response) == ["mcp_list_tools", "mcp_call", "mcp_call", "message"]
    told = [text[:10] for text, _ in results(provider.requests[2])]
    assert told == ["3", "3", "Not called", "Not called"]
    assert response["max_tool_calls"] == 2


async def test_a_model_that_never_stops_calling_is_stopped(url: str) -> None:
    provider = ScriptedProvider("fake", calls(ADD))
    async with running(provider, extra=tools(url)) as gateway:
        response = await made(gateway, tools=[SMALL], max_tool_calls=1)
    assert kinds(response) == ["mcp_list_tools", "mcp_call"]
    assert response["status"] == "completed"
    assert len(provider.requests) == 4


async def test_after_32_turns_no_call_is_made_any_more(url: str) -> None:
    provider = ScriptedProvider("fake", calls(ADD))
    async with running(provider, extra=tools(url)) as gateway:
        response = await made(gateway, tools=[SMALL])
    assert kinds(response) == ["mcp_list_tools", *["mcp_call"] * 32]
    assert len(provider.requests) == 35


async def test_a_call_of_the_clients_own_tool_ends_the_response_after_the_gateways_calls(url: str) -> None:
    own = {"type": "function", "name": "mine", "parameters": {"type": "object"}}
    provider = ScriptedProvider("fake", calls(ADD, ("mine", "{}")), says("Both."))
    async with running(provider, extra=tools(url)) as gateway:
        first, _ = await streamed(gateway, tools=[SMALL, own])
        assert kinds(first) == ["mcp_list_tools", "mcp_call", "function_call"]
        call = first["output"][2]
        output = {"type": "function_call_output", "call_id": call["call_id"], "output": "mine!"}
        second = await made(gateway, input=[output], previous_response_id=first["id"], tools=[SMALL, own])
    assert kinds(second) == ["message"]
    said = provider.requests[1].messages or ()
    assert [[type(part).__name__ for part in message.parts] for message in said] == [
        ["Text"],
        ["ToolCall", "ToolCall"],
        ["ToolResult"],
        ["ToolResult"],
    ]
    assert results(provider.requests[1]) == [("3", None), ("mine!", None)]


async def test_an_answer_that_is_cut_makes_no_calls(url: str) -> None:
    cut: list[Batch] = [
        [Started()],
        [ToolCallStarted(0, 0, "c1", "add"), ToolArgumentsDelta(0, 0, '{"a"')],
        [ChoiceFinished(0, StopReason.LENGTH)],
    ]
    provider = ScriptedProvider("fake", cut)
    async with running(provider, extra=tools(url)) as gateway:
        response, _ = await streamed(gateway, tools=[SMALL])
    assert response["status"] == "incomplete"
    assert response["output"][1]["status"] == "incomplete"
    assert len(provider.requests) == 1


async def test_an_error_before_the_first_output_keeps_its_status(url: str) -> None:
    asked = body(model="nope/m", tools=[SMALL], stream=True)
    async with (
        running(ScriptedProvider("fake", says("hi")), extra=tools(url)) as gateway,
        gateway.post(asked, "/v1/responses") as answer,
    ):
        assert answer.status == 404


async def test_a_failure_of_a_later_turn_is_a_failed_response_with_what_was_made(url: str) -> None:
    provider = ScriptedProvider("fake", calls(ADD), [UpstreamInternal("down")])
    async with running(provider, extra=tools(url)) as gateway:
        response, _ = await streamed(gateway, tools=[SMALL])
        assert response["status"] == "failed"
        assert response["output"][1]["output"] == "3"
        assert response["usage"]["input_tokens"] == 10
        assert await shown(gateway, response["id"]) == response


async def test_the_messages_of_a_response_have_calls_and_results_as_chat_has_them(url: str) -> None:
    provider = ScriptedProvider("fake", calls(ADD), says("It is 3."))
    async with running(provider, extra=tools(url)) as gateway:
        first = await made(gateway, tools=[SMALL], enable_response_messages=True)
        call, result, said = first["output_messages"]
        assert call["tool_calls"][0]["function"] == {"name": "add", "arguments": ADD[1]}
        assert (result["role"], result["content"]) == ("tool", "3")
        assert said == {"role": "assistant", "content": "It is 3."}
        played_back = [{"role": "user", "content": "hi"}, *first["output"]]
        second = await made(gateway, input=played_back, enable_response_messages=True)
        assert second["input_messages"][1:] == first["output_messages"]


@pytest.mark.parametrize("on", ["input", "output"])
async def test_guardrails_change_what_a_tool_gave_before_the_model_or_the_client_sees_it(url: str, on: str) -> None:
    rule = f"guardrails: [{{regex: '\\b3\\b', replace: '[sum]', on: [{on}]}}]\n"
    provider = ScriptedProvider("fake", calls(ADD), says("Added."))
    async with running(provider, extra=tools(url) + rule) as gateway:
        response, frames = await streamed(gateway, tools=[SMALL])
    assert response["output"][1]["output"] == "[sum]"
    assert results(provider.requests[1]) == [("[sum]", None)]
    assert b'"output":"3"' not in frames


@pytest.mark.parametrize("made_by", [ADD, ("fail", "{}")], ids=["result", "fault"])
async def test_what_a_tool_gave_and_a_guardrail_refuses_is_a_failed_call_that_says_nothing_of_it(
    url: str, made_by: tuple[str, str]
) -> None:
    rule = "guardrails: [{regex: '\\b3\\b|executing', on: [input]}]\n"
    provider = ScriptedProvider("fake", calls(made_by), says("It was not allowed."))
    async with running(provider, extra=tools(url) + rule) as gateway:
        response, frames = await streamed(gateway, tools=[SMALL])
    assert response["status"] == "completed"
    assert (response["output"][1]["status"], response["output"][1]["output"]) == ("failed", None)
    assert results(provider.requests[1]) == [("a guardrail refused the text", True)]
    assert b"executing" not in frames
