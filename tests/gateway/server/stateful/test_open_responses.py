"""The check list of the Open Responses specification, over HTTP: what its own suite asks, and every rule of objects and
events. The gateway speaks this dialect where run.yaml or the header says so."""

import json
from typing import Any

import pytest

from adapters.canonical.errors import UpstreamInternal
from adapters.canonical.events import (
    ChoiceFinished,
    ReasoningDelta,
    RefusalDelta,
    Started,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallFinished,
    ToolCallStarted,
    UsageReported,
)
from adapters.canonical.messages import Image, Reasoning, Refusal, Text, ToolCall, ToolResult
from adapters.canonical.request import EXPRESSIBLE_FIELDS
from adapters.canonical.stop_reason import StopReason
from adapters.canonical.usage import Usage
from providers.base import Batch, Capabilities
from providers.testing.scripted import ScriptedProvider
from tests.adapters.openai.responses.event_order import check_events, events_in
from tests.gateway.server.running import Running, running
from tests.gateway.server.stateful.open_responses import EVENTS, check_event, check_item, check_resource
from tests.gateway.server.stateful.responding import ONE_TRY, answers, body

pytestmark = pytest.mark.timeout(60)
DIALECT = "server: {dialect: open_responses}\n" + ONE_TRY
ALL = Capabilities(fields=EXPRESSIBLE_FIELDS, parts=frozenset((Text, Refusal, Reasoning, ToolCall, ToolResult, Image)))
WEATHER = {
    "type": "function",
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"location": {"type": "string"}}},
}
CALL: list[Batch] = [
    [Started()],
    [ReasoningDelta(0, 0, "the weather, "), ReasoningDelta(0, 0, "then")],
    [TextDelta(0, 1, "Let me see.")],
    [ToolCallStarted(0, 2, "call_1", "get_weather"), ToolArgumentsDelta(0, 2, '{"location": "Oslo"}')],
    [ToolCallFinished(0, 2), ChoiceFinished(0, StopReason.TOOL_CALLS), UsageReported(Usage(prompt_tokens=9))],
]


def provider(*scripts: Any) -> ScriptedProvider:
    return ScriptedProvider("fake", *scripts, capabilities=ALL)


async def whole(gateway: Running, **fields: Any) -> dict[str, Any]:
    async with gateway.post(body(**fields), "/v1/responses") as answer:
        assert answer.status == 200, await answer.text()
        assert answer.headers["content-type"] == "application/json"
        found: dict[str, Any] = await answer.json()
    check_resource(found)
    return found


async def streamed(gateway: Running, **fields: Any) -> list[dict[str, Any]]:
    async with gateway.post(body(stream=True, **fields), "/v1/responses") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        frames = await answer.read()
    assert frames.endswith(b"data: [DONE]\n\n")
    assert not [line for line in frames.splitlines() if line.startswith(b"id:")]
    events = events_in(frames)
    check_events(events)
    for event in events:
        check_event(event)
    return events


async def test_basic_response() -> None:
    async with running(provider(answers("Hello there")), extra=DIALECT) as gateway:
        found = await whole(gateway, input=[{"type": "message", "role": "user", "content": "Say hello."}])
    assert found["status"] == "completed"
    assert found["output"][0]["content"][0]["text"] == "Hello there"
    assert found["completed_at"] >= found["created_at"]


async def test_streaming_response() -> None:
    async with running(provider(answers("One", " two")), extra=DIALECT) as gateway:
        events = await streamed(gateway)
    assert [event["type"].removeprefix("response.") for event in events] == [
        *("created", "in_progress", "output_item.added", "content_part.added", "output_text.delta"),
        *("output_text.delta", "output_text.done", "content_part.done", "output_item.done", "completed"),
    ]


async def test_system_prompt() -> None:
    model = provider(answers("Ahoy"))
    said = [{"role": "system", "content": "You are a pirate."}, {"role": "user", "content": "Hello"}]
    async with running(model, extra=DIALECT) as gateway:
        await whole(gateway, input=said)
        await whole(gateway, instructions="You are a pirate.")
    assert [(request.messages or ())[0].role for request in model.requests] == ["system", "system"]


async def test_tool_calling() -> None:
    async with running(provider(CALL), extra=DIALECT) as gateway:
        found = await whole(gateway, tools=[WEATHER])
        events = await streamed(gateway, tools=[WEATHER])
    assert [item["type"] for item in found["output"]] == ["reasoning", "message", "function_call"]
    assert json.loads(found["output"][2]["arguments"]) == {"location": "Oslo"}
    assert "response.function_call_arguments.done" in [event["type"] for event in events]


async def test_image_input() -> None:
    model = provider(answers("A red dot"))
    image = {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}
    async with running(model, extra=DIALECT) as gateway:
        await whole(gateway, input=[{"role": "user", "content": [{"type": "input_text", "text": "What?"}, image]}])
    assert [type(part) for part in (model.requests[0].messages or ())[0].parts] == [Text, Image]


async def test_multi_turn_conversation() -> None:
    model = provider(answers("Your name is Alice."))
    async with running(model, extra=DIALECT) as gateway:
        said = [
            {"type": "message", "role": "user", "content": "My name is Alice."},
            {"type": "message", "role": "assistant", "content": "Hello Alice!"},
            {"type": "message", "role": "user", "content": "What is my name?"},
        ]
        first = await whole(gateway, input=said)
        played_back = [*said, *first["output"], {"role": "user", "content": "Sure?"}]
        await whole(gateway, input=played_back)
        followed = await whole(gateway, input="Sure?", previous_response_id=first["id"])
    assert followed["previous_response_id"] == first["id"]
    assert [len(request.messages or ()) for request in model.requests] == [3, 5, 5]


async def test_tool_results_go_back() -> None:
    model = provider(answers("It is sunny."))
    call = {"type": "function_call", "call_id": "call_1", "name": "get_weather", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "call_1", "output": "sunny"}
    async with running(model, extra=DIALECT) as gateway:
        found = await whole(gateway, input=[{"role": "user", "content": "?"}, call, result], tools=[WEATHER])
        path = f"{gateway.url}/v1/responses/{found['id']}/input_items"
        async with gateway.session.get(path) as answer:
            for item in (await answer.json())["data"]:
                check_item(item)


async def test_assistant_phase() -> None:
    model = provider(answers("Done."))
    said = [
        {"role": "user", "content": "Go."},
        {"role": "assistant", "content": "Looking.", "phase": "commentary"},
        {"role": "assistant", "content": "Found.", "phase": "final_answer"},
        {"role": "user", "content": "And?"},
    ]
    async with running(model, extra=DIALECT) as gateway:
        await whole(gateway, input=said)
    assert [message.phase for message in model.requests[0].messages or ()][1:3] == ["commentary", "final_answer"]


async def test_compaction() -> None:
    async with running(provider(answers("a summary")), extra=DIALECT) as gateway:
        async with gateway.post({"model": "fake/m", "input": "a long talk"}, "/v1/responses/compact") as answer:
            found = await answer.json()
        assert found["object"] == "response.compaction"
        for item in found["output"]:
            if item["type"] == "compaction":
                check_item(item)
        await whole(gateway, input=[*found["output"], {"role": "user", "content": "go on"}])
        async with gateway.post({"input": "x"}, "/v1/responses/compact") as answer:
            assert answer.status == 400


async def test_websocket() -> None:
    async with (
        running(provider(answers("Hi")), extra=DIALECT) as gateway,
        gateway.session.ws_connect(f"{gateway.url}/v1/responses") as socket,
    ):
        await socket.send_json({"type": "response.create", **body(store=False)})
        events: list[dict[str, Any]] = []
        while not events or events[-1]["type"] != "response.completed":
            events.append(await socket.receive_json(timeout=10))
            check_event(events[-1])
        check_events(events)
        chain = {"previous_response_id": events[-1]["response"]["id"]}
        await socket.send_json({"type": "response.create", **body(store=False, **chain)})
        while (event := await socket.receive_json(timeout=10))["type"] != "response.completed":
            check_event(event)
        await socket.send_json({"type": "response.create", **body(previous_response_id="resp_none")})
        error = await socket.receive_json(timeout=10)
    assert (error["type"], error["status"]) == ("error", 404)
    assert error["error"].keys() >= {"code", "message", "param"}


@pytest.mark.parametrize(
    ("script", "status"),
    [
        (answers("ok"), "completed"),
        ([[Started()], [TextDelta(0, 0, "cut")], [ChoiceFinished(0, StopReason.LENGTH)]], "incomplete"),
        ([[Started()], [TextDelta(0, 0, "bro")], UpstreamInternal("down")], "failed"),
        ([[Started()], [RefusalDelta(0, 0, "no")], [ChoiceFinished(0, StopReason.STOP)]], "completed"),
    ],
)
async def test_every_end_has_every_key_in_every_event(script: list[Any], status: str) -> None:
    async with running(provider(script), extra=DIALECT) as gateway:
        events = await streamed(gateway)
        assert events[-1]["response"]["status"] == status
        async with gateway.session.get(f"{gateway.url}/v1/responses/{events[-1]['response']['id']}") as answer:
            check_resource(await answer.json())


async def test_background_responses_have_every_key_from_the_queue_on() -> None:
    async with running(provider(answers("ok")), extra=DIALECT) as gateway:
        found = await whole(gateway, background=True)
        assert found["status"] in ("queued", "in_progress")
        async with gateway.session.get(f"{gateway.url}/v1/responses/{found['id']}?stream=true") as answer:
            events = events_in(await answer.read())
    for event in events:
        check_event(event)
    assert "response.queued" in [event["type"] for event in events]


async def test_reasoning_has_the_names_of_this_dialect_raw_and_summed_up() -> None:
    async with running(provider(CALL), extra=DIALECT) as gateway:
        raw = {event["type"] for event in await streamed(gateway, tools=[WEATHER])}
        summary = {event["type"] for event in await streamed(gateway, tools=[WEATHER], reasoning={"summary": "auto"})}
    assert {"response.reasoning.delta", "response.reasoning.done"} <= raw
    assert "response.reasoning_summary_text.done" in summary
    assert not {name for name in raw | summary if name not in EVENTS}


async def test_parameters_of_this_dialect_alone_are_taken_and_said_again() -> None:
    model = provider(answers("ok"))
    asked = {"presence_penalty": 0.5, "frequency_penalty": -0.5, "top_logprobs": 2, "safety_identifier": "s"}
    async with running(model, extra=DIALECT) as gateway:
        found = await whole(gateway, **asked)
    assert {name: found[name] for name in asked} == asked
    assert model.requests[0].sampling.presence_penalty == 0.5


async def test_an_error_before_a_response_is_an_object_with_its_own_fields() -> None:
    async with running(provider(answers("ok")), extra=DIALECT) as gateway:
        for fields, status in (({"model": "nope/x"}, 404), ({"input": 3}, 400), ({"previous_response_id": "r"}, 404)):
            async with gateway.post(body(**fields), "/v1/responses") as answer:
                assert answer.status == status
                assert (await answer.json())["error"].keys() >= {"message", "type", "code", "param"}
