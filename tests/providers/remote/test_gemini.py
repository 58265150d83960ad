"""The provider for Gemini, over a real socket: its contract, its paths and keys, Vertex AI, counts and lists."""

import json
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import pytest_asyncio
from google.auth import credentials, exceptions

from adapters.canonical.embedding import EmbeddingRequest
from adapters.canonical.errors import GatewayError, UpstreamAuth, UpstreamError, UpstreamOverloaded
from adapters.canonical.events import Event
from adapters.canonical.messages import Text
from adapters.canonical.request import Request, Sampling
from adapters.canonical.result import fold
from adapters.canonical.stop_reason import StopReason
from adapters.canonical.usage import Usage
from providers.abilities import Embedder, TokenCounter
from providers.base import ProviderSettings
from providers.registry import build
from providers.remote.gemini import GeminiProvider, vertex_url
from providers.remote.paused_turns import MAX_CONTINUATIONS
from providers.testing.contract import TEXT, TOOL_CALLS, ProviderContract, Scene
from tests.mock_upstream import Answer
from tests.providers.remote.anthropic_wire import request
from tests.providers.remote.gemini_wire import chunk, connected, response, streamed, whole
from tests.providers.remote.wire_stage import WireStage

pytestmark = pytest.mark.timeout(20)
CALLS: list[dict[str, Any]] = [
    {"functionCall": {"id": f"call_{number}", "name": name, "args": json.loads(arguments)}}
    for number, (name, arguments) in enumerate(TOOL_CALLS)
]


def _answer(scene: Scene, stream: bool) -> Answer:
    halves = [chunk({"text": TEXT[:3]}), chunk({"text": TEXT[3:]})]
    match scene:
        case Scene.TEXT:
            return streamed(*halves) if stream else whole({"text": TEXT})
        case Scene.LENGTH:
            return streamed(*halves, finish="MAX_TOKENS") if stream else whole({"text": TEXT}, finish="MAX_TOKENS")
        case Scene.TOOLS:
            return streamed(*[chunk(call) for call in CALLS]) if stream else whole(*CALLS)
        case Scene.REFUSED:
            return refusal(503, "UNAVAILABLE")
        case Scene.BROKEN:
            return Answer.sse(halves[:1], then="reset")
        case Scene.STALLED:
            return Answer.sse(halves[:1], then="hang")
        case Scene.SILENT:
            return Answer(silent=True, then="hang")


class TestContract(ProviderContract):
    @pytest_asyncio.fixture
    async def stage(self) -> AsyncIterator[WireStage]:
        async with connected(whole({"text": TEXT})) as (upstream, provider):
            yield WireStage(upstream, provider, _answer, request)


def refusal(status: int, word: str) -> Answer:
    body = {"error": {"code": status, "message": "busy", "status": word}}
    return Answer.json(json.dumps(body).encode(), status)


async def collect(provider: GeminiProvider, asked: Request) -> list[Event]:
    async with aclosing(provider.stream(asked)) as batches:
        return [found async for batch in batches for found in batch]


OK = whole({"text": "ok"})


async def test_the_key_is_a_header_and_the_path_names_the_model_and_the_way() -> None:
    async with connected(OK) as (upstream, provider):
        await collect(provider, request(stream=False, model="gemini-3-pro", request_id="ours"))
        upstream.script(streamed(chunk({"text": "ok"})))
        await collect(provider, request(stream=True, model="tuned/a model?"))
    first, second = upstream.requests
    assert first.path == "/v1/models/gemini-3-pro:generateContent"
    assert second.path == "/v1/models/tuned/a%20model%3F:streamGenerateContent?alt=sse"
    assert first.headers["x-goog-api-key"] == "secret-key"
    assert "authorization" not in first.headers
    assert first.headers["x-request-id"] == "ours"
    assert "model" not in json.loads(first.body)


async def test_an_error_in_a_list_is_told_as_any_other() -> None:
    refused = b'[{"error": {"code": 503, "message": "full", "status": "UNAVAILABLE"}}]'
    async with connected(Answer.json(refused, 503)) as (_, provider):
        with pytest.raises(UpstreamOverloaded, match=r"^full$"):
            await collect(provider, request())


async def test_choices_are_asked_for_one_by_one() -> None:
    async with connected(OK) as (upstream, provider):
        events = await collect(provider, request(stream=False, n=2, sampling=Sampling(seed=1)))
    assert [choice.index for choice in fold(events).choices] == [0, 1]
    seeds = [json.loads(seen.body)["generationConfig"]["seed"] for seen in upstream.requests]
    assert len(set(seeds)) == 2


async def test_params_are_sent_where_the_request_has_none() -> None:
    safety = [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_NONE"}]
    params = {"maxOutputTokens": 7, "mediaResolution": "LOW", "safetySettings": safety}
    async with connected(OK, params=params) as (upstream, provider):
        await collect(provider, request(stream=False))
        await collect(provider, request(stream=False, max_tokens=9))
    bodies = [json.loads(seen.body) for seen in upstream.requests]
    assert [body["generationConfig"]["maxOutputTokens"] for body in bodies] == [7, 9]
    assert all(body["safetySettings"] == safety for body in bodies)
    with pytest.raises(ValueError, match=r"providers.up.params.contents"):
        async with connected(OK, params={"contents": []}):
            pass


async def test_tokens_are_counted_by_the_upstream() -> None:
    async with connected(Answer.json(b'{"totalTokens":17}')) as (upstream, provider):
        assert isinstance(provider, TokenCounter)
        asked = request(max_tokens=9, sampling=Sampling(temperature=0.5))
        assert await provider.count_tokens(asked) == (17,)
        seen = upstream.requests[0]
        assert seen.path == "/v1/models/m:countTokens"
        inside = {"model": "models/m", "contents": [{"role": "user", "parts": [{"text": "hi"}]}]}
        assert json.loads(seen.body) == {"generateContentRequest": inside}
        upstream.script(refusal(503, "UNAVAILABLE"))
        with pytest.raises(UpstreamOverloaded):
            await provider.count_tokens(asked)
        upstream.script(Answer.json(b"{}"))
        with pytest.raises(GatewayError, match="no token count"):
            await provider.count_tokens(asked)


async def test_models_that_answer_are_listed_once_a_minute() -> None:
    rows = [
        {"name": "models/gemini-x", "inputTokenLimit": 1000, "supportedGenerationMethods": ["generateContent"]},
        {"name": "models/embed", "supportedGenerationMethods": ["embedContent"]},
        {"name": "models/veo", "supportedGenerationMethods": ["predictLongRunning"]},
        {"name": "models/gemini-y"},
    ]
    async with connected(Answer.json(json.dumps({"models": rows}).encode())) as (upstream, provider):
        models = await provider.models()
        assert await provider.models() == models
    assert [(model.id, model.context) for model in models] == [
        ("gemini-x", 1000),
        ("embed", None),
        ("gemini-y", None),
    ]
    assert [model.abilities for model in models] == [{"generate"}, {"embed"}, None]
    assert len(upstream.requests) == 1
    assert upstream.requests[0].path == "/v1/models?pageSize=1000"


class Account(credentials.Credentials):
    """Google's credentials without Google: each refresh gives the next token, for so long."""

    def __init__(self, *tokens: str, life_s: float = 3600) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._tokens = list(tokens)
        self._life_s = life_s

    def refresh(self, request: Any) -> None:
        if not self._tokens:
            raise exceptions.RefreshError("no more tokens")  # type: ignore[no-untyped-call]
        self.token = self._tokens.pop(0)
        self.expiry = datetime.now(UTC).replace(tzinfo=None) + timedelta(seconds=self._life_s)


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Lets Google's library find this account."""

    def use(found: Account) -> None:
        def default(scopes: Sequence[str]) -> tuple[Account, str]:
            assert list(scopes) == ["https://www.googleapis.com/auth/cloud-platform"]
            return found, "project"

        monkeypatch.setattr("google.auth.default", default)

    return use


VERTEX: dict[str, Any] = {"api_key": None, "options": {"project": "p", "region": "europe-west4"}}


@pytest.mark.parametrize(("life_s", "tokens"), [(3600, ["one", "one"]), (10, ["one", "two"])])
async def test_vertex_is_called_with_a_token_that_is_kept_while_it_lasts(
    account: Any, life_s: float, tokens: list[str]
) -> None:
    account(Account("one", "two", life_s=life_s))
    async with connected(OK, **VERTEX) as (upstream, provider):
        for _ in tokens:
            events = await collect(provider, request(stream=False))
            assert fold(events).choices[0].parts == (Text(text="ok"),)
        with pytest.raises(UpstreamError, match="no list"):
            await provider.models()
    assert [seen.headers["authorization"] for seen in upstream.requests] == [f"Bearer {token}" for token in tokens]
    assert all("x-goog-api-key" not in seen.headers for seen in upstream.requests)


async def test_tokens_are_counted_on_vertex_without_a_wrapper(account: Any) -> None:
    account(Account("one"))
    async with connected(Answer.json(b'{"totalTokens":3}'), **VERTEX) as (upstream, provider):
        assert await provider.count_tokens(request()) == (3,)
    assert set(json.loads(upstream.requests[0].body)) == {"contents"}


async def test_an_account_that_gets_no_token_is_the_gateways_own_fault(account: Any) -> None:
    account(Account())
    async with connected(OK, **VERTEX) as (upstream, provider):
        with pytest.raises(UpstreamAuth, match="RefreshError"):
            await collect(provider, request(stream=False))
    assert upstream.requests == []


@pytest.mark.parametrize(
    ("options", "url"),
    [
        ({"project": "p", "region": "us-east5"}, "https://us-east5-aiplatform.googleapis.com/v1/projects/p/"),
        ({"project": "p"}, "https://aiplatform.googleapis.com/v1/projects/p/locations/global/publishers/google"),
    ],
)
def test_the_address_of_vertex_follows_from_the_region(options: dict[str, str], url: str) -> None:
    assert vertex_url(ProviderSettings(name="v", type="gemini", options=options)).startswith(url)


def test_a_region_without_a_project_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"providers\.v\.project: required"):
        build(ProviderSettings(name="v", type="gemini", options={"region": "us-east5"}))


def test_a_missing_library_is_named_with_what_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "google.auth.transport.requests", None)
    with pytest.raises(ImportError, match=r"providers\.v: .* llm-protocol-gateway\[google\]"):
        build(ProviderSettings(name="v", type="gemini", options={"project": "p"}))
    build(ProviderSettings(name="v", type="gemini", api_key="k", options={"project": "p"}))


async def test_texts_become_vectors_a_hundred_a_call() -> None:
    rows = [{"values": [0.5]} for _ in range(100)]
    full = Answer.json(json.dumps({"embeddings": rows, "usageMetadata": {"promptTokenCount": 5}}).encode())
    last = Answer.json(b'{"embedding":{"values":[1.0]},"usageMetadata":{"promptTokenCount":2}}')
    async with connected(full, last) as (upstream, provider):
        assert isinstance(provider, Embedder)
        titles = tuple(map(str, range(101)))
        asked = EmbeddingRequest(model="gemini-embedding-001", dialect="d", inputs=("a",) * 101, titles=titles)
        found = await provider.embed(asked)
        assert [seen.path.rpartition(":")[2] for seen in upstream.requests] == ["batchEmbedContents", "embedContent"]
        assert upstream.requests[0].headers["x-goog-api-key"] == "secret-key"
        assert json.loads(upstream.requests[1].body)["title"] == "100"
    assert len(found.vectors) == 101
    assert found.vectors[-1] != found.vectors[0]
    assert found.usage is not None
    assert found.usage.prompt_tokens == 7


async def test_one_failed_batch_fails_the_request() -> None:
    full = Answer.json(json.dumps({"embeddings": [{"values": [0.5]}] * 100}).encode())
    async with connected(full, refusal(503, "UNAVAILABLE")) as (_, provider):
        with pytest.raises(UpstreamOverloaded):
            await provider.embed(EmbeddingRequest(model="m", dialect="d", inputs=("a",) * 300))


def cut(stream: bool, text: str, token: str | None = "VE9L") -> Answer:
    """An answer that asks to be continued."""
    more = {} if token is None else {"continuationToken": token}
    body = response(
        {"text": text}, finish="CONTINUATION", usageMetadata={"promptTokenCount": 3, "candidatesTokenCount": 2}
    )
    body["candidates"][0].update(more)
    data = json.dumps(body).encode()
    return Answer.sse([b"data: %b\n\n" % data]) if stream else Answer.json(data)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("dialect", ["openai.chat", "gemini.generate_content"])
async def test_an_answer_that_asks_to_be_continued_goes_on_as_one(stream: bool, dialect: str) -> None:
    end = streamed(chunk({"text": "lo"})) if stream else whole({"text": "lo"})
    async with connected(cut(stream, "hel"), end) as (upstream, provider):
        result = fold(await collect(provider, request(stream=stream, dialect=dialect)))
        first, second = (json.loads(seen.body) for seen in upstream.requests)
    assert result.choices[0].parts == (Text(text="hello"),)
    assert result.choices[0].finish.reason is StopReason.STOP
    assert result.usage == Usage(prompt_tokens=6, completion_tokens=6)
    assert second == {**first, "continuationToken": "VE9L"}


@pytest.mark.parametrize("answers", [(cut(False, "hel", None),), (cut(False, "hel"),)])
async def test_an_answer_that_can_not_be_continued_says_that_it_is_not_whole(answers: tuple[Answer, ...]) -> None:
    async with connected(*answers) as (upstream, provider):
        finish = fold(await collect(provider, request(stream=False))).choices[0].finish
        assert len(upstream.requests) <= 2  # the same token twice leads nowhere
    assert (finish.reason, finish.raw) == (StopReason.PAUSED, "CONTINUATION")


async def test_an_answer_goes_on_for_a_few_calls_and_not_for_ever() -> None:
    answers = [cut(False, "x", f"VE9L{n}") for n in range(20)]
    async with connected(*answers) as (upstream, provider):
        result = fold(await collect(provider, request(stream=False)))
        assert len(upstream.requests) == MAX_CONTINUATIONS + 1
    assert result.choices[0].parts == (Text(text="x" * (MAX_CONTINUATIONS + 1)),)
    assert result.choices[0].finish.reason is StopReason.PAUSED
