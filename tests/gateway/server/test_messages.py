"""Anthropic's clients at the gateway's socket: the official SDK, its errors, token counts and the list of models."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anthropic
import orjson
import pytest
from anthropic.types import MessageParam, ToolParam

from adapters.canonical.errors import UpstreamAuth, UpstreamOverloaded, UpstreamRateLimited
from adapters.canonical.events import (
    ChoiceFinished,
    ReasoningDelta,
    ReasoningFinished,
    Started,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallStarted,
    UsageReported,
)
from adapters.canonical.messages import Reasoning, Text, ToolCall, ToolResult
from adapters.canonical.request import EXPRESSIBLE_FIELDS, Request
from adapters.canonical.stop_reason import StopReason
from adapters.canonical.usage import Usage
from adapters.origin_marks import marked
from providers.base import Batch, Capabilities, ModelEntry
from providers.testing.scripted import ScriptedProvider
from tests.gateway.server.running import FINISH, HELLO, Running, running, text

pytestmark = pytest.mark.timeout(20)
ONE_TRY = "reliability: {retry: {attempts: 1}}\n"
ALL = Capabilities(
    fields=EXPRESSIBLE_FIELDS, parts=frozenset((Text, Reasoning, ToolCall, ToolResult)), native_choices=True
)
USER: MessageParam = {"role": "user", "content": "hi"}
TOOL: ToolParam = {
    "name": "get_weather",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
}
USAGE = UsageReported(Usage(prompt_tokens=9, completion_tokens=5, cached_tokens=4))
TURN: list[Batch] = [
    [Started(id="up", request_id="up-req-1")],
    [ReasoningDelta(0, 0, "hm"), ReasoningFinished(0, 0, signature="SIG", origin="fake")],
    [TextDelta(0, 1, "Let me look."), ToolCallStarted(0, 2, "call_1", "get_weather")],
    [ToolArgumentsDelta(0, 2, '{"city":'), ToolArgumentsDelta(0, 2, '"Oslo"}')],
    [ChoiceFinished(0, StopReason.TOOL_CALLS, "tool_calls"), USAGE],
]


class Counting(ScriptedProvider):
    """Counts seven tokens, whatever it is asked."""

    async def count_tokens(self, request: Request) -> Sequence[int]:
        assert request.model == "m"
        assert request.max_tokens is None
        return (7,)


def body(model: str = "fake/m", **fields: Any) -> dict[str, Any]:
    return {"model": model, "max_tokens": 5, "messages": [USER], **fields}


@asynccontextmanager
async def client(gateway: Running, key: str = "any") -> AsyncIterator[anthropic.AsyncAnthropic]:
    async with anthropic.AsyncAnthropic(base_url=gateway.url, api_key=key, max_retries=0) as found:
        yield found


async def test_the_sdk_reads_the_same_message_streamed_and_whole() -> None:
    async with running(ScriptedProvider("fake", TURN)) as gateway, client(gateway) as sdk:
        whole = await sdk.messages.create(model="fake/m", max_tokens=64, messages=[USER], tools=[TOOL])
        async with sdk.messages.stream(model="fake/m", max_tokens=64, messages=[USER], tools=[TOOL]) as stream:
            streamed = await stream.get_final_message()
    for message in (whole, streamed):
        assert [block.to_dict() for block in message.content] == [
            {"type": "thinking", "thinking": "hm", "signature": marked("SIG", "fake")},
            {"type": "text", "text": "Let me look."},
            {"type": "tool_use", "id": "call_1", "name": "get_weather", "input": {"city": "Oslo"}},
        ]
        assert message.stop_reason == "tool_use"
        assert message.usage.input_tokens == 5
        assert message.usage.cache_read_input_tokens == 4
        assert message.usage.output_tokens == 5
        assert message.id.startswith("msg_")
        assert message.model == "fake/m"
    assert (whole._request_id or "").startswith("req_")


async def test_a_turn_that_the_sdk_plays_back_reaches_the_provider_as_it_was() -> None:
    provider = ScriptedProvider("fake", TURN, HELLO, capabilities=ALL)
    async with running(provider) as gateway, client(gateway) as sdk:
        first = await sdk.messages.create(model="fake/m", max_tokens=64, messages=[USER], tools=[TOOL])
        result: MessageParam = {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "call_1", "content": "15 C"}],
        }
        await sdk.messages.create(
            model="fake/m", max_tokens=64, messages=[USER, first.to_param(), result], tools=[TOOL], system="Be kind."
        )
    asked = provider.requests[1].messages
    assert asked is not None
    assert [message.role for message in asked] == ["system", "user", "assistant", "tool"]
    assert asked[2].parts == (
        Reasoning(text="hm", signature="SIG", origin="fake"),
        Text(text="Let me look."),
        ToolCall(id="call_1", name="get_weather", arguments='{"city":"Oslo"}'),
    )
    assert asked[3].parts == (ToolResult(call_id="call_1", parts=(Text(text="15 C"),)),)


async def test_the_clients_betas_travel_with_its_request_and_no_other_header_does() -> None:
    provider = ScriptedProvider("fake", HELLO)
    async with running(provider) as gateway:
        for betas in ("one,two", "x" * 3000, "gr\u00fc\u00dfe"):
            headers = {"anthropic-beta": betas, "x-secret": "s"}
            async with gateway.post(body(), "/v1/messages", headers=headers) as answer:
                assert answer.status == 200
        chat = {"model": "fake/m", "messages": [USER]}
        async with gateway.post(chat, headers={"anthropic-beta": "one,two"}) as answer:
            assert answer.status == 200
    assert [asked.headers for asked in provider.requests] == [{"anthropic-beta": "one,two"}, {}, {}, {}]


async def test_a_stream_ends_without_openais_mark() -> None:
    async with (
        running(ScriptedProvider("fake", HELLO)) as gateway,
        gateway.post(body(stream=True), "/v1/messages") as answer,
    ):
        frames = await answer.text()
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["request-id"] == answer.headers["x-request-id"]
    assert "[DONE]" not in frames
    assert frames.endswith('event: message_stop\ndata: {"type":"message_stop"}\n\n')


async def test_silence_brings_pings_that_the_sdk_passes_over() -> None:
    go = asyncio.Event()
    provider = ScriptedProvider("fake", [text("a"), go, [*text("b"), *FINISH]])
    async with (
        running(provider, extra="server: {keepalive_s: 0.02}\n") as gateway,
        gateway.post(body(stream=True), "/v1/messages") as answer,
    ):
        while not (await answer.content.readuntil(b"\n\n")).startswith(b"event: ping\n"):
            pass
        go.set()
        assert b'"text":"b"' in await answer.read()


@pytest.mark.parametrize(
    ("error", "kind", "word"),
    [
        (UpstreamRateLimited("slow", retry_after_s=2), anthropic.RateLimitError, "rate_limit_error"),
        (UpstreamOverloaded("busy"), anthropic.InternalServerError, "overloaded_error"),
        (UpstreamAuth("no"), anthropic.InternalServerError, "api_error"),
    ],
)
async def test_an_error_before_the_answer_is_the_sdks_error(
    error: Exception, kind: type[anthropic.APIStatusError], word: str
) -> None:
    async with running(ScriptedProvider("fake", [error]), extra=ONE_TRY) as gateway, client(gateway) as sdk:
        with pytest.raises(kind) as caught:
            await sdk.messages.create(model="fake/m", max_tokens=5, messages=[USER])
    assert isinstance(caught.value.body, dict)
    assert caught.value.body["error"]["type"] == word
    assert (caught.value.request_id or "").startswith("req_")


async def test_an_error_inside_a_stream_is_the_sdks_error() -> None:
    provider = ScriptedProvider("fake", [text("par"), UpstreamOverloaded("busy")])
    async with running(provider, extra=ONE_TRY) as gateway, client(gateway) as sdk:
        stream = await sdk.messages.create(model="fake/m", max_tokens=5, messages=[USER], stream=True)
        with pytest.raises(anthropic.APIStatusError, match="busy"):
            _ = [event async for event in stream]


@pytest.mark.parametrize(
    ("path", "data", "headers", "status", "word"),
    [
        ("/v1/messages", b"{", {}, 400, "invalid_request_error"),
        ("/v1/messages", b"{}", {"content-type": "text/plain"}, 415, "invalid_request_error"),
        ("/v1/messages", orjson.dumps(body("nowhere")), {}, 404, "not_found_error"),
        ("/v1/messages", orjson.dumps(body()), {"origin": "https://a.example"}, 403, "permission_error"),
        ("/v1/messages/count_tokens", b"{", {}, 400, "invalid_request_error"),
        ("/v1/messages/batches", b"{}", {"anthropic-version": "2023-06-01"}, 404, "not_found_error"),
    ],
)
async def test_every_error_on_these_paths_has_anthropics_form(
    path: str, data: bytes, headers: dict[str, str], status: int, word: str
) -> None:
    async with running(ScriptedProvider("fake", HELLO)) as gateway:
        sent = {"content-type": "application/json", **headers}
        async with gateway.session.post(gateway.url + path, data=data, headers=sent) as answer:
            found = await answer.json()
            assert (answer.status, answer.headers["request-id"][:4]) == (status, "req_")
    assert found["type"] == "error"
    assert found["error"]["type"] == word


async def test_a_missing_key_is_told_in_anthropics_form() -> None:
    keys = "auth: {keys: [{id: a, secret: right}]}\n"
    async with running(ScriptedProvider("fake", HELLO), extra=keys) as gateway:
        async with client(gateway, "wrong") as sdk:
            with pytest.raises(anthropic.AuthenticationError):
                await sdk.messages.create(model="fake/m", max_tokens=5, messages=[USER])
        async with client(gateway, "right") as sdk:
            message = await sdk.messages.create(model="fake/m", max_tokens=5, messages=[USER])
            assert message.content[0].to_dict() == {"type": "text", "text": "Hello there"}


async def test_tokens_are_counted_by_the_first_target_that_can() -> None:
    able, unable = Counting("able", HELLO), ScriptedProvider("unable", HELLO)
    alias = "models: {both: {targets: [unable/m, able/m]}, none: unable/m}\n"
    async with running(able, unable, extra=alias) as gateway, client(gateway) as sdk:
        counted = await sdk.messages.count_tokens(model="both", messages=[USER], system="s", tools=[TOOL])
        assert counted.input_tokens == 7
        with pytest.raises(anthropic.BadRequestError) as caught:
            await sdk.messages.count_tokens(model="none", messages=[USER])
        assert isinstance(caught.value.body, dict)
        assert caught.value.body["error"]["param"] == "model"
        assert "count tokens" in caught.value.message
    assert able.requests == []


async def test_a_key_counts_tokens_only_for_its_own_models() -> None:
    keys = "auth: {keys: [{id: a, secret: right, models: ['other/*']}]}\n"
    async with running(Counting("fake", HELLO), extra=keys) as gateway, client(gateway, "right") as sdk:
        with pytest.raises(anthropic.PermissionDeniedError):
            await sdk.messages.count_tokens(model="fake/m", messages=[USER])


async def test_the_system_prompt_of_a_name_is_counted() -> None:
    seen: list[Request] = []

    class Seeing(Counting):
        async def count_tokens(self, request: Request) -> Sequence[int]:
            seen.append(request)
            return (7,)

    extra = "models: {brief: {targets: [fake/m], defaults: {system: Be brief.}}}\n"
    async with running(Seeing("fake", HELLO), extra=extra) as gateway:
        asked = {"model": "brief", "messages": [USER]}
        async with gateway.post(asked, "/v1/messages/count_tokens") as answer:
            assert answer.status == 200
    (request,) = seen
    assert [message.role for message in request.messages or ()] == ["system", "user"]


async def test_the_sdk_lists_the_models_and_openais_clients_see_their_own_form() -> None:
    provider = ScriptedProvider("fake", HELLO, models=[ModelEntry(id="m", created=1790000000, context=8192)])
    async with running(provider, extra="models: {fast: fake/m}\n") as gateway:
        async with client(gateway) as sdk:
            listed = [model async for model in sdk.models.list()]
            assert [model.id for model in listed] == ["fast", "fake/m"]
            one = await sdk.models.retrieve("fast")
            assert one.id == "fast"
            with pytest.raises(anthropic.NotFoundError):
                await sdk.models.retrieve("nothing")
        async with gateway.session.get(gateway.url + "/v1/models") as answer:
            assert (await answer.json())["object"] == "list"
            assert "request-id" not in answer.headers


async def test_tool_runners_of_the_sdk_send_whole_conversations_since_no_one_keeps_them_here() -> None:
    """They ask the server to keep the conversation first, as a thread, and go on without one where it can't."""

    @anthropic.beta_async_tool
    async def get_weather(city: str) -> str:
        """The weather."""
        return f"rain in {city}"

    provider = ScriptedProvider("fake", TURN, HELLO, capabilities=ALL)
    async with running(provider) as gateway, client(gateway) as sdk:
        runner = sdk.beta.messages.tool_runner(
            model="fake/m", max_tokens=64, messages=[{"role": "user", "content": "hi"}], tools=[get_weather]
        )
        last = await runner.until_done()
    assert [block.type for block in last.content] == ["text"]
    messages = provider.requests[-1].messages
    assert messages is not None
    assert [message.role for message in messages] == ["user", "assistant", "tool"]
