"""The provider for Cohere, over a real socket: its contract, its key and its list of models."""

import json
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest
import pytest_asyncio

from adapters.canonical.embedding import CUT_TO_WINDOW, QUERY, SIMILARITY, EmbeddingRequest
from adapters.canonical.errors import BadUpstreamResponse, UnsupportedParameter
from adapters.canonical.rerank import RerankRequest
from adapters.canonical.usage import Usage
from providers.abilities import Embedder, Prober, Reranker
from providers.remote.cohere import CohereProvider
from providers.testing.contract import TEXT, TOOL_CALLS, ProviderContract, Scene
from tests.mock_upstream import Answer
from tests.providers.remote.anthropic_wire import request
from tests.providers.remote.calls import collect
from tests.providers.remote.connection import connected_to
from tests.providers.remote.wire_stage import WireStage

pytestmark = pytest.mark.timeout(20)
USAGE = {"tokens": {"input_tokens": 3, "output_tokens": 4}}


def event(kind: str, index: int = 0, **delta: Any) -> bytes:
    found = {"type": kind, "index": index, "delta": delta}
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), json.dumps(found, ensure_ascii=False).encode())


def said(text: str) -> bytes:
    return event("content-delta", message={"content": {"text": text}})


def calls() -> list[dict[str, Any]]:
    return [
        {"id": f"c{n}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for n, (name, arguments) in enumerate(TOOL_CALLS)
    ]


def streamed(*pieces: bytes, finish: str = "COMPLETE") -> Answer:
    return Answer.sse([*pieces, event("message-end", finish_reason=finish, usage=USAGE)])


def whole(finish: str = "COMPLETE", **message: Any) -> Answer:
    body = {"id": "x", "finish_reason": finish, "message": {"role": "assistant", **message}, "usage": USAGE}
    return Answer.json(json.dumps(body, ensure_ascii=False).encode())


connected = partial(connected_to, CohereProvider, name="co", type="cohere", below="/v2")


def _answer(scene: Scene, stream: bool) -> Answer:
    halves = [said(TEXT[:3]), said(TEXT[3:])]
    content = [{"type": "text", "text": TEXT}]
    match scene:
        case Scene.TEXT:
            return streamed(*halves) if stream else whole(content=content)
        case Scene.LENGTH:
            return streamed(*halves, finish="MAX_TOKENS") if stream else whole("MAX_TOKENS", content=content)
        case Scene.TOOLS:
            starts = [event("tool-call-start", n, message={"tool_calls": call}) for n, call in enumerate(calls())]
            return streamed(*starts, finish="TOOL_CALL") if stream else whole("TOOL_CALL", tool_calls=calls())
        case Scene.REFUSED:
            return Answer.json(b'{"message":"busy"}', 503)
        case Scene.BROKEN:
            return Answer.sse(halves[:1], then="reset")
        case Scene.STALLED:
            return Answer.sse(halves[:1], then="hang")
        case Scene.SILENT:
            return Answer(silent=True, then="hang")


class TestContract(ProviderContract):
    @pytest_asyncio.fixture
    async def stage(self) -> AsyncIterator[WireStage]:
        async with connected(whole(content=[])) as (upstream, provider):
            yield WireStage(upstream, provider, _answer, request)


async def test_the_key_is_a_bearer() -> None:
    async with connected(streamed(said("hi"))) as (upstream, provider):
        await collect(provider.stream(request(stream=True)))
        assert upstream.requests[0].path == "/v2/chat"
        assert upstream.requests[0].headers["authorization"] == "Bearer secret-key"


async def test_models_are_listed_with_their_windows_beside_the_version() -> None:
    rows = (
        b'{"models":[{"name":"command-a-03-2025","context_length":288000.0},{"name":"x"},{"name":"c","endpoints":["classify"]},'
        b'{"name":"e","endpoints":["embed"]}]}'
    )
    async with connected(Answer.json(rows)) as (upstream, provider):
        found = await provider.models()
        assert upstream.requests[0].path == "/v1/models?page_size=1000"
    assert [(row.id, row.context) for row in found] == [("command-a-03-2025", 288000), ("x", None), ("e", None)]
    assert [row.abilities for row in found] == [None, None, {"embed"}]


async def test_a_probe_asks_for_the_list_even_where_one_is_kept() -> None:
    rows = Answer.json(b'{"models":[{"name":"command-a-03-2025"}]}')
    async with connected(rows, rows) as (upstream, provider):
        assert isinstance(provider, Prober)
        await provider.models()
        await provider.probe()
        assert [seen.path for seen in upstream.requests] == ["/v1/models?page_size=1000"] * 2


async def test_texts_become_vectors_96_a_call() -> None:
    def answer(count: int) -> Answer:
        meta = {"api_version": {"version": "2"}, "billed_units": {"input_tokens": count}}
        body = {"id": "e", "embeddings": {"float": [[0.5, 1]] * count}, "texts": [], "meta": meta}
        return Answer.json(json.dumps(body).encode(), headers={"x-request-id": "co-1"})

    async with connected(answer(96), answer(4)) as (upstream, provider):
        assert isinstance(provider, Embedder)
        asked = EmbeddingRequest(model="embed-v4.0", dialect="d", inputs=("a",) * 100, purpose=QUERY, dimensions=2)
        found = await provider.embed(asked)
        bodies = [json.loads(seen.body) for seen in upstream.requests]
    assert [len(body["texts"]) for body in bodies] == [96, 4]
    assert bodies[1] == {
        "model": "embed-v4.0", "texts": ["a"] * 4, "input_type": "search_query", "embedding_types": ["float"],
        "truncate": "NONE", "output_dimension": 2,
    }  # fmt: skip
    assert upstream.requests[0].path == "/v2/embed"
    assert len(found.vectors) == 100
    assert (found.usage, found.request_id) == (Usage(prompt_tokens=100), "co-1")


async def test_vectors_are_for_documents_unless_the_client_says_and_are_cut_only_when_it_lets_them() -> None:
    async with connected(Answer.json(b'{"embeddings":{"float":[[1]]}}')) as (upstream, provider):
        for limit in (None, CUT_TO_WINDOW, 7):
            asked = EmbeddingRequest(model="m", dialect="d", inputs=("a",), truncate_prompt_tokens=limit)
            await provider.embed(asked)
        with pytest.raises(UnsupportedParameter, match="purpose"):
            await provider.embed(EmbeddingRequest(model="m", dialect="d", inputs=("a",), purpose=SIMILARITY))
        bodies = [json.loads(seen.body) for seen in upstream.requests]
    assert {body["input_type"] for body in bodies} == {"search_document"}
    cuts = [(body["truncate"], body.get("max_tokens")) for body in bodies]
    assert cuts == [("NONE", None), ("END", None), ("END", 7)]


async def test_documents_are_ranked() -> None:
    rows = [{"index": 1, "relevance_score": 0.25}, {"index": 0, "relevance_score": 0.75}]
    body = {"id": "r", "results": rows, "meta": {"billed_units": {"search_units": 1}, "tokens": {"input_tokens": 9}}}
    async with connected(Answer.json(json.dumps(body).encode())) as (upstream, provider):
        assert isinstance(provider, Reranker)
        asked = RerankRequest(
            model="rerank-v3.5", dialect="d", query="q", documents=("a", "b"), extras={"max_tokens_per_doc": b"7"}
        )
        found = await provider.rerank(asked)
        assert upstream.requests[0].path == "/v2/rerank"
        assert json.loads(upstream.requests[0].body) == {
            "model": "rerank-v3.5", "query": "q", "documents": ["a", "b"], "max_tokens_per_doc": 7,
        }  # fmt: skip
    assert [(each.index, each.score) for each in found.scores] == [(0, 0.75), (1, 0.25)]
    assert found.usage == Usage(prompt_tokens=9)


@pytest.mark.parametrize(
    "answer",
    [b"{}", b'{"results":[]}', b'{"results":[{"index":0,"relevance_score":1},{"index":7,"relevance_score":1}]}'],
)
async def test_scores_that_are_none_are_an_error(answer: bytes) -> None:
    async with connected(Answer.json(answer)) as (_, provider):
        with pytest.raises(BadUpstreamResponse):
            await provider.rerank(RerankRequest(model="m", dialect="d", query="q", documents=("a", "b")))
