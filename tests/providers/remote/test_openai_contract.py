"""The OpenAI-shaped provider keeps the contract of providers, over a real socket."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from adapters.canonical.request import Request
from providers.remote.openai_compatible import OpenAICompatible
from providers.testing.contract import TEXT, TOOL_CALLS, ProviderContract, Scene
from tests.mock_upstream import Answer, MockUpstream
from tests.providers.remote.openai_wire import (
    DONE,
    FIRST,
    LAST,
    STREAM,
    USAGE,
    call_delta,
    chunk,
    connected,
    request,
    whole,
)

pytestmark = pytest.mark.timeout(20)


class OpenAIStage:
    """The provider, and an upstream that plays scenes in chat completions' words."""

    def __init__(self, upstream: MockUpstream, provider: OpenAICompatible) -> None:
        self.provider = provider
        self._upstream = upstream
        self._scene = Scene.TEXT
        self._seen = 0

    def set(self, scene: Scene) -> None:
        self._scene = scene
        self._seen = len(self._upstream.requests)

    def request(self, *, stream: bool) -> Request:
        self._upstream.script(self._streamed() if stream else self._whole())
        return request(stream=stream)

    def _streamed(self) -> Answer:
        match self._scene:
            case Scene.TEXT:
                return STREAM
            case Scene.LENGTH:
                return Answer.sse([FIRST, LAST, chunk({}, "length"), chunk(usage=USAGE), DONE])
            case Scene.TOOLS:
                pieces = []
                for index, (name, arguments) in enumerate(TOOL_CALLS):
                    start = call_delta(index, name=name, arguments="")
                    start["tool_calls"][0]["id"] = f"call_{index}"
                    pieces += [chunk(start), chunk(call_delta(index, arguments=arguments[:5]))]
                    pieces += [chunk(call_delta(index, arguments=arguments[5:]))]
                return Answer.sse([*pieces, chunk({}, "tool_calls"), chunk(usage=USAGE), DONE])
            case Scene.BROKEN:
                return Answer.sse([FIRST], then="reset")
            case Scene.STALLED:
                return Answer.sse([FIRST], then="hang")
            case Scene.REFUSED | Scene.SILENT:
                return self._whole()

    def _whole(self) -> Answer:
        match self._scene:
            case Scene.TEXT:
                return whole({"content": TEXT})
            case Scene.LENGTH:
                return whole({"content": TEXT}, "length")
            case Scene.TOOLS:
                calls = [
                    {"id": f"call_{i}", "type": "function", "function": {"name": name, "arguments": arguments}}
                    for i, (name, arguments) in enumerate(TOOL_CALLS)
                ]
                return whole({"content": None, "tool_calls": calls}, "tool_calls")
            case Scene.REFUSED:
                return Answer.json(b'{"error": {"message": "busy", "code": "overloaded"}}', 503)
            case Scene.SILENT:
                return Answer(silent=True, then="hang")
            case Scene.BROKEN | Scene.STALLED:
                raise AssertionError("only streams break in the middle")

    async def reached(self) -> None:
        await self._upstream.seen(self._seen + 1)

    async def freed(self) -> None:
        await self._upstream.idle(within_s=1)


class TestContract(ProviderContract):
    @pytest_asyncio.fixture
    async def stage(self) -> AsyncIterator[OpenAIStage]:
        async with connected(STREAM) as (upstream, provider):
            yield OpenAIStage(upstream, provider)
