"""The OpenAI-shaped provider keeps the contract of providers, over a real socket."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from providers.testing.contract import TEXT, TOOL_CALLS, ProviderContract, Scene
from tests.mock_upstream import Answer
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
from tests.providers.remote.wire_stage import WireStage

pytestmark = pytest.mark.timeout(20)


def _answer(scene: Scene, stream: bool) -> Answer:
    return _streamed(scene) if stream else _whole(scene)


def _streamed(scene: Scene) -> Answer:
    match scene:
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
            return _whole(scene)


def _whole(scene: Scene) -> Answer:
    match scene:
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


class TestContract(ProviderContract):
    @pytest_asyncio.fixture
    async def stage(self) -> AsyncIterator[WireStage]:
        async with connected(STREAM) as (upstream, provider):
            yield WireStage(upstream, provider, _answer, request)
