"""The provider for Ollama, over a real socket: its contract, its paths, options, embeddings and lists."""

import json
from array import array
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest
import pytest_asyncio

from adapters.canonical.embedding import CUT_TO_WINDOW, EmbeddingRequest
from adapters.canonical.errors import BadUpstreamResponse, GatewayError, ModelNotFound, UnsupportedParameter
from adapters.canonical.events import Event
from adapters.canonical.messages import Text
from adapters.canonical.request import Request, Sampling
from adapters.canonical.result import fold
from adapters.canonical.usage import Usage
from providers.abilities import Embedder
from providers.remote.ollama import OllamaProvider
from providers.testing.contract import TEXT, TOOL_CALLS, ProviderContract, Scene
from tests.mock_upstream import Answer
from tests.providers.remote.anthropic_wire import request
from tests.providers.remote.ollama_wire import connected, line, lined, streamed, whole
from tests.providers.remote.wire_stage import WireStage

pytestmark = pytest.mark.timeout(20)
CALLS: list[dict[str, Any]] = [
    {"id": f"call_{number}", "function": {"name": name, "arguments": json.loads(arguments)}}
    for number, (name, arguments) in enumerate(TOOL_CALLS)
]


def _answer(scene: Scene, stream: bool) -> Answer:
    halves = [line(TEXT[:3]), line(TEXT[3:])]
    match scene:
        case Scene.TEXT:
            return streamed(*halves) if stream else whole(TEXT)
        case Scene.LENGTH:
            return streamed(*halves, reason="length") if stream else whole(TEXT, "length")
        case Scene.TOOLS:
            calls = [line(tool_calls=[call]) for call in CALLS]
            return streamed(*calls) if stream else whole(tool_calls=CALLS)
        case Scene.REFUSED:
            return Answer.json(b'{"error":"busy"}', 503)
        case Scene.BROKEN:
            return lined(*halves[:1], then="reset")
        case Scene.STALLED:
            return lined(*halves[:1], then="hang")
        case Scene.SILENT:
            return Answer(silent=True, then="hang")


class TestContract(ProviderContract):
    @pytest_asyncio.fixture
    async def stage(self) -> AsyncIterator[WireStage]:
        async with connected(whole(TEXT)) as (upstream, provider):
            yield WireStage(upstream, provider, _answer, request)


async def collect(provider: OllamaProvider, asked: Request) -> list[Event]:
    async with aclosing(provider.stream(asked)) as batches:
        return [found async for batch in batches for found in batch]


OK = whole("ok")


async def test_chats_go_to_one_path_and_prompts_to_another() -> None:
    async with connected(OK) as (upstream, provider):
        await collect(provider, request(stream=False, request_id="ours"))
        upstream.script(streamed(line("ok")))
        await collect(provider, request(stream=True))
        body = {"model": "m", "response": "ok", "done": True}
        upstream.script(Answer.json(json.dumps(body).encode()))
        events = await collect(provider, request(stream=False, messages=None, prompts=("once",)))
    assert fold(events).choices[0].parts == (Text(text="ok"),)
    first, second, third = upstream.requests
    assert [seen.path for seen in upstream.requests] == ["/api/chat", "/api/chat", "/api/generate"]
    assert (first.headers["accept"], second.headers["accept"]) == ("application/json", "application/x-ndjson")
    assert "authorization" not in first.headers
    assert first.headers["x-request-id"] == "ours"
    assert json.loads(third.body)["raw"] is True


async def test_a_key_is_shown_where_there_is_one() -> None:
    async with connected(OK, api_key="secret") as (upstream, provider):
        await collect(provider, request(stream=False))
    assert upstream.requests[0].headers["authorization"] == "Bearer secret"


async def test_params_are_options_or_fields_where_the_request_has_none() -> None:
    params = {"num_ctx": 16384, "temperature": 0.5, "keep_alive": "1h", "think": False}
    async with connected(OK, params=params) as (upstream, provider):
        await collect(provider, request(stream=False))
        await collect(provider, request(stream=False, sampling=Sampling(temperature=1.0)))
    bodies = [json.loads(seen.body) for seen in upstream.requests]
    assert [body["options"] for body in bodies] == [
        {"num_ctx": 16384, "temperature": 0.5},
        {"temperature": 1.0, "num_ctx": 16384},
    ]
    assert all((body["keep_alive"], body["think"]) == ("1h", False) for body in bodies)
    with pytest.raises(ValueError, match=r"providers.up.params.messages"):
        async with connected(OK, params={"messages": []}):
            pass


async def test_several_prompts_and_choices_are_asked_for_one_by_one() -> None:
    answer = Answer.json(b'{"model":"m","response":"ok","done":true}')
    async with connected(answer) as (upstream, provider):
        events = await collect(provider, request(stream=False, messages=None, prompts=("a", "b"), n=2))
    assert [choice.index for choice in fold(events).choices] == [0, 1, 2, 3]
    assert sorted(json.loads(seen.body)["prompt"] for seen in upstream.requests) == ["a", "a", "b", "b"]


async def test_an_unknown_model_is_told() -> None:
    async with connected(Answer.json(b'{"error":"model \'m\' not found"}', 404)) as (_, provider):
        with pytest.raises(ModelNotFound, match="model 'm' not found"):
            await collect(provider, request())


async def test_models_are_listed_once_a_minute() -> None:
    rows = [{"name": "llama3:8b", "model": "llama3:8b", "size": 1}, {"name": "qwen3:latest"}]
    async with connected(Answer.json(json.dumps({"models": rows}).encode())) as (upstream, provider):
        models = await provider.models()
        assert await provider.models() == models
    assert [model.id for model in models] == ["llama3:8b", "qwen3:latest"]
    assert [seen.path for seen in upstream.requests] == ["/api/tags"]


async def test_texts_become_vectors() -> None:
    body = {"model": "m", "embeddings": [[0.5, 1], [0.25, -1.0]], "prompt_eval_count": 7}
    async with connected(Answer.json(json.dumps(body).encode())) as (upstream, provider):
        assert isinstance(provider, Embedder)
        asked = EmbeddingRequest(model="m", dialect="openai.embeddings", inputs=("a", "b"), dimensions=2)
        result = await provider.embed(asked)
        assert [array("f", vector).tolist() for vector in result.vectors] == [[0.5, 1.0], [0.25, -1.0]]
        assert result.usage == Usage(prompt_tokens=7)
        seen = upstream.requests[0]
        assert seen.path == "/api/embed"
        assert json.loads(seen.body) == {"model": "m", "input": ["a", "b"], "truncate": False, "dimensions": 2}
        cut = EmbeddingRequest(model="m", dialect="x", inputs=("a", "b"), truncate_prompt_tokens=CUT_TO_WINDOW)
        await provider.embed(cut)
        assert json.loads(upstream.requests[1].body)["truncate"] is True
        with pytest.raises(UnsupportedParameter) as caught:
            await provider.embed(EmbeddingRequest(model="m", dialect="x", inputs=("a",), extras={"later": b"1"}))
        assert caught.value.param == "later"


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (Answer.json(b'{"embeddings":[[1.0]]}'), BadUpstreamResponse),
        (Answer.json(b'{"embeddings":[[1.0],[1.0,2.0]]}'), BadUpstreamResponse),
        (Answer.json(b'{"embeddings":"x"}'), BadUpstreamResponse),
        (Answer.json(b'{"error":"no"}'), GatewayError),
        (Answer.json(b'{"error":"not found"}', 404), ModelNotFound),
    ],
)
async def test_what_are_no_vectors_is_an_error(answer: Answer, kind: type[GatewayError]) -> None:
    async with connected(answer) as (_, provider):
        with pytest.raises(kind):
            await provider.embed(EmbeddingRequest(model="m", dialect="x", inputs=("a", "b")))
