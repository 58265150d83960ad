"""Gemini's clients at the gateway's socket: the official SDK, its paths, keys, errors, counts and lists of models."""

import asyncio
import base64
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest
from google import genai
from google.genai import errors, types

from adapters.canonical.errors import UpstreamAuth, UpstreamOverloaded, UpstreamRateLimited
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
from adapters.canonical.messages import Reasoning, Text, ToolCall, ToolResult
from adapters.canonical.request import EXPRESSIBLE_FIELDS, Request
from adapters.canonical.stop_reason import StopReason
from adapters.canonical.usage import Usage
from adapters.gemini.signatures import Place, placed_at
from adapters.origin_marks import marked
from providers.base import Batch, Capabilities, ModelEntry
from providers.testing.scripted import ScriptedProvider
from tests.gateway.server.running import FINISH, HELLO, Running, running, text

pytestmark = [
    pytest.mark.timeout(30),
    pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning"),  # the SDK's own
]
ONE_TRY = "reliability: {retry: {attempts: 1}}\n"
ALL = Capabilities(
    fields=EXPRESSIBLE_FIELDS, parts=frozenset((Text, Reasoning, ToolCall, ToolResult)), native_choices=True
)
USAGE = UsageReported(Usage(prompt_tokens=9, completion_tokens=5, cached_tokens=4, reasoning_tokens=2))
TURN: list[Batch] = [
    [Started(id="up", request_id="up-req-1")],
    [ReasoningDelta(0, 0, "hm")],
    [TextDelta(0, 1, "Let me "), TextDelta(0, 1, "look.")],
    [ReasoningFinished(0, 2, "U0lH", None, "fake", placed_at(Place.NEXT)), ToolCallStarted(0, 3, "c1", "get_weather")],
    [ToolArgumentsDelta(0, 3, '{"city":'), ToolArgumentsDelta(0, 3, '"Oslo"}'), ToolCallFinished(0, 3)],
    [ToolCallStarted(0, 4, "c2", "get_weather"), ToolArgumentsDelta(0, 4, "{}"), ToolCallFinished(0, 4)],
    [ChoiceFinished(0, StopReason.TOOL_CALLS, "STOP"), USAGE],
]
TOOLS = [
    types.Tool(
        function_declarations=[
            types.FunctionDeclaration(
                name="get_weather",
                parameters=types.Schema(
                    type=types.Type.OBJECT, properties={"city": types.Schema(type=types.Type.STRING, nullable=True)}
                ),
            )
        ]
    )
]
CONFIG = types.GenerateContentConfig(
    tools=list(TOOLS), automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True)
)
PATH = "/v1beta/models/fake/m:"


class Counting(ScriptedProvider):
    """Counts seven tokens, whatever it is asked."""

    async def count_tokens(self, request: Request) -> Sequence[int]:
        assert request.model == "m"
        return (7,)


def body(**fields: Any) -> dict[str, Any]:
    return {"contents": [{"role": "user", "parts": [{"text": "hi"}]}], **fields}


@asynccontextmanager
async def client(
    gateway: Running, key: str = "any", *, vertex: bool = False, **options: Any
) -> AsyncIterator[genai.client.AsyncClient]:
    http = types.HttpOptions(base_url=gateway.url, **options)
    found = genai.Client(api_key=key, http_options=http, vertexai=vertex)
    try:
        yield found.aio
    finally:
        await found.aio.aclose()
        found.close()


def joined(chunks: list[types.GenerateContentResponse]) -> list[dict[str, Any]]:
    """The parts of a stream, texts of one kind joined."""
    found: list[dict[str, Any]] = []
    for chunk in chunks:
        for part in plain(chunk):
            last = found[-1] if found else {}
            if "text" in part and "text" in last and part.get("thought") == last.get("thought"):
                last["text"] += part["text"]
            elif part != {"text": ""}:
                found.append(part)
    return found


def plain(response: types.GenerateContentResponse) -> list[dict[str, Any]]:
    assert response.candidates
    content = response.candidates[0].content
    return [part.model_dump(exclude_none=True) for part in (content.parts if content and content.parts else ())]


async def test_the_sdk_reads_the_same_answer_streamed_and_whole() -> None:
    async with running(ScriptedProvider("fake", TURN)) as gateway, client(gateway) as sdk:
        whole = await sdk.models.generate_content(model="fake/m", contents="hi", config=CONFIG)
        stream = await sdk.models.generate_content_stream(model="fake/m", contents="hi", config=CONFIG)
        chunks = [chunk async for chunk in stream]
    assert plain(whole) == joined(chunks)
    assert plain(whole) == [
        {"text": "hm", "thought": True},
        {"text": "Let me look."},
        {
            "function_call": {"id": "c1", "name": "get_weather", "args": {"city": "Oslo"}},
            "thought_signature": base64.b64decode(marked("U0lH", "fake")),
        },
        {"function_call": {"id": "c2", "name": "get_weather", "args": {}}},
    ]
    for response in (whole, chunks[-1]):
        assert response.candidates
        assert response.candidates[0].finish_reason is types.FinishReason.STOP
        assert response.model_version == "fake/m"
        usage = response.usage_metadata
        assert usage is not None
        counted = (usage.prompt_token_count, usage.candidates_token_count, usage.thoughts_token_count)
        assert counted == (9, 3, 2)
        assert (usage.cached_content_token_count, usage.total_token_count) == (4, 14)


async def test_a_turn_that_the_sdk_plays_back_reaches_the_provider_as_it_was() -> None:
    provider = ScriptedProvider("fake", TURN, HELLO, capabilities=ALL)
    async with running(provider) as gateway, client(gateway) as sdk:
        first = await sdk.models.generate_content(model="fake/m", contents="hi", config=CONFIG)
        assert first.candidates
        assert first.candidates[0].content is not None
        results = [
            types.Part(function_response=types.FunctionResponse(id=i, name="get_weather", response={"output": i}))
            for i in ("c1", "c2")
        ]
        turns = [
            types.Content(role="user", parts=[types.Part(text="hi")]),
            first.candidates[0].content,
            types.Content(role="user", parts=results),
        ]
        config = CONFIG.model_copy(update={"system_instruction": "Be kind."})
        await sdk.models.generate_content(model="fake/m", contents=turns, config=config)
    asked = provider.requests[1]
    assert asked.messages is not None
    assert [message.role for message in asked.messages] == ["system", "user", "assistant", "tool", "tool"]
    thought, said, signature, called, _ = asked.messages[2].parts
    assert (thought, said) == (Reasoning(text="hm"), Text(text="Let me look."))
    assert isinstance(signature, Reasoning)
    assert signature.signature == "U0lH"
    assert called == ToolCall(id="c1", name="get_weather", arguments='{"city":"Oslo"}') or isinstance(called, ToolCall)
    answered = [part for message in asked.messages[3:] for part in message.parts if isinstance(part, ToolResult)]
    assert [(part.call_id, part.parts) for part in answered] == [
        ("c1", (Text(text="c1"),)),
        ("c2", (Text(text="c2"),)),
    ]
    assert asked.tools is not None
    assert orjson.loads(asked.tools[0].parameters or b"") == {
        "type": "object",
        "properties": {"city": {"type": ["string", "null"]}},
    }


async def test_a_stream_without_sse_is_one_array() -> None:
    async with (
        running(ScriptedProvider("fake", HELLO)) as gateway,
        gateway.post(body(), PATH + "streamGenerateContent") as answer,
    ):
        chunks = await answer.json()
    assert answer.headers["content-type"].startswith("application/json")
    texts = [chunk["candidates"][0]["content"]["parts"][0]["text"] for chunk in chunks]
    assert "".join(texts) == "Hello there"
    assert chunks[-1]["usageMetadata"]["totalTokenCount"] == 5


async def test_server_sent_events_end_without_openais_mark() -> None:
    async with (
        running(ScriptedProvider("fake", HELLO)) as gateway,
        gateway.post(body(), PATH + "streamGenerateContent?alt=sse&key=x") as answer,
    ):
        frames = await answer.text()
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert "[DONE]" not in frames
    assert frames.count("data: ") == 3


@pytest.mark.parametrize(("query", "silence"), [("?alt=sse", b": keepalive\n\n"), ("", b"\n")])
async def test_silence_is_broken_by_what_clients_pass_over(query: str, silence: bytes) -> None:
    go = asyncio.Event()
    provider = ScriptedProvider("fake", [text("a"), go, [*text("b"), *FINISH]])
    async with (
        running(provider, extra="server: {keepalive_s: 0.02}\n") as gateway,
        gateway.post(body(), PATH + "streamGenerateContent" + query) as answer,
    ):
        seen = b""
        while not seen.endswith(silence):
            seen += await answer.content.readany()
        go.set()
        seen += await answer.read()
    if not query:
        assert len(orjson.loads(seen)) == 3


@pytest.mark.parametrize(
    "path",
    [
        "/v1beta/models/fake/m:generateContent",
        "/v1/models/fake/m:generateContent",
        "/v1beta/models/fake%2Fm:generateContent",
        "/v1beta/models/fake/m%3Agenerate:generateContent",
        "/v1beta/models/fake/a:b:generateContent?alt=json",
    ],
)
async def test_the_path_names_the_model(path: str) -> None:
    provider = ScriptedProvider("fake", HELLO)
    async with running(provider) as gateway, gateway.post(body(model="models/other"), path) as answer:
        assert answer.status == 200
        found = await answer.json()
    model = path.partition("/models/")[2].rpartition(":")[0].replace("%2F", "/").replace("%3A", ":")
    assert found["modelVersion"] == model
    assert [asked.model for asked in provider.requests] == [model.partition("/")[2]]


async def test_the_sdk_speaks_as_to_vertex_ai_too() -> None:
    provider = ScriptedProvider("fake", HELLO)
    async with running(provider) as gateway, client(gateway, vertex=True) as sdk:
        await answered(sdk, stream=False)
        await answered(sdk, stream=True)
        path = "/v1beta1/projects/p/locations/l/publishers/fake/models/m:generateContent"
        async with gateway.post(body(), path) as answer:
            assert answer.status == 200
    assert [asked.model for asked in provider.requests] == ["m"] * 3


async def answered(sdk: genai.client.AsyncClient, *, stream: bool) -> None:
    if stream:
        _ = [chunk async for chunk in await sdk.models.generate_content_stream(model="fake/m", contents="hi")]
    else:
        await sdk.models.generate_content(model="fake/m", contents="hi")


@pytest.mark.parametrize(
    ("error", "kind", "code", "word"),
    [
        (UpstreamRateLimited("slow", retry_after_s=2), errors.ClientError, 429, "RESOURCE_EXHAUSTED"),
        (UpstreamOverloaded("busy"), errors.ServerError, 503, "UNAVAILABLE"),
        (UpstreamAuth("no"), errors.ServerError, 502, "UNAVAILABLE"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_an_error_before_the_answer_is_the_sdks_error(
    error: Exception, kind: type[errors.APIError], code: int, word: str, stream: bool
) -> None:
    async with running(ScriptedProvider("fake", [error]), extra=ONE_TRY) as gateway, client(gateway) as sdk:
        with pytest.raises(kind) as caught:
            await answered(sdk, stream=stream)
    assert (caught.value.code, caught.value.status) == (code, word)


async def test_an_error_inside_a_stream_is_the_sdks_error() -> None:
    provider = ScriptedProvider("fake", [text("par"), UpstreamOverloaded("busy")])
    async with running(provider, extra=ONE_TRY) as gateway, client(gateway) as sdk:
        stream = await sdk.models.generate_content_stream(model="fake/m", contents="hi")
        with pytest.raises(errors.ServerError, match="busy"):
            _ = [chunk async for chunk in stream]


@pytest.mark.parametrize(
    ("path", "data", "headers", "status", "word"),
    [
        (PATH + "generateContent", b"{", {}, 400, "INVALID_ARGUMENT"),
        (PATH + "generateContent", b"{}", {"content-type": "text/plain"}, 415, "INVALID_ARGUMENT"),
        ("/v1beta/models/nowhere:generateContent", orjson.dumps(body()), {}, 404, "NOT_FOUND"),
        (PATH + "generateContent", orjson.dumps(body()), {"origin": "https://a.example"}, 403, "PERMISSION_DENIED"),
        (PATH + "countTokens", b"{", {}, 400, "INVALID_ARGUMENT"),
        (PATH + "predictLongRunning", b"{}", {}, 405, "UNIMPLEMENTED"),
        (PATH + "embedContent", b"{}", {}, 400, "INVALID_ARGUMENT"),
        ("/v1beta/cachedContents", b"{}", {}, 404, "NOT_FOUND"),
        ("/v1/nothing", b"{}", {"x-goog-api-key": "k"}, 404, "NOT_FOUND"),
        ("/v1beta/models", b"{}", {}, 405, "UNIMPLEMENTED"),
    ],
)
async def test_every_error_on_these_paths_has_googles_form(
    path: str, data: bytes, headers: dict[str, str], status: int, word: str
) -> None:
    async with running(ScriptedProvider("fake", HELLO)) as gateway:
        sent = {"content-type": "application/json", **headers}
        async with gateway.session.post(gateway.url + path, data=data, headers=sent) as answer:
            found = await answer.json()
            assert answer.status == status
    assert (found["error"]["code"], found["error"]["status"]) == (status, word)


async def test_a_key_may_stand_in_googles_header_or_in_the_query_and_is_never_logged() -> None:
    keys = "auth: {keys: [{id: a, secret: right-key}]}\n"
    async with running(ScriptedProvider("fake", HELLO), extra=keys) as gateway:
        async with client(gateway, "wrong") as sdk:
            with pytest.raises(errors.ClientError) as caught:
                await sdk.models.generate_content(model="fake/m", contents="hi")
            assert (caught.value.code, caught.value.status) == (401, "UNAUTHENTICATED")
        async with client(gateway, "right-key") as sdk:
            assert (await sdk.models.generate_content(model="fake/m", contents="hi")).text == "Hello there"
        for query, status in (("?key=right%2Dkey", 200), ("?alt=json&key=right-key", 200), ("?key=", 401), ("", 401)):
            async with gateway.post(body(), PATH + "generateContent" + query) as answer:
                assert answer.status == status, query
        assert "right" not in str(gateway.lines())


async def test_tokens_are_counted_by_the_first_target_that_can() -> None:
    able, unable = Counting("able", HELLO), ScriptedProvider("unable", HELLO)
    alias = "models: {both: {targets: [unable/m, able/m]}, none: unable/m}\n"
    async with running(able, unable, extra=alias) as gateway, client(gateway) as sdk:
        assert (await sdk.models.count_tokens(model="both", contents="hi")).total_tokens == 7
        with pytest.raises(errors.ClientError, match="count tokens"):
            await sdk.models.count_tokens(model="none", contents="hi")


async def test_the_sdk_lists_the_models_in_both_versions_and_openais_clients_see_their_own_form() -> None:
    provider = ScriptedProvider("fake", HELLO, models=[ModelEntry(id="m", created=1790000000, context=8192)])
    async with running(provider, extra="models: {fast: fake/m}\n") as gateway:
        for version in ("v1beta", "v1"):
            async with client(gateway, api_version=version) as sdk:
                listed = [model async for model in await sdk.models.list()]
                assert [model.name for model in listed] == ["models/fast", "models/fake/m"]
                assert listed[1].input_token_limit == 8192
                assert (await sdk.models.get(model="fast")).name == "models/fast"
                with pytest.raises(errors.ClientError, match="NOT_FOUND"):
                    await sdk.models.get(model="nothing")
        async with gateway.session.get(gateway.url + "/v1beta/models") as answer:
            assert set(await answer.json()) == {"models"}
        async with gateway.session.get(gateway.url + "/v1/models/fake/m") as answer:
            assert (await answer.json())["object"] == "model"


async def test_a_chat_of_the_sdk_goes_on_over_its_turns() -> None:
    provider = ScriptedProvider("fake", HELLO, HELLO)
    async with running(provider) as gateway, client(gateway) as sdk:
        chat = sdk.chats.create(model="fake/m")
        assert (await chat.send_message("one")).text == "Hello there"
        texts = [chunk.text async for chunk in await chat.send_message_stream("two")]
        assert "".join(part or "" for part in texts) == "Hello there"
    asked = provider.requests[1].messages
    assert asked is not None
    assert [(message.role, message.parts) for message in asked] == [
        ("user", (Text(text="one"),)),
        ("assistant", (Text(text="Hello there"),)),
        ("user", (Text(text="two"),)),
    ]
