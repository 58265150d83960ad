"""Ollama's clients at the gateway's socket: the official SDK, its errors, lists, cards and embeddings."""

import asyncio
import re
from array import array
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import ollama
import orjson
import pytest

from adapters.canonical.embedding import EmbeddingRequest, EmbeddingResult, texts_of
from adapters.canonical.errors import UpstreamAuth, UpstreamOverloaded, UpstreamRateLimited
from adapters.canonical.events import (
    ChoiceFinished,
    ReasoningDelta,
    Started,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallFinished,
    ToolCallStarted,
    UsageReported,
)
from adapters.canonical.messages import Image, MediaSource, Reasoning, Text, ToolCall, ToolResult
from adapters.canonical.request import EXPRESSIBLE_FIELDS
from adapters.canonical.stop_reason import StopReason
from adapters.canonical.usage import Usage
from gateway.version import VERSION
from providers.abilities import ModelLoad
from providers.base import Batch, Capabilities, ModelEntry
from providers.testing.scripted import ScriptedProvider
from tests.gateway.server.running import FINISH, HELLO, Running, running, text

pytestmark = pytest.mark.timeout(30)
ONE_TRY = "reliability: {retry: {attempts: 1}}\n"
ALL = Capabilities(
    fields=EXPRESSIBLE_FIELDS,
    parts=frozenset((Text, Reasoning, ToolCall, ToolResult, Image)),
    native_choices=True,
    prompts=True,
)
USER = {"role": "user", "content": "hi"}
TURN: list[Batch] = [
    [Started(id="up", request_id="up-req-1")],
    [ReasoningDelta(0, 0, "hm")],
    [TextDelta(0, 1, "Let me "), TextDelta(0, 1, "look.")],
    [ToolCallStarted(0, 2, "c1", "get_weather"), ToolArgumentsDelta(0, 2, '{"city":')],
    [ToolArgumentsDelta(0, 2, '"Oslo"}'), ToolCallFinished(0, 2)],
    [ToolCallStarted(0, 3, "c2", "get_weather"), ToolArgumentsDelta(0, 3, "{}"), ToolCallFinished(0, 3)],
    [
        ChoiceFinished(0, StopReason.TOOL_CALLS, "tool_calls"),
        UsageReported(Usage(prompt_tokens=9, completion_tokens=5)),
    ],
]
PNG = "iVBORw0KGgo="


async def test_a_client_that_always_says_how_to_keep_a_model_is_answered_and_told_what_was_left_out() -> None:
    provider = ScriptedProvider("fake", HELLO, capabilities=Capabilities(fields=frozenset(("temperature",))))
    options = {"num_ctx": 2**31, "num_gpu": 99, "num_thread": 8, "temperature": 0.5}
    body = {"model": "fake/m", "messages": [USER], "stream": False, "keep_alive": "30m", "options": options}
    async with running(provider) as gateway, gateway.post(body, "/api/chat") as answer:
        assert answer.status == 200
        left_out = set(answer.headers["x-gateway-dropped-params"].split(", "))
    assert left_out == {"keep_alive", "options.num_ctx", "options.num_gpu", "options.num_thread"}
    assert provider.requests[0].extras == {}
    assert provider.requests[0].sampling.temperature == 0.5


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("path", "body", "word"),
    [
        ("/api/generate", {}, "load"),
        ("/api/generate", {"prompt": "", "keep_alive": 0}, "unload"),
        ("/api/chat", {"messages": [], "keep_alive": "5m"}, "load"),
        ("/api/chat", {"messages": None, "keep_alive": "0s"}, "unload"),
    ],
)
async def test_a_request_that_asks_nothing_is_answered_without_a_provider(
    path: str, body: dict[str, Any], word: str, stream: bool
) -> None:
    provider = ScriptedProvider("fake", HELLO)
    asked = {"model": "fake/m", "stream": stream, **body}
    async with running(provider) as gateway, gateway.post(asked, path) as answer:
        found = orjson.loads(await answer.read())
        expected = "application/x-ndjson" if stream else "application/json"
        assert answer.headers["content-type"] == expected
    assert (found["done"], found["done_reason"], found["model"]) == (True, word, "fake/m")
    assert found.get("response", found.get("message", {}).get("content")) == ""
    assert provider.requests == []


class Host(ScriptedProvider):
    """One whose models are of this machine. `asked`: which were to be loaded, for how long, and which to go."""

    def __init__(self, name: str) -> None:
        super().__init__(name, HELLO, models=[ModelEntry(id="m")])
        self.asked: list[ModelLoad | str] = []

    async def load_model(self, asked: ModelLoad) -> None:
        self.asked.append(asked)

    async def unload_model(self, model: str) -> None:
        self.asked.append(model)


@pytest.mark.parametrize(
    ("path", "body", "asked"),
    [
        ("/api/generate", {"model": "one/m"}, [[ModelLoad("m")], []]),
        ("/api/generate", {"model": "one/m", "keep_alive": "1m"}, [[ModelLoad("m", 60)], []]),
        ("/api/chat", {"model": "both", "keep_alive": -1}, [[ModelLoad("m", -1)], []]),
        ("/api/generate", {"model": "both", "keep_alive": 0}, [["m"], ["m"]]),
        ("/api/embed", {"model": "one/m", "input": "", "keep_alive": 5}, [[ModelLoad("m", 5)], []]),
    ],
)
async def test_a_local_model_is_loaded_or_leaves_memory_where_nothing_else_is_asked(
    path: str, body: dict[str, Any], asked: list[list[object]]
) -> None:
    one, other = Host("one"), Host("other")
    names = "models: {both: {targets: [one/m, other/m]}}\n"
    async with running(one, other, extra=names) as gateway, gateway.post(body, path) as answer:
        assert answer.status == 200
    assert [one.asked, other.asked] == asked
    assert one.requests == []


async def test_how_long_a_model_stays_goes_with_the_request_to_a_target_that_can_be_told() -> None:
    provider = ScriptedProvider("fake", HELLO, capabilities=Capabilities(fields=frozenset(("keep_alive_s",))))
    body = {"model": "fake/m", "messages": [USER], "keep_alive": "5m", "stream": False}
    async with running(provider) as gateway, gateway.post(body, "/api/chat") as answer:
        assert "x-gateway-dropped-params" not in answer.headers
    assert provider.requests[0].keep_alive_s == 300


async def test_a_model_that_nobody_has_can_not_be_loaded() -> None:
    async with running(ScriptedProvider("fake", HELLO)) as gateway, gateway.post({"model": "x"}, "/api/chat") as answer:
        assert answer.status == 404


async def test_the_clients_first_question_is_whether_anybody_is_there() -> None:
    async with running(ScriptedProvider("fake", HELLO)) as gateway:
        async with gateway.session.head(gateway.url + "/") as answer:
            assert answer.status == 200
        async with gateway.session.get(gateway.url + "/") as answer:
            assert await answer.text() == "Ollama is running"


async def test_a_browser_is_told_where_to_look() -> None:
    async with running(ScriptedProvider("fake", HELLO)) as gateway:
        headers = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
        async with gateway.session.get(gateway.url + "/", headers=headers) as answer:
            told = await answer.text()
            assert answer.headers["content-type"].startswith("text/plain")
        assert VERSION in told
        for path in re.findall(r"^/\S+", told, re.MULTILINE):
            async with gateway.session.get(gateway.url + path) as answer:
                assert answer.status == 200, path


def get_weather(city: str) -> str:
    """The weather.

    Args:
        city: where
    """
    return city


@asynccontextmanager
async def client(gateway: Running, key: str = "any") -> AsyncIterator[ollama.AsyncClient]:
    async with ollama.AsyncClient(gateway.url, headers={"authorization": f"Bearer {key}"}) as found:
        yield found


async def test_the_sdk_reads_the_same_answer_streamed_and_whole() -> None:
    async with running(ScriptedProvider("fake", TURN)) as gateway, client(gateway) as sdk:
        whole = await sdk.chat("fake/m", [USER], tools=[get_weather])
        rows = [row async for row in await sdk.chat("fake/m", [USER], tools=[get_weather], stream=True)]
    assert "".join(row.message.content or "" for row in rows) == whole.message.content == "Let me look."
    assert "".join(row.message.thinking or "" for row in rows) == whole.message.thinking == "hm"
    streamed = [call for row in rows for call in row.message.tool_calls or ()]
    assert streamed == list(whole.message.tool_calls or ())
    assert [call.function.arguments for call in streamed] == [{"city": "Oslo"}, {}]
    assert [row.done for row in rows] == [False] * (len(rows) - 1) + [True]
    for response in (whole, rows[-1]):
        assert (response.done, response.done_reason) == (True, "stop")
        assert (response.prompt_eval_count, response.eval_count) == (9, 5)
        assert response.model == "fake/m"


async def test_a_turn_that_the_sdk_plays_back_reaches_the_provider_as_it_was() -> None:
    provider = ScriptedProvider("fake", TURN, HELLO, capabilities=ALL)
    async with running(provider) as gateway, client(gateway) as sdk:
        first = await sdk.chat("fake/m", [USER], tools=[get_weather])
        results = [{"role": "tool", "content": city, "tool_name": "get_weather"} for city in ("1", "2")]
        options = {"temperature": 0.5, "num_predict": 9}
        await sdk.chat("fake/m", [USER, first.message, *results], tools=[get_weather], think=True, options=options)
    asked = provider.requests[1]
    assert asked.messages is not None
    thought, said, called, second = asked.messages[1].parts
    assert (thought, said) == (Reasoning(text="hm"), Text(text="Let me look."))
    assert called == ToolCall(id="gwcall_1_0", name="get_weather", arguments='{"city":"Oslo"}')
    assert isinstance(second, ToolCall)
    answered = [part for message in asked.messages[2:] for part in message.parts]
    assert answered == [
        ToolResult(call_id="gwcall_1_0", parts=(Text(text="1"),)),
        ToolResult(call_id="gwcall_1_1", parts=(Text(text="2"),)),
    ]
    assert (asked.sampling.temperature, asked.max_tokens) == (0.5, 9)
    assert asked.tools is not None
    assert orjson.loads(asked.tools[0].parameters or b"")["properties"]["city"]["type"] == "string"


async def test_the_sdk_generates_from_a_prompt_with_an_image() -> None:
    provider = ScriptedProvider("fake", HELLO, capabilities=ALL)
    async with running(provider) as gateway, client(gateway) as sdk:
        whole = await sdk.generate("fake/m", "look", system="s", images=[PNG], format="json")
        rows = [row async for row in await sdk.generate("fake/m", "look", stream=True)]
        await sdk.generate("fake/m", "once", raw=True)
    assert whole.response == "".join(row.response or "" for row in rows) == "Hello there"
    assert (whole.done_reason, whole.eval_count) == ("stop", 2)
    first, _, raw = provider.requests
    assert first.messages is not None
    image = Image(source=MediaSource(data=PNG, media_type="image/png"))
    assert [message.parts for message in first.messages] == [(Text(text="s"),), (Text(text="look"), image)]
    assert first.output_format is not None
    assert (raw.messages, raw.prompts) == (None, ("once",))


async def test_a_stream_is_lines_without_openais_mark() -> None:
    body = {"model": "fake/m", "messages": [USER]}
    async with (
        running(ScriptedProvider("fake", HELLO)) as gateway,
        gateway.post(body, "/api/chat") as answer,
    ):
        lines = (await answer.text()).splitlines()
    assert answer.headers["content-type"] == "application/x-ndjson"
    assert [orjson.loads(row)["done"] for row in lines] == [False, False, True]


async def test_silence_brings_what_the_sdk_passes_over() -> None:
    go = asyncio.Event()
    provider = ScriptedProvider("fake", [text("a"), go, [*text("b"), *FINISH]])
    body = {"model": "fake/m", "messages": [USER]}
    async with (
        running(provider, extra="server: {keepalive_s: 0.02}\n") as gateway,
        gateway.post(body, "/api/chat") as answer,
    ):
        seen = b""
        while not seen.endswith(b"  "):
            seen += await answer.content.readany()
        go.set()
        seen += await answer.read()
    lines = seen.splitlines()
    assert [orjson.loads(row)["message"]["content"] for row in lines] == ["a", "b", ""]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (UpstreamRateLimited("slow", retry_after_s=2), 429),
        (UpstreamOverloaded("busy"), 503),
        (UpstreamAuth("no"), 502),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_an_error_before_the_answer_is_the_sdks_error(error: Exception, status: int, stream: bool) -> None:
    async with running(ScriptedProvider("fake", [error]), extra=ONE_TRY) as gateway, client(gateway) as sdk:
        with pytest.raises(ollama.ResponseError) as caught:
            await answered(sdk, stream=stream)
    assert (caught.value.status_code, caught.value.error) == (status, str(error))


async def answered(sdk: ollama.AsyncClient, *, stream: bool) -> None:
    if stream:
        _ = [row async for row in await sdk.chat("fake/m", [USER], stream=True)]
    else:
        await sdk.chat("fake/m", [USER])


async def test_an_error_inside_a_stream_is_the_sdks_error() -> None:
    provider = ScriptedProvider("fake", [text("par"), UpstreamOverloaded("busy")])
    async with running(provider, extra=ONE_TRY) as gateway, client(gateway) as sdk:
        with pytest.raises(ollama.ResponseError, match="busy"):
            await answered(sdk, stream=True)


@pytest.mark.parametrize(
    ("path", "data", "headers", "status"),
    [
        ("/api/chat", b"{", {}, 400),
        ("/api/chat", b'{"model":"m","messages":[{}]}', {}, 400),
        ("/api/generate", b'{"model":"m","prompt":7}', {}, 400),
        ("/api/chat", orjson.dumps({"model": "nowhere", "messages": [USER]}), {}, 404),
        ("/api/show", b'{"model":"nowhere"}', {}, 404),
        ("/api/show", b"{}", {}, 400),
        ("/api/embed", b"{}", {}, 400),
        ("/api/embed", b'{"model":"fake/m","input":"x"}', {}, 400),
        ("/api/pull", b'{"model":"m"}', {}, 404),
        ("/api/tags", b"{}", {}, 405),
        ("/api/chat", b"{}", {"origin": "https://a.example"}, 403),
    ],
)
async def test_every_error_on_these_paths_has_ollamas_form(
    path: str, data: bytes, headers: dict[str, str], status: int
) -> None:
    async with running(ScriptedProvider("fake", HELLO)) as gateway:
        sent = {"content-type": "application/json", **headers}
        async with gateway.session.post(gateway.url + path, data=data, headers=sent) as answer:
            found = await answer.json()
            assert answer.status == status
    assert isinstance(found["error"], str)


async def test_a_missing_key_is_told_in_ollamas_form() -> None:
    keys = "auth: {keys: [{id: a, secret: right, models: ['fake/*']}]}\n"
    provider = ScriptedProvider("fake", HELLO, models=[ModelEntry(id="m")])
    async with running(provider, extra=keys) as gateway:
        async with client(gateway, "wrong") as sdk:
            with pytest.raises(ollama.ResponseError) as caught:
                await sdk.list()
            assert caught.value.status_code == 401
        async with client(gateway, "right") as sdk:
            assert [row.model for row in (await sdk.list()).models] == ["fake/m"]
            assert (await sdk.chat("fake/m", [USER])).message.content == "Hello there"


async def test_the_sdk_lists_and_shows_the_models() -> None:
    provider = ScriptedProvider("fake", HELLO, models=[ModelEntry(id="m", created=1790000000, context=8192)])
    async with running(provider, extra="models: {fast: fake/m}\n") as gateway, client(gateway) as sdk:
        assert [row.model for row in (await sdk.list()).models] == ["fast", "fake/m"]
        card = await sdk.show("fake/m")
        assert card.modelinfo == {"general.architecture": "gateway", "gateway.context_length": 8192}
        assert (await sdk.show("fast")).capabilities == ["completion", "tools"]
        assert (await sdk.ps()).models == []
        async with gateway.session.get(gateway.url + "/api/version") as answer:
            major, minor, _ = (await answer.json())["version"].split(".")
            assert (int(major), int(minor)) >= (0, 6)


class Embedding(ScriptedProvider):
    """Its vectors tell how long each text is."""

    asked: EmbeddingRequest

    def embedding_fields(self, model: str) -> frozenset[str]:
        return frozenset(("dimensions", "truncate_prompt_tokens"))

    async def embed(self, request: EmbeddingRequest) -> EmbeddingResult:
        self.asked = request
        vectors = tuple([array("f", [len(text), 0.5]).tobytes() for text in texts_of(request, "this provider")])
        return EmbeddingResult(vectors=vectors, usage=Usage(prompt_tokens=3))


async def test_the_sdk_gets_vectors_in_both_ways() -> None:
    provider = Embedding("fake", HELLO)
    async with running(provider) as gateway, client(gateway) as sdk:
        found = await sdk.embed("fake/m", ["a", "abc"], dimensions=2, truncate=True)
        assert found.embeddings == [[1.0, 0.5], [3.0, 0.5]]
        assert found.prompt_eval_count == 3
        assert (provider.asked.dimensions, provider.asked.truncate_prompt_tokens) == (2, -1)
        assert (await sdk.embed("fake/m", "ab")).embeddings == [[2.0, 0.5]]
        assert (await sdk.embeddings("fake/m", "abcd")).embedding == [4.0, 0.5]
        kept = await sdk.embed("fake/m", "ab", keep_alive="5m", options={"num_ctx": 8192})
        assert kept.embeddings == [[2.0, 0.5]]
        assert provider.asked.extras == {}


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/api/embed", {}, "embeddings"),
        ("/api/embed", {"input": ""}, "embeddings"),
        ("/api/embed", {"input": []}, "embeddings"),
        ("/api/embeddings", {"prompt": ""}, "embedding"),
    ],
)
async def test_a_model_is_loaded_by_asking_for_no_vectors(path: str, body: dict[str, Any], field: str) -> None:
    async with running(Embedding("fake", HELLO)) as gateway:
        async with gateway.post({"model": "fake/m", **body}, path) as answer:
            assert answer.status == 200
            assert (await answer.json())[field] == []
        async with gateway.post({"model": "nobody/m", **body}, path) as answer:
            assert answer.status == 404


async def test_a_body_need_not_say_that_it_is_json() -> None:
    data = orjson.dumps({"model": "fake/m", "messages": [USER], "stream": False})
    provider = ScriptedProvider("fake", HELLO, models=[ModelEntry(id="m")])
    async with running(provider) as gateway:
        for path, sent in (("/api/chat", data), ("/api/show", b'{"model":"fake/m"}')):
            headers = {"content-type": "application/x-www-form-urlencoded"}
            async with gateway.session.post(gateway.url + path, data=sent, headers=headers) as answer:
                assert answer.status == 200, path


async def test_keys_and_headers_are_the_gateways_own() -> None:
    body: dict[str, Any] = {"model": "fake/m", "messages": [USER], "stream": False}
    async with running(ScriptedProvider("fake", HELLO)) as gateway, gateway.post(body, "/api/chat") as answer:
        assert answer.headers["x-gateway-upstream-request-id"] == "up-req-1"
        assert answer.headers["x-request-id"].startswith("req_")
