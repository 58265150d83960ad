"""The Responses API at the gateway's socket: the official SDK, both dialects, keys, and what needs a store."""

import asyncio
import json
from typing import Any

import openai
import pytest
from openai.types.responses import Response
from pydantic import BaseModel

from adapters.canonical.errors import UpstreamInternal, UpstreamRateLimited
from adapters.canonical.events import (
    ChoiceFinished,
    ReasoningDelta,
    ReasoningFinished,
    Started,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallFinished,
    ToolCallStarted,
    UsageReported,
)
from adapters.canonical.messages import Message, Opaque, Reasoning, Text, ToolCall, ToolResult
from adapters.canonical.request import EXPRESSIBLE_FIELDS
from adapters.canonical.stop_reason import StopReason
from adapters.canonical.usage import TokenLogprob, Usage
from gateway.client import AsyncGateway
from providers.base import Batch, Capabilities
from providers.testing.scripted import ScriptedProvider
from tests.adapters.openai.responses.event_order import check_events, checked, events_in
from tests.gateway.server.running import HELLO, Running, error_of, running, text
from tests.gateway.server.stateful.responding import KEYS, ONE_TRY, answers, body, client

pytestmark = pytest.mark.timeout(30)
SEAL = "responses: {seal_key: {id: k1, secret: top}}\n"
ALL = Capabilities(
    fields=EXPRESSIBLE_FIELDS,
    parts=frozenset((Text, Reasoning, ToolCall, ToolResult)),
    tool_kinds=frozenset(("function", "custom")),
)
TOOL: Any = {
    "type": "function",
    "name": "get_weather",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "strict": True,
}
SIGNED = ReasoningFinished(0, 0, signature="SIG", origin="fake")
TURN: list[Batch] = [
    [Started(id="up", request_id="up-req-1")],
    [ReasoningDelta(0, 0, "hm"), SIGNED],
    [TextDelta(0, 1, "Let me"), TextDelta(0, 1, " look.")],
    [ToolCallStarted(0, 2, "call_1", "get_weather"), ToolArgumentsDelta(0, 2, '{"city":')],
    [ToolArgumentsDelta(0, 2, '"Oslo"}'), ToolCallFinished(0, 2)],
    [ChoiceFinished(0, StopReason.TOOL_CALLS), UsageReported(Usage(prompt_tokens=9, completion_tokens=5))],
]
CUT: list[Batch] = [[TextDelta(0, 0, "word"), ChoiceFinished(0, StopReason.LENGTH)]]


class Weather(BaseModel):
    city: str
    degrees: int


async def streamed(gateway: Running, headers: dict[str, str] | None = None, **fields: Any) -> bytes:
    async with gateway.post(body(stream=True, **fields), "/v1/responses", headers=headers or {}) as answer:
        assert answer.status == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        return await answer.read()


async def test_the_sdk_reads_the_same_response_streamed_and_whole() -> None:
    async with running(ScriptedProvider("fake", TURN, capabilities=ALL)) as gateway, client(gateway) as sdk:
        whole = await sdk.responses.create(model="fake/m", input="hi", tools=[TOOL])
        async with sdk.responses.stream(model="fake/m", input="hi", tools=[TOOL]) as stream:
            final = await stream.get_final_response()
    for response in (whole, final):
        assert [item.type for item in response.output] == ["reasoning", "message", "function_call"]
        assert response.output_text == "Let me look."
        call = response.output[2]
        assert call.type == "function_call"
        assert (call.call_id, call.name, call.arguments) == ("call_1", "get_weather", '{"city":"Oslo"}')
        assert (response.status, response.model, response.to_dict()["store"]) == ("completed", "fake/m", True)
        assert response.usage is not None
        assert response.usage.total_tokens == 14
    assert whole.id != final.id


async def test_the_sdks_events_arrive_in_order_and_hold_running_snapshots() -> None:
    async with (
        running(ScriptedProvider("fake", TURN, capabilities=ALL)) as gateway,
        client(gateway) as sdk,
        sdk.responses.stream(model="fake/m", input="hi") as stream,
    ):
        events = [event async for event in stream]
    snapshots = [event.snapshot for event in events if event.type == "response.output_text.delta"]
    assert snapshots == ["Let me", "Let me look."]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert (events[0].type, events[-1].type) == ("response.created", "response.completed")


async def test_parse_gives_an_object_of_the_clients_own_type() -> None:
    script = answers('{"city":"Os', 'lo","degrees":15}')
    async with running(ScriptedProvider("fake", script)) as gateway, client(gateway) as sdk:
        parsed = await sdk.responses.parse(model="fake/m", input="hi", text_format=Weather)
        async with sdk.responses.stream(model="fake/m", input="hi", text_format=Weather) as stream:
            final = await stream.get_final_response()
    assert parsed.output_parsed == Weather(city="Oslo", degrees=15)
    assert final.output_parsed == Weather(city="Oslo", degrees=15)


async def test_the_synchronous_sdk_works_as_well() -> None:
    async with running(ScriptedProvider("fake", TURN, capabilities=ALL)) as gateway:

        def ask() -> tuple[Response, list[str]]:
            with openai.OpenAI(base_url=gateway.url + "/v1", api_key="any", max_retries=0) as sdk:
                whole = sdk.responses.create(model="fake/m", input="hi")
                with sdk.responses.stream(model="fake/m", input="hi") as stream:
                    return whole, [event.type for event in stream]

        whole, types = await asyncio.to_thread(ask)
    assert whole.output_text == "Let me look."
    assert types[-1] == "response.completed"


async def test_the_gateways_own_client_has_it_too() -> None:
    async with running(ScriptedProvider("fake", HELLO)) as gateway, AsyncGateway(base_url=gateway.url + "/v1") as sdk:
        found = await sdk.responses.create(model="fake/m", input="hi")
    assert found.output_text == "Hello there"


async def test_46_a_stream_that_is_cut_has_no_completed_response() -> None:
    async with running(ScriptedProvider("fake", CUT)) as gateway, client(gateway) as sdk:
        async with sdk.responses.stream(model="fake/m", input="hi", max_output_tokens=16) as stream:
            with pytest.raises(RuntimeError, match=r"response\.completed"):
                await stream.get_final_response()
        whole = await sdk.responses.create(model="fake/m", input="hi", max_output_tokens=16)
    assert (whole.status, whole.incomplete_details and whole.incomplete_details.reason) == (
        "incomplete",
        "max_output_tokens",
    )


async def test_51_a_fault_inside_a_stream_is_a_failed_response_and_one_before_it_a_status() -> None:
    broken = ScriptedProvider("fake", [text("par"), UpstreamInternal("broken", code="oops")])
    async with running(broken, extra=ONE_TRY) as gateway, client(gateway) as sdk:
        found = checked(await streamed(gateway))
        assert (found["status"], found["error"]["code"]) == ("failed", "server_error")
        assert (found["error"]["message"], found["error"]["type"]) == ("broken", "oops")
        broken.play([UpstreamRateLimited("slow", retry_after_s=3)])
        with pytest.raises(openai.RateLimitError) as caught:
            await sdk.responses.create(model="fake/m", input="hi", stream=True)
        assert caught.value.response.headers["retry-after"] == "3"


async def test_a_turn_goes_on_statelessly_with_sealed_reasoning() -> None:
    provider = ScriptedProvider("fake", TURN, answers("15 degrees"), capabilities=ALL)
    async with running(provider, extra=SEAL) as gateway, client(gateway) as sdk:
        asked: Any = {"model": "fake/m", "include": ["reasoning.encrypted_content"], "store": False, "tools": [TOOL]}
        first = await sdk.responses.create(input="hi", **asked)
        reasoning = first.output[0]
        assert reasoning.type == "reasoning"
        assert (reasoning.encrypted_content or "").startswith("gws1.k1.")
        items: list[Any] = [{"role": "user", "content": "hi"}, *[item.to_dict() for item in first.output]]
        items.append({"type": "function_call_output", "call_id": "call_1", "output": "15"})
        second = await sdk.responses.create(input=items, **asked)
    assert second.output_text == "15 degrees"
    assert provider.requests[1].messages == (
        Message(role="user", parts=(Text(text="hi"),)),
        Message(
            role="assistant",
            parts=(
                Reasoning(text="hm", signature="SIG", origin="fake"),
                Text(text="Let me look."),
                ToolCall(id="call_1", name="get_weather", arguments='{"city":"Oslo"}'),
            ),
        ),
        Message(role="tool", parts=(ToolResult(call_id="call_1", parts=(Text(text="15"),)),)),
    )


async def test_what_was_sealed_for_one_key_opens_for_no_other() -> None:
    ann, bob = {"authorization": "Bearer s-ann"}, {"authorization": "Bearer s-bob"}
    async with running(ScriptedProvider("fake", TURN, capabilities=ALL), extra=KEYS) as gateway:
        wanted = body(include=["reasoning.encrypted_content"])
        async with gateway.post(wanted, "/v1/responses", headers=ann) as answer:
            output = (await answer.json())["output"]
        for headers, status in ((ann, 200), (bob, 400)):
            async with gateway.post(body(input=output), "/v1/responses", headers=headers) as answer:
                assert answer.status == status
        error = await _refused(gateway, body(input=output), bob)
        assert (error["param"], error["code"]) == ("input[0].encrypted_content", "invalid_encrypted_content")


async def _refused(gateway: Running, asked: dict[str, Any], headers: dict[str, str]) -> dict[str, object]:
    async with gateway.post(asked, "/v1/responses", headers=headers) as answer:
        assert answer.status == 400
        return await error_of(answer)


async def test_a_blob_that_the_gateway_did_not_seal_is_refused_where_nobody_can_read_it() -> None:
    foreign = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAA"}
    asked = body(input=[{"role": "user", "content": "hi"}, foreign])
    async with running(ScriptedProvider("fake", HELLO, capabilities=ALL)) as gateway:
        assert (await _refused(gateway, asked, {}))["param"] == "input[1]"
    native = Capabilities(
        fields=EXPRESSIBLE_FIELDS, parts=frozenset((Text, Opaque)), forwards=frozenset(("openai.responses",))
    )
    provider = ScriptedProvider("fake", HELLO, capabilities=native)
    async with running(provider) as gateway, gateway.post(asked, "/v1/responses") as answer:
        assert answer.status == 200
        (message,) = (provider.requests[0].messages or ())[1:]
        assert json.loads(message.parts[0].raw) == foreign  # type: ignore[union-attr]


async def test_items_that_a_target_lacks_are_dropped_and_listed_where_the_file_says_so() -> None:
    asked = body(input=[{"role": "user", "content": "hi"}, {"type": "computer_call", "call_id": "c"}])
    async with (
        running(ScriptedProvider("fake", HELLO), extra="server: {unsupported_params: drop}\n") as gateway,
        gateway.post(asked, "/v1/responses") as answer,
    ):
        assert answer.status == 200
        assert answer.headers["x-gateway-dropped-params"] == "input[1]"


async def test_a_response_says_whether_it_is_kept() -> None:
    async with running(ScriptedProvider("fake", HELLO)) as gateway, client(gateway) as sdk:
        for store in (True, False, None):
            found = await sdk.responses.create(model="fake/m", input="hi", store=store)
            assert found.to_dict()["store"] is (store is not False)


async def test_the_dialect_is_that_of_the_header_or_of_the_file() -> None:
    thought: list[Batch] = [[ReasoningDelta(0, 0, "hm")], *answers("a")[1:]]
    thought[1] = [TextDelta(0, 1, "a")]
    theirs, ours = {"x-gateway-dialect": "open_responses"}, {"x-gateway-dialect": "openai"}
    for extra, headers, event in (
        ("", {}, "response.reasoning_text.delta"),
        ("", theirs, "response.reasoning.delta"),
        ("server: {dialect: open_responses}\n", {}, "response.reasoning.delta"),
        ("server: {dialect: open_responses}\n", ours, "response.reasoning_text.delta"),
    ):
        async with running(ScriptedProvider("fake", thought, capabilities=ALL), extra=extra) as gateway:
            events = events_in(await streamed(gateway, headers))
            check_events(events)
            assert event in [found["type"] for found in events]
            assert (await _refused(gateway, body(), {"x-gateway-dialect": "x"}))["param"] == "x-gateway-dialect"


async def test_logprobs_arrive_with_the_text_that_they_belong_to() -> None:
    token = TokenLogprob("Oslo", -0.1, raw=b"Oslo")
    script: list[Batch] = [[TextDelta(0, 0, "Oslo", (token,))], [ChoiceFinished(0, StopReason.STOP)]]
    async with running(ScriptedProvider("fake", script)) as gateway, client(gateway) as sdk:
        found = await sdk.responses.create(
            model="fake/m", input="hi", include=["message.output_text.logprobs"], top_logprobs=2
        )
    message = found.output[0]
    assert message.type == "message"
    part = message.content[0]
    assert part.type == "output_text"
    assert part.logprobs is not None
    assert (part.logprobs[0].token, part.logprobs[0].bytes) == ("Oslo", list(b"Oslo"))


async def test_41_a_client_that_leaves_stops_the_provider() -> None:
    hang = asyncio.Event()
    provider = ScriptedProvider("fake", [text("a"), hang, text("b")])
    async with running(provider) as gateway:
        async with gateway.post(body(stream=True), "/v1/responses") as answer:
            await answer.content.readany()
            await provider.waiting.wait()
        async with asyncio.timeout(1):
            while provider.open_streams:  # noqa: ASYNC110  # what is watched belongs to the code under test
                await asyncio.sleep(0)


async def test_a_model_that_does_not_exist_is_a_404_and_bad_json_a_400() -> None:
    async with running(ScriptedProvider("fake", HELLO)) as gateway:
        async with gateway.post(body(model="nowhere"), "/v1/responses") as answer:
            assert answer.status == 404
            assert (await error_of(answer))["param"] == "model"
        async with gateway.session.post(
            gateway.url + "/v1/responses", data=b"{", headers={"content-type": "application/json"}
        ) as answer:
            assert answer.status == 400
