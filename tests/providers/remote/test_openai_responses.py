"""The provider for the Responses API, over a real socket: its contract, its settings, counts and lists."""

import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from functools import partial
from typing import Any

import pytest
import pytest_asyncio

from adapters.canonical.errors import (
    BadUpstreamResponse,
    UnsupportedParameter,
    UpstreamRateLimited,
)
from adapters.canonical.events import Event, Started
from adapters.canonical.messages import USER, Message, Text
from adapters.canonical.request import Request
from adapters.canonical.result import fold
from providers.abilities import Compactor, TokenCounter
from providers.base import ProviderSettings
from providers.registry import build
from providers.remote.openai_responses import OpenAIResponses
from providers.testing.contract import TEXT, TOOL_CALLS, ProviderContract, Scene
from tests.mock_upstream import Answer
from tests.providers.remote.connection import connected_to
from tests.providers.remote.wire_stage import WireStage

pytestmark = pytest.mark.timeout(20)
HEAD = {"id": "resp_up", "created_at": 1, "model": "m", "object": "response"}
USAGE = {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7}


def event(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


def final(output: list[Any], status: str = "completed", **fields: Any) -> dict[str, Any]:
    return {**HEAD, "status": status, "output": output, "usage": USAGE, **fields}


def message(text: str) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content}


def call(index: int, arguments: str | None = None) -> dict[str, Any]:
    name, whole = TOOL_CALLS[index]
    found = {"type": "function_call", "id": f"fc_{index}", "call_id": f"call_{index}", "name": name}
    return {**found, "arguments": whole if arguments is None else arguments}


CREATED = event("response.created", response={**HEAD, "status": "in_progress", "output": []})
ADDED = event("response.output_item.added", output_index=0, item={**message(""), "content": []})
CUT = {"incomplete_details": {"reason": "max_output_tokens"}}


def delta(text: str) -> bytes:
    return event("response.output_text.delta", output_index=0, content_index=0, item_id="msg_1", delta=text)


FIRST = [CREATED, ADDED, delta(TEXT[:3])]
SPOKEN = [*FIRST, delta(TEXT[3:]), event("response.output_item.done", output_index=0, item=message(TEXT))]
STREAM = Answer.sse([*SPOKEN, event("response.completed", response=final([message(TEXT)]))])


def request(*, stream: bool = True, **changes: Any) -> Request:
    values: dict[str, Any] = {"messages": (Message(role=USER, parts=(Text(text="hi"),)),), **changes}
    return Request(model="m", dialect="openai.responses", stream=stream, **values)


connected = partial(connected_to, OpenAIResponses, type="openai-responses")


async def collect(provider: OpenAIResponses, asked: Request) -> list[Event]:
    async with aclosing(provider.stream(asked)) as batches:
        return [found async for batch in batches for found in batch]


def _answer(scene: Scene, stream: bool) -> Answer:
    return _streamed(scene) if stream else _whole(scene)


def _streamed(scene: Scene) -> Answer:
    match scene:
        case Scene.TEXT:
            return STREAM
        case Scene.LENGTH:
            last = event("response.incomplete", response=final([message(TEXT)], "incomplete", **CUT))
            return Answer.sse([*SPOKEN, last])
        case Scene.TOOLS:
            pieces = [CREATED]
            for index, (_, arguments) in enumerate(TOOL_CALLS):
                at = {"output_index": index, "item_id": f"fc_{index}"}
                pieces.append(event("response.output_item.added", output_index=index, item=call(index, "")))
                for piece in (arguments[:5], arguments[5:]):
                    pieces.append(event("response.function_call_arguments.delta", **at, delta=piece))
                pieces.append(event("response.output_item.done", output_index=index, item=call(index)))
            return Answer.sse([*pieces, event("response.completed", response=final([]))])
        case Scene.BROKEN:
            return Answer.sse(FIRST, then="reset")
        case Scene.STALLED:
            return Answer.sse(FIRST, then="hang")
        case Scene.REFUSED | Scene.SILENT:
            return _whole(scene)


def _whole(scene: Scene) -> Answer:
    match scene:
        case Scene.TEXT:
            return _json(final([message(TEXT)]))
        case Scene.LENGTH:
            return _json(final([message(TEXT)], "incomplete", **CUT))
        case Scene.TOOLS:
            return _json(final([call(index) for index in range(len(TOOL_CALLS))]))
        case Scene.REFUSED:
            return Answer.json(b'{"error": {"message": "busy", "code": "overloaded"}}', 503)
        case Scene.SILENT:
            return Answer(silent=True, then="hang")
        case Scene.BROKEN | Scene.STALLED:
            raise AssertionError("only streams break in the middle")


def _json(body: dict[str, Any]) -> Answer:
    return Answer.json(json.dumps(body).encode())


class TestContract(ProviderContract):
    @pytest_asyncio.fixture
    async def stage(self) -> AsyncIterator[WireStage]:
        async with connected(STREAM) as (upstream, provider):
            yield WireStage(upstream, provider, _answer, request)


async def test_the_call_goes_to_responses_with_the_key_and_stores_nothing() -> None:
    async with connected(_json(final([message("ok")]))) as (upstream, provider):
        await collect(provider, request(stream=False))
    (seen,) = upstream.requests
    assert (seen.path, seen.headers["authorization"]) == ("/v1/responses", "Bearer secret-key")
    assert json.loads(seen.body)["store"] is False


async def test_several_choices_are_several_calls() -> None:
    async with connected(STREAM) as (upstream, provider):
        found = fold(await collect(provider, request(n=2)))
    assert len(found.choices) == len(upstream.requests) == 2


async def test_the_id_of_the_upstreams_request_is_known() -> None:
    answer = Answer.json(json.dumps(final([message("ok")])).encode(), headers={"x-request-id": "up-1"})
    async with connected(answer) as (_, provider):
        (started, *_) = await collect(provider, request(stream=False))
    assert started == Started("resp_up", 1, "m", "up-1")


async def test_tokens_are_counted_by_the_upstream() -> None:
    async with connected(Answer.json(b'{"object":"response.input_tokens","input_tokens":11}')) as (upstream, provider):
        assert isinstance(provider, TokenCounter)
        assert await provider.count_tokens(request()) == (11,)
        assert upstream.requests[0].path == "/v1/responses/input_tokens"
        upstream.script(Answer.json(b"{}"))
        with pytest.raises(BadUpstreamResponse):
            await provider.count_tokens(request())


async def test_an_input_is_made_short_by_the_upstream_where_it_can() -> None:
    items = [message("kept"), {"type": "compaction", "id": "cmp_1", "encrypted_content": "blob"}]
    made = json.dumps({"id": "c", "object": "response.compaction", "created_at": 1, "output": items, "usage": USAGE})
    async with connected(Answer.json(made.encode())) as (upstream, provider):
        assert isinstance(provider, Compactor)
        found = await provider.compact(request(max_tokens=9, prompt_cache_key="k"))
        assert [json.loads(item) for item in found.items] == items
        assert found.usage is not None
        assert found.usage.completion_tokens == 4
        (seen,) = upstream.requests
        assert seen.path == "/v1/responses/compact"
        assert set(json.loads(seen.body)) == {"model", "input", "prompt_cache_key"}
        for broken in (b"{}", b'{"output": []}', b"[]"):
            upstream.script(Answer.json(broken))
            with pytest.raises(BadUpstreamResponse):
                await provider.compact(request())


async def test_a_server_without_compaction_is_not_asked_for_it_again() -> None:
    missing = Answer.json(b'{"error": {"message": "no such path"}}', status=404)
    async with connected(missing) as (upstream, provider):
        for _ in range(2):
            with pytest.raises(UnsupportedParameter):
                await provider.compact(request())
        assert len(upstream.requests) == 1


async def test_a_server_that_is_busy_may_be_asked_again_for_a_compaction() -> None:
    busy = Answer.json(b'{"error": {"message": "slow down"}}', status=429)
    async with connected(busy) as (upstream, provider):
        for _ in range(2):
            with pytest.raises(UpstreamRateLimited):
                await provider.compact(request())
        assert len(upstream.requests) == 2


async def test_models_are_those_of_the_server() -> None:
    async with connected(Answer.json(b'{"data": [{"id": "a", "context_length": 8}]}')) as (_, provider):
        (entry,) = await provider.models()
    assert (entry.id, entry.context) == ("a", 8)


async def test_default_fields_are_sent_where_the_request_has_none() -> None:
    async with connected(_json(final([message("ok")])), params={"max_tokens": 9, "top_k": 3}) as (upstream, provider):
        await collect(provider, request(stream=False, max_tokens=5))
    sent = json.loads(upstream.requests[0].body)
    assert (sent["max_output_tokens"], sent["top_k"]) == (5, 3)


async def test_openais_own_models_are_sent_no_fields_of_engines_that_it_refuses() -> None:
    engines = {"top_k", "seed", "stop", "reasoning.budget_tokens", "template.kwargs", "presence_penalty"}
    async with connected(STREAM) as (_, provider):
        for own in ("gpt-5.5", "openai/o4-mini", "codex-mini-latest"):
            assert not engines & provider.capabilities(own).fields
        for other in ("gpt-oss-120b", "qwen3"):
            assert engines <= provider.capabilities(other).fields


@pytest.mark.parametrize(
    ("changes", "what"), [({"params": {"store": True}}, "params.store"), ({"base_url": None}, "base_url")]
)
def test_settings_that_cannot_work_are_refused_by_name(changes: dict[str, Any], what: str) -> None:
    values: dict[str, Any] = {"base_url": "http://127.0.0.1:9/v1", **changes}
    with pytest.raises(ValueError, match=what):
        build(ProviderSettings(name="up", type="openai-responses", **values))
