"""The provider for Cohere, over a real socket: its contract, its key and its list of models."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import pytest_asyncio

from adapters.canonical.request import Request
from providers.base import ProviderSettings
from providers.registry import build
from providers.remote.cohere import CohereProvider
from providers.testing.contract import TEXT, TOOL_CALLS, ProviderContract, Scene
from tests.mock_upstream import Answer, MockUpstream
from tests.providers.remote.anthropic_wire import request
from tests.providers.remote.calls import collect

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


@asynccontextmanager
async def connected(*answers: Answer) -> AsyncIterator[tuple[MockUpstream, CohereProvider]]:
    async with MockUpstream(*answers) as upstream:
        base_url = upstream.base_url.removesuffix("/v1") + "/v2"
        provider = build(ProviderSettings(name="co", type="cohere", base_url=base_url, api_key="secret-key"))
        assert isinstance(provider, CohereProvider)
        try:
            yield upstream, provider
        finally:
            await provider.aclose()


class CohereStage:
    """The provider, and an upstream that plays scenes in Cohere's words."""

    def __init__(self, upstream: MockUpstream, provider: CohereProvider) -> None:
        self.provider = provider
        self._upstream = upstream
        self._scene = Scene.TEXT
        self._seen = 0

    def set(self, scene: Scene) -> None:
        self._scene = scene
        self._seen = len(self._upstream.requests)

    def request(self, *, stream: bool) -> Request:
        self._upstream.script(self._answer(stream))
        return request(stream=stream)

    def _answer(self, stream: bool) -> Answer:
        halves = [said(TEXT[:3]), said(TEXT[3:])]
        content = [{"type": "text", "text": TEXT}]
        match self._scene:
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

    async def reached(self) -> None:
        await self._upstream.seen(self._seen + 1)

    async def freed(self) -> None:
        await self._upstream.idle(within_s=1)


class TestContract(ProviderContract):
    @pytest_asyncio.fixture
    async def stage(self) -> AsyncIterator[CohereStage]:
        async with connected(whole(content=[])) as (upstream, provider):
            yield CohereStage(upstream, provider)


async def test_the_key_is_a_bearer() -> None:
    async with connected(streamed(said("hi"))) as (upstream, provider):
        await collect(provider.stream(request(stream=True)))
        assert upstream.requests[0].path == "/v2/chat"
        assert upstream.requests[0].headers["authorization"] == "Bearer secret-key"


async def test_models_are_listed_with_their_windows_beside_the_version() -> None:
    rows = b'{"models":[{"name":"command-a-03-2025","context_length":288000.0},{"name":"x"}]}'
    async with connected(Answer.json(rows)) as (upstream, provider):
        found = await provider.models()
        assert upstream.requests[0].path == "/v1/models?endpoint=chat&page_size=1000"
    assert [(row.id, row.context) for row in found] == [("command-a-03-2025", 288000), ("x", None)]
