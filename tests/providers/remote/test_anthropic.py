"""The provider for Anthropic, over a real socket: its contract, its headers, pauses, counts and lists."""

import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest
import pytest_asyncio

from adapters.canonical.errors import GatewayError, ModelNotFound, UpstreamOverloaded
from adapters.canonical.events import ChoiceFinished, Event, Started
from adapters.canonical.messages import Opaque, Reasoning, Text
from adapters.canonical.request import Request, Sampling, Tool
from adapters.canonical.result import fold
from adapters.canonical.stop_reason import StopReason
from adapters.canonical.usage import Usage
from providers.abilities import TokenCounter
from providers.base import ProviderSettings
from providers.remote.anthropic import AnthropicProvider
from providers.remote.paused_turns import MAX_CONTINUATIONS
from providers.testing.contract import TEXT, TOOL_CALLS, ProviderContract, Scene
from tests.mock_upstream import Answer, MockUpstream
from tests.providers.remote.anthropic_wire import (
    connected,
    delta,
    event,
    finish,
    request,
    start,
    streamed,
    text_block,
    whole,
)
from tests.providers.remote.wire_stage import WireStage

pytestmark = pytest.mark.timeout(20)
HOSTED = Tool(kind="hosted", name="web_search_20250305", raw=b'{"type":"web_search_20250305","name":"web_search"}')


def _answer(scene: Scene, stream: bool) -> Answer:
    return _streamed(scene) if stream else _whole(scene)


def _streamed(scene: Scene) -> Answer:
    opened = [start(), *text_block(TEXT[:3], TEXT[3:])[:2]]
    match scene:
        case Scene.TEXT:
            return streamed(*text_block(TEXT[:3], TEXT[3:]))
        case Scene.LENGTH:
            return streamed(*text_block(TEXT), reason="max_tokens")
        case Scene.TOOLS:
            return streamed(*_calls(), reason="tool_use")
        case Scene.BROKEN:
            return Answer.sse(opened, then="reset")
        case Scene.STALLED:
            return Answer.sse(opened, then="hang")
        case Scene.REFUSED | Scene.SILENT:
            return _whole(scene)


def _calls() -> list[bytes]:
    pieces: list[bytes] = []
    for index, (name, arguments) in enumerate(TOOL_CALLS):
        block = {"type": "tool_use", "id": f"toolu_{index}", "name": name, "input": {}}
        pieces.append(event("content_block_start", index=index, content_block=block))
        pieces += [delta(index, type="input_json_delta", partial_json=part) for part in (arguments[:5], arguments[5:])]
        pieces.append(event("content_block_stop", index=index))
    return pieces


def _whole(scene: Scene) -> Answer:
    match scene:
        case Scene.TEXT:
            return whole({"type": "text", "text": TEXT})
        case Scene.LENGTH:
            return whole({"type": "text", "text": TEXT}, reason="max_tokens")
        case Scene.TOOLS:
            calls = [
                {"type": "tool_use", "id": f"toolu_{i}", "name": name, "input": json.loads(arguments)}
                for i, (name, arguments) in enumerate(TOOL_CALLS)
            ]
            return whole(*calls, reason="tool_use")
        case Scene.REFUSED:
            return refusal(529, "overloaded_error")
        case Scene.SILENT:
            return Answer(silent=True, then="hang")
        case Scene.BROKEN | Scene.STALLED:
            raise AssertionError("only streams break in the middle")


class TestContract(ProviderContract):
    @pytest_asyncio.fixture
    async def stage(self) -> AsyncIterator[WireStage]:
        async with connected(whole({"type": "text", "text": TEXT})) as (upstream, provider):
            yield WireStage(upstream, provider, _answer, request)


def refusal(status: int, kind: str) -> Answer:
    return Answer.json(json.dumps({"type": "error", "error": {"type": kind, "message": "busy"}}).encode(), status)


async def collect(provider: AnthropicProvider, asked: Request) -> list[Event]:
    async with aclosing(provider.stream(asked)) as batches:
        return [found async for batch in batches for found in batch]


OK = whole({"type": "text", "text": "ok"})


async def test_the_key_and_the_version_are_headers_and_the_upstreams_request_id_is_kept() -> None:
    answer = Answer.json(OK.pieces[0], headers={"request-id": "req_up"})
    async with connected(answer) as (upstream, provider):
        events = await collect(provider, request(stream=False, request_id="ours"))
    headers = upstream.requests[0].headers
    assert upstream.requests[0].path == "/v1/messages"
    assert headers["x-api-key"] == "secret-key"
    assert "authorization" not in headers
    assert headers["anthropic-version"] == "2026-10-21"
    assert headers["x-request-id"] == "ours"
    assert isinstance(events[0], Started)
    assert events[0].request_id == "req_up"


@pytest.mark.parametrize(
    ("sampling", "options", "version"),
    [
        (Sampling(), {}, "2026-10-21"),
        (Sampling(stop=("a",)), {}, "2026-10-21"),
        (Sampling(temperature=1.0), {}, "2023-06-01"),
        (Sampling(top_p=0.5), {}, "2023-06-01"),
        (Sampling(top_k=3), {}, "2023-06-01"),
        (Sampling(top_k=3), {"api_version": "2026-10-21"}, "2026-10-21"),
    ],
)
async def test_the_version_follows_from_the_request(sampling: Sampling, options: Any, version: str) -> None:
    async with connected(OK, options=options) as (upstream, provider):
        await collect(provider, request(stream=False, sampling=sampling))
    assert upstream.requests[0].headers["anthropic-version"] == version


async def test_betas_go_with_a_request_of_this_dialect_alone() -> None:
    betas = {"anthropic-beta": "one,two"}
    async with connected(OK) as (upstream, provider):
        await collect(provider, request(stream=False, dialect="anthropic.messages", headers=betas))
        await collect(provider, request(stream=False, headers=betas))
    first, second = (seen.headers for seen in upstream.requests)
    assert first["anthropic-beta"] == "one,two"
    assert "anthropic-beta" not in second


async def test_models_that_refuse_sampling_and_budgets_do_not_declare_them() -> None:
    async with connected(OK) as (_, provider):
        for model in ("claude-opus-5", "claude-opus-4-7-20260301", "claude-sonnet-5-5", "claude-haiku-5-5"):
            fields = provider.capabilities(model).fields
            assert not fields & {"temperature", "top_p", "top_k", "reasoning.budget_tokens"}, model
        for model in ("claude-opus-4-6", "claude-sonnet-4-5-20250929", "claude-3-7-sonnet-20250219", "some-model"):
            fields = provider.capabilities(model).fields
            assert fields >= {"temperature", "top_p", "top_k", "reasoning.budget_tokens"}, model


async def test_json_of_any_shape_is_a_form_that_anthropic_does_not_declare() -> None:
    async with connected(OK) as (_, provider):
        for model in ("claude-opus-5", "claude-3-haiku-20240307", "some-model"):
            assert provider.capabilities(model).output_formats == frozenset({"json_schema"}), model


async def test_a_long_answer_that_is_not_streamed_is_streamed_upstream() -> None:
    async with connected(streamed(*text_block("ok"))) as (upstream, provider):
        events = await collect(provider, request(stream=False, max_tokens=21_334))
        assert fold(events).choices[0].parts == (Text(text="ok"),)
        assert json.loads(upstream.requests[0].body)["stream"] is True
        upstream.script(OK)
        await collect(provider, request(stream=False, max_tokens=21_333))
        assert "stream" not in json.loads(upstream.requests[1].body)


async def test_params_are_sent_where_the_request_has_none() -> None:
    async with connected(OK, params={"max_tokens": 7, "speed": "fast"}) as (upstream, provider):
        await collect(provider, request(stream=False))
        await collect(provider, request(stream=False, max_tokens=9))
    bodies = [json.loads(seen.body) for seen in upstream.requests]
    assert [(body["max_tokens"], body["speed"]) for body in bodies] == [(7, "fast"), (9, "fast")]
    with pytest.raises(ValueError, match=r"providers.up.params.messages"):
        async with connected(OK, params={"messages": []}):
            pass


SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "SIG"}


def paused(stream: bool) -> Answer:
    if not stream:
        return whole(THOUGHT, SEARCH, reason="pause_turn")
    blocks = [
        piece
        for index, block in enumerate((THOUGHT, SEARCH))
        for piece in (
            event("content_block_start", index=index, content_block=block),
            event("content_block_stop", index=index),
        )
    ]
    return streamed(*blocks, reason="pause_turn")


@pytest.mark.parametrize("stream", [True, False])
async def test_a_paused_turn_is_sent_back_and_goes_on_as_one_answer(stream: bool) -> None:
    last = streamed(*text_block("found")) if stream else whole({"type": "text", "text": "found"})
    async with connected(paused(stream), last) as (upstream, provider):
        events = await collect(provider, request(stream=stream, dialect="anthropic.messages", tools=(HOSTED,)))
    result = fold(events)
    thought, search, text = result.choices[0].parts
    assert isinstance(thought, Reasoning)
    assert isinstance(search, Opaque)
    assert text == Text(text="found")
    assert result.choices[0].finish.reason is StopReason.STOP
    assert sum(isinstance(found, Started) for found in events) == 1
    assert result.usage == Usage(prompt_tokens=6, completion_tokens=8)
    first, second = (json.loads(seen.body) for seen in upstream.requests)
    assert second["messages"] == [*first["messages"], {"role": "assistant", "content": [THOUGHT, SEARCH]}]


async def test_a_turn_is_sent_back_only_so_often() -> None:
    async with connected(paused(True)) as (upstream, provider):
        events = await collect(provider, request(dialect="anthropic.messages", tools=(HOSTED,)))
    finishes = [found.reason for found in events if isinstance(found, ChoiceFinished)]
    assert finishes == [StopReason.PAUSED]
    assert len(upstream.requests) == MAX_CONTINUATIONS + 1


async def test_choices_are_asked_for_one_by_one() -> None:
    async with connected(OK) as (upstream, provider):
        events = await collect(provider, request(stream=False, n=2))
    assert [choice.index for choice in fold(events).choices] == [0, 1]
    assert len(upstream.requests) == 2
    assert all("n" not in json.loads(seen.body) for seen in upstream.requests)


async def test_tokens_are_counted_by_the_upstream() -> None:
    async with connected(Answer.json(b'{"input_tokens":17}')) as (upstream, provider):
        assert isinstance(provider, TokenCounter)
        asked = request(max_tokens=9, sampling=Sampling(temperature=0.5, stop=("x",)))
        assert await provider.count_tokens(asked) == (17,)
        seen = upstream.requests[0]
        assert seen.path == "/v1/messages/count_tokens"
        assert json.loads(seen.body) == {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
        upstream.script(refusal(529, "overloaded_error"))
        with pytest.raises(UpstreamOverloaded):
            await provider.count_tokens(asked)
        upstream.script(Answer.json(b'{"tokens":17}'))
        with pytest.raises(GatewayError, match="no token count"):
            await provider.count_tokens(asked)


@pytest.mark.parametrize(("path", "told"), [("", "should it end in /v1?"), ("/v1", "")])
async def test_a_404_below_an_address_without_a_path_says_so_whatever_was_asked(path: str, told: str) -> None:
    async with MockUpstream(refusal(404, "not_found_error")) as upstream:
        base_url = upstream.base_url.removesuffix("/v1") + path
        provider = AnthropicProvider(ProviderSettings(name="up", type="anthropic", base_url=base_url, api_key="k"))
        for asked in (collect(provider, request()), provider.count_tokens(request()), provider.models()):
            with pytest.raises(ModelNotFound) as caught:
                await asked
            assert ("should it end" in caught.value.message) == bool(told)
            assert told in caught.value.message
        await provider.aclose()


async def test_models_are_listed_once_a_minute() -> None:
    row = {"type": "model", "id": "claude-x", "display_name": "X", "created_at": "2026-01-01T00:00:00Z"}
    body = {"data": [{**row, "max_input_tokens": 200_000}, {**row, "id": "claude-y"}], "has_more": False}
    async with connected(Answer.json(json.dumps(body).encode())) as (upstream, provider):
        models = await provider.models()
        assert await provider.models() == models
    assert [(model.id, model.context, model.created) for model in models] == [
        ("claude-x", 200_000, 1767225600),
        ("claude-y", None, 1767225600),
    ]
    assert len(upstream.requests) == 1
    assert upstream.requests[0].headers["anthropic-version"]


async def test_an_error_after_the_finish_takes_nothing_away() -> None:
    error = event("error", error={"type": "overloaded_error", "message": "late"})
    async with connected(Answer.sse([start(), *text_block("ok"), *finish(), error])) as (_, provider):
        seen: list[Event] = []
        with pytest.raises(UpstreamOverloaded):
            await collect_into(seen, provider)
    assert fold(seen).choices[0].parts == (Text(text="ok"),)


async def collect_into(seen: list[Event], provider: AnthropicProvider) -> None:
    async with aclosing(provider.stream(request())) as batches:
        async for batch in batches:
            seen += batch
