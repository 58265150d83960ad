"""The provider for Bedrock, over a real socket: its contract, its paths, its keys and signatures."""

import json
import re
from collections.abc import AsyncIterator
from contextlib import aclosing
from functools import partial
from typing import Any

import pytest
import pytest_asyncio
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from msgspec.structs import replace

from adapters.canonical.embedding import QUERY, EmbeddingRequest
from adapters.canonical.errors import BadUpstreamResponse, UnsupportedParameter, UpstreamAuth
from adapters.canonical.events import Event
from adapters.canonical.messages import Text
from adapters.canonical.request import OutputFormat, Request, Tool
from adapters.canonical.rerank import RerankRequest
from adapters.canonical.result import fold
from adapters.canonical.stop_reason import StopReason
from adapters.canonical.usage import Usage
from providers.abilities import EXTRAS, Reranker
from providers.base import ProviderSettings
from providers.registry import build
from providers.remote.bedrock import BedrockProvider
from providers.remote.bedrock_models import control_url
from providers.testing.contract import TEXT, TOOL_CALLS, ProviderContract, Scene
from tests.adapters.bedrock.exchange import event_stream
from tests.mock_upstream import Answer, MockUpstream, SeenRequest
from tests.providers.remote.anthropic_wire import request
from tests.providers.remote.connection import connected_to
from tests.providers.remote.wire_stage import WireStage

pytestmark = pytest.mark.timeout(20)
USAGE = {"inputTokens": 3, "outputTokens": 4, "totalTokens": 7}
STREAM = {"content-type": "application/vnd.amazon.eventstream", "x-amzn-requestid": "aws-1"}
OLD_CLAUDE = "anthropic.claude-3-5-sonnet-20240620-v1:0"
SCHEMA = b'{"type":"object","properties":{"x":{"type":"integer"}}}'


def delta(index: int, **fields: Any) -> bytes:
    return event_stream(("contentBlockDelta", {"contentBlockIndex": index, "delta": fields}))


def tail(stop: str) -> bytes:
    return event_stream(("messageStop", {"stopReason": stop}), ("metadata", {"usage": USAGE, "metrics": {}}))


def streamed(*pieces: bytes, stop: str = "end_turn") -> Answer:
    return Answer(headers=STREAM, pieces=(event_stream(("messageStart", {})), *pieces, tail(stop)))


def whole(*blocks: Any, stop: str = "end_turn") -> Answer:
    body = {"output": {"message": {"role": "assistant", "content": blocks}}, "stopReason": stop, "usage": USAGE}
    return Answer.json(json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode())


def call_events() -> list[bytes]:
    return [
        event_stream(
            ("contentBlockStart", {"contentBlockIndex": n, "start": {"toolUse": {"toolUseId": f"t{n}", "name": name}}}),
            ("contentBlockDelta", {"contentBlockIndex": n, "delta": {"toolUse": {"input": arguments}}}),
            ("contentBlockStop", {"contentBlockIndex": n}),
        )
        for n, (name, arguments) in enumerate(TOOL_CALLS)
    ]


def call_blocks() -> list[Any]:
    return [
        {"toolUse": {"toolUseId": f"t{n}", "name": name, "input": json.loads(arguments)}}
        for n, (name, arguments) in enumerate(TOOL_CALLS)
    ]


connected = partial(connected_to, BedrockProvider, type="bedrock", below="", options={"region": "us-east-1"})


def _answer(scene: Scene, stream: bool) -> Answer:
    halves = [delta(0, text=TEXT[:3]), delta(0, text=TEXT[3:])]
    match scene:
        case Scene.TEXT:
            return streamed(*halves) if stream else whole({"text": TEXT})
        case Scene.LENGTH:
            return streamed(*halves, stop="max_tokens") if stream else whole({"text": TEXT}, stop="max_tokens")
        case Scene.TOOLS:
            return streamed(*call_events(), stop="tool_use") if stream else whole(*call_blocks(), stop="tool_use")
        case Scene.REFUSED:
            return Answer.json(b'{"message":"busy"}', 503)
        case Scene.BROKEN:
            return Answer(headers=STREAM, pieces=halves[:1], then="reset")
        case Scene.STALLED:
            return Answer(headers=STREAM, pieces=halves[:1], then="hang")
        case Scene.SILENT:
            return Answer(silent=True, then="hang")


class TestContract(ProviderContract):
    @pytest_asyncio.fixture
    async def stage(self) -> AsyncIterator[WireStage]:
        async with connected(whole({"text": TEXT})) as (upstream, provider):
            yield WireStage(upstream, provider, _answer, request)


async def collect(provider: BedrockProvider, asked: Request) -> list[Event]:
    async with aclosing(provider.stream(asked)) as batches:
        return [event async for batch in batches for event in batch]


async def test_a_key_is_a_bearer_and_the_path_names_the_model() -> None:
    async with connected(streamed(delta(0, text="hi"))) as (upstream, provider):
        events = await collect(provider, replace(request(stream=True), model="us.amazon.nova-pro-v1:0"))
        assert fold(events).started.request_id == "aws-1"
        seen = upstream.requests[0]
        assert seen.path == "/model/us.amazon.nova-pro-v1%3A0/converse-stream"
        assert seen.headers["authorization"] == "Bearer secret-key"
        assert seen.headers["accept"] == "application/vnd.amazon.eventstream"


def signed_again(method: str, url: str, seen: SeenRequest) -> str:
    """The signature that the credentials of the test give for a call that was seen."""
    content = {} if method == "GET" else {"content-type": seen.headers["content-type"]}
    again = AWSRequest(method, url, content, seen.body)
    again.context["timestamp"] = again.headers["X-Amz-Date"] = seen.headers["x-amz-date"]
    again.headers["X-Amz-Security-Token"] = "token-1"
    signer = SigV4Auth(Credentials("AKID", "hush", "token-1"), "bedrock", "us-east-1")
    return str(signer.signature(signer.string_to_sign(again, signer.canonical_request(again)), again))


@pytest.fixture
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKID")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "token-1")


@pytest.mark.usefixtures("credentials")
async def test_without_a_key_requests_are_signed_with_the_credentials_of_the_surroundings() -> None:
    async with connected(whole({"text": "hi"}), api_key=None) as (upstream, provider):
        await collect(provider, replace(request(stream=False), model="a:b/c"))
        seen = upstream.requests[0]
        base = upstream.base_url.removesuffix("/v1")
    assert seen.headers["x-amz-security-token"] == "token-1"
    assert re.match(
        r"AWS4-HMAC-SHA256 Credential=AKID/\d{8}/us-east-1/bedrock/aws4_request, ", seen.headers["authorization"]
    )
    assert seen.headers["authorization"].endswith(f"Signature={signed_again('POST', base + seen.path, seen)}")


async def test_without_credentials_the_gateways_own_key_is_what_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    async with connected(api_key=None) as (_, provider):
        with pytest.raises(UpstreamAuth, match="no credentials"):
            await collect(provider, request(stream=False))


async def test_a_stream_whose_checksum_is_wrong_is_broken_after_what_came_before_it() -> None:
    broken = bytearray(delta(0, text="lo"))
    broken[-1] ^= 1
    answer = Answer(headers=STREAM, pieces=(delta(0, text="hel") + bytes(broken),))
    async with connected(answer) as (_, provider), aclosing(provider.stream(request(stream=True))) as batches:
        assert await anext(batches)
        with pytest.raises(BadUpstreamResponse, match="ChecksumMismatch"):
            await anext(batches)


@pytest.mark.parametrize("stream", [True, False])
async def test_a_model_that_only_holds_tools_to_a_schema_answers_by_a_call(stream: bool) -> None:
    start = {"contentBlockIndex": 1, "start": {"toolUse": {"toolUseId": "t", "name": "structured_answer"}}}
    pieces = [
        delta(0, text="Sure."),
        event_stream(("contentBlockStart", start)),
        delta(1, toolUse={"input": '{"x":1}'}),
    ]
    block = {"toolUse": {"toolUseId": "t", "name": "structured_answer", "input": {"x": 1}}}
    answer = streamed(*pieces, stop="tool_use") if stream else whole({"text": "Sure."}, block, stop="tool_use")
    wanted = OutputFormat(kind="json_schema", name="n", schema=SCHEMA)
    async with connected(answer) as (upstream, provider):
        asked = replace(request(stream=stream), model=OLD_CLAUDE, output_format=wanted)
        choice = fold(await collect(provider, asked)).choices[0]
        body = json.loads(upstream.requests[0].body)
    assert [part for part in choice.parts if isinstance(part, Text)] == [Text(text='{"x":1}')]
    assert choice.finish.reason is StopReason.STOP
    assert "outputConfig" not in body
    assert body["toolConfig"]["tools"][0]["toolSpec"]["inputSchema"]["json"] == json.loads(SCHEMA)
    assert body["toolConfig"]["toolChoice"] == {"tool": {"name": "structured_answer"}}


async def test_beside_tools_such_a_model_can_not_give_a_structured_answer() -> None:
    wanted = OutputFormat(kind="json_schema", schema=SCHEMA)
    asked = replace(request(), model=OLD_CLAUDE, output_format=wanted, tools=(Tool(kind="function", name="f"),))
    async with connected() as (_, provider):
        with pytest.raises(UnsupportedParameter, match="response_format"):
            await collect(provider, asked)


MODELS = {
    "modelSummaries": [
        {"modelId": "amazon.nova-pro-v1:0", "providerName": "Amazon", "outputModalities": ["TEXT"],
         "inferenceTypesSupported": ["ON_DEMAND"], "modelLifecycle": {"status": "ACTIVE"}},
        {"modelId": "anthropic.claude-opus-5", "outputModalities": ["TEXT"],
         "inferenceTypesSupported": ["INFERENCE_PROFILE"]},
        {"modelId": "amazon.nova-canvas-v1:0", "outputModalities": ["IMAGE"], "inferenceTypesSupported": ["ON_DEMAND"]},
    ]
}  # fmt: skip
PROFILES = {"inferenceProfileSummaries": [{"inferenceProfileId": "us.anthropic.claude-opus-5", "status": "ACTIVE"}]}
LISTS = (Answer.json(json.dumps(MODELS).encode()), Answer.json(json.dumps(PROFILES).encode()))


async def test_what_can_be_called_by_its_id_or_through_a_profile_is_listed() -> None:
    async with connected(*LISTS) as (upstream, provider):
        found = await provider.models()
        assert await provider.models() == found
        assert [seen.path for seen in upstream.requests] == [
            "/foundation-models",
            "/inference-profiles?maxResults=1000",
        ]
        assert upstream.requests[0].headers["authorization"] == "Bearer secret-key"
    assert [(row.id, row.owned_by) for row in found] == [
        ("amazon.nova-pro-v1:0", "Amazon"),
        ("us.anthropic.claude-opus-5", "bedrock"),
    ]


@pytest.mark.usefixtures("credentials")
async def test_lists_are_signed_without_a_key_for_the_host_that_has_them() -> None:
    async with MockUpstream(*LISTS) as proxy:
        provider = build(
            ProviderSettings(
                name="up",
                type="bedrock",
                base_url="http://bedrock-runtime.us-east-1.invalid",
                proxy=proxy.base_url.removesuffix("/v1"),
                options={"region": "us-east-1"},
            )
        )
        await provider.models()
        await provider.aclose()
    for seen in proxy.requests:
        assert seen.path.startswith("http://bedrock.us-east-1.invalid/")
        assert seen.headers["authorization"].endswith(f"Signature={signed_again('GET', seen.path, seen)}")


async def test_an_account_that_may_not_list_is_told() -> None:
    denied = Answer.json(b'{"message":"not authorized"}', 403, headers={"x-amzn-errortype": "AccessDeniedException"})
    async with connected(denied) as (_, provider):
        with pytest.raises(UpstreamAuth):
            await provider.models()


def test_lists_are_beside_the_host_that_answers() -> None:
    assert control_url("https://bedrock-runtime.eu-west-1.amazonaws.com") == "https://bedrock.eu-west-1.amazonaws.com"
    assert control_url("https://proxy.example") == "https://proxy.example"


async def test_titan_is_asked_for_each_text() -> None:
    answers = [Answer.json(b'{"embedding":[%d],"inputTextTokenCount":3}' % n) for n in (1, 1)]
    async with connected(*answers) as (upstream, provider):
        model = "amazon.titan-embed-text-v2:0"
        assert provider.embedding_fields(model) == {"dimensions"}
        found = await provider.embed(EmbeddingRequest(model=model, dialect="d", inputs=("a", "b"), dimensions=256))
        assert {seen.path for seen in upstream.requests} == {"/model/amazon.titan-embed-text-v2%3A0/invoke"}
        bodies = [json.loads(seen.body) for seen in upstream.requests]
    assert sorted(body["inputText"] for body in bodies) == ["a", "b"]
    assert {body["dimensions"] for body in bodies} == {256}
    assert found.usage == Usage(prompt_tokens=6)
    assert len(found.vectors) == 2


@pytest.mark.parametrize("vectors", [b"[[0.5]]", b'{"float":[[0.5]]}'])
async def test_cohere_is_asked_in_its_own_words(vectors: bytes) -> None:
    headers = {"x-amzn-bedrock-input-token-count": "4", "x-amzn-requestid": "aws-9"}
    answer = Answer.json(b'{"id":"x","embeddings":%b,"texts":["a"]}' % vectors, headers=headers)
    async with connected(answer) as (upstream, provider):
        asked = EmbeddingRequest(model="cohere.embed-multilingual-v3", dialect="d", inputs=("a",), purpose=QUERY)
        found = await provider.embed(asked)
        assert json.loads(upstream.requests[0].body) == {
            "texts": ["a"], "input_type": "search_query", "embedding_types": ["float"], "truncate": "NONE",
        }  # fmt: skip
    assert (found.usage, found.request_id) == (Usage(prompt_tokens=4), "aws-9")


async def test_a_model_that_gives_no_vectors_says_so() -> None:
    async with connected() as (_, provider):
        with pytest.raises(UnsupportedParameter, match="no embeddings"):
            await provider.embed(EmbeddingRequest(model="amazon.nova-pro-v1:0", dialect="d", inputs=("a",)))


async def test_documents_are_ranked_by_the_models_that_rank() -> None:
    headers = {"x-amzn-bedrock-input-token-count": "9", "x-amzn-requestid": "aws-3"}
    rows = [{"index": 1, "relevance_score": 0.25}, {"index": 0, "relevance_score": 0.75}]
    async with connected(Answer.json(json.dumps({"results": rows}).encode(), headers=headers)) as (upstream, provider):
        assert isinstance(provider, Reranker)
        assert provider.rerank_fields("cohere.rerank-v3-5:0") == {"top_n", EXTRAS}
        assert provider.rerank_fields("amazon.rerank-v1:0") == {"top_n"}
        asked = RerankRequest(model="amazon.rerank-v1:0", dialect="d", query="q", documents=("a", "b"), top_n=1)
        found = await provider.rerank(asked)
        assert upstream.requests[0].path == "/model/amazon.rerank-v1%3A0/invoke"
        assert json.loads(upstream.requests[0].body) == {"query": "q", "documents": ["a", "b"], "top_n": 1}
        assert [(each.index, each.score) for each in found.scores] == [(0, 0.75)]
        assert (found.usage, found.request_id) == (Usage(prompt_tokens=9), "aws-3")
        with pytest.raises(UnsupportedParameter, match="does not rank"):
            await provider.rerank(replace(asked, model="amazon.nova-pro-v1:0"))


def test_a_region_is_required() -> None:
    with pytest.raises(ValueError, match=r"providers\.up\.region"):
        build(ProviderSettings(name="up", type="bedrock"))


def test_what_a_family_takes_is_known() -> None:
    provider = build(ProviderSettings(name="up", type="bedrock", options={"region": "eu-west-1"}))
    assert "top_k" in provider.capabilities("eu.anthropic.claude-sonnet-4-5-20250929-v1:0").fields
    assert "top_k" not in provider.capabilities("amazon.nova-pro-v1:0").fields
    assert "temperature" not in provider.capabilities("anthropic.claude-opus-5").fields
