"""The twelve things that every translation must keep, each as a test over all dialects that it concerns.

Numbers in the names are those of the list: parallel calls, thinking loops, hidden thoughts, thought signatures, SDKs on
any order of blocks, usage, overload inside a 200, clients that leave, secrets, unsupported parameters, bodies that can
be cached, and what nobody knows yet.
"""

import asyncio
import io
import json
import re
from collections.abc import Iterable
from contextlib import aclosing
from typing import Any

import pytest
from anthropic.lib.streaming._messages import accumulate_event
from anthropic.types import RawMessageStreamEvent
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletionChunk
from pydantic import TypeAdapter

from adapters.anthropic.front import MessagesFront
from adapters.anthropic.upstream import MessagesUpstream
from adapters.canonical.errors import UnsupportedParameter, UpstreamOverloaded
from adapters.canonical.events import (
    ChoiceFinished,
    Event,
    ReasoningDelta,
    ReasoningFinished,
    Started,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallFinished,
    ToolCallStarted,
)
from adapters.canonical.request import Request
from adapters.canonical.result import fold
from adapters.canonical.stop_reason import StopReason
from adapters.front import AnswerHead, Front
from adapters.openai.chat.front import ChatFront
from gateway.routing.requirements import fit
from providers.base import ProviderSettings
from providers.models.facts import families
from providers.registry import build
from tests.adapters.anthropic.exchange import chat as anthropic_chat
from tests.adapters.anthropic.exchange import messages as anthropic_messages
from tests.adapters.anthropic.exchange import sse
from tests.adapters.conversations import CLIENTS, SERVERS, Turn
from tests.adapters.gemini.exchange import chat as gemini_chat
from tests.adapters.golden_case import golden_cases
from tests.adapters.test_conversations import MODEL, Conversation
from tests.adapters.test_golden import BOTH, exchange_of

EVENT: TypeAdapter[RawMessageStreamEvent] = TypeAdapter(RawMessageStreamEvent)
HEAD = AnswerHead("id", 1790000000, "m")
THREE = Turn("model", "", [("f", {"x": 1}), ("g", {}), ("f", {"x": 2})])
NO_IDS = ("gemini", "ollama")
"""These number calls themselves, or not at all."""
pairs = pytest.mark.parametrize(("client", "server"), [(c, s) for c in CLIENTS for s in SERVERS])


@pairs
def test_01_three_parallel_calls_are_one_turn_there_and_back_with_their_ids(client: str, server: str) -> None:
    conversation = Conversation(CLIENTS[client], SERVERS[server])
    conversation.ask("go")
    kept, told = conversation.hear(THREE)
    assert told == THREE
    conversation.answer_calls(kept, THREE)
    seen = conversation.seen()
    assert [turn.role for turn in seen] == ["user", "model", "user"]
    assert [name for name, _ in seen[-1].results] == ["f", "g", "f"]
    if server not in NO_IDS and client not in NO_IDS:
        body = SERVERS[server].upstream().render_request(conversation.request()).decode()
        for call_id in set(re.findall(r"(?:call|toolu|tooluse)_\d+", json.dumps(kept))):
            assert len(re.findall(rf'"{call_id}"', body)) == 2


def check_messages(body: dict[str, Any], thoughts: list[list[dict[str, Any]]]) -> None:
    """What the Messages API refuses: calls without results right after, and thoughts that are not as they were."""
    made = [turn for turn in body["messages"] if turn["role"] == "assistant"]
    assert [turn["role"] for turn in body["messages"]] == ["user", "assistant"] * len(made) + ["user"]
    for place, turn in enumerate(body["messages"]):
        if turn["role"] == "assistant":
            calls = [block["id"] for block in turn["content"] if block["type"] == "tool_use"]
            after = body["messages"][place + 1]["content"]
            assert [block["tool_use_id"] for block in after if block["type"] == "tool_result"] == calls
    found = [[b for b in turn["content"] if b["type"] in ("thinking", "redacted_thinking")] for turn in made]
    assert found == thoughts


SHOWN = {"type": "thinking", "thinking": "hm", "signature": "SIG+/=="}
OMITTED = {"type": "thinking", "thinking": "", "signature": "SIG2"}
REDACTED = {"type": "redacted_thinking", "data": "UkVE"}


@pytest.mark.parametrize("temperature", [None, 1.0], ids=["2026-10-21", "2023-06-01"])
@pytest.mark.parametrize(
    "thoughts", [[SHOWN], [OMITTED, REDACTED], [REDACTED, SHOWN]], ids=["02", "03_omitted", "03_redacted"]
)
@pytest.mark.parametrize("through", ["chat", "messages"])
def test_02_03_a_loop_of_thinking_and_tools_is_played_back_as_it_was(
    through: str, thoughts: list[dict[str, Any]], temperature: float | None
) -> None:
    ask = anthropic_chat if through == "chat" else anthropic_messages
    more: dict[str, Any] = {} if temperature is None else {"temperature": temperature}
    if through == "chat":
        more |= {"reasoning_effort": "high", "tools": [{"type": "function", "function": {"name": "f"}}]}
    else:
        more |= {"thinking": {"type": "adaptive"}, "tools": [{"name": "f", "input_schema": {"type": "object"}}]}
    said: list[Any] = [{"role": "user", "content": "go"}]
    for turn in range(3):
        exchange = ask(messages=said, model="claude-sonnet-4-6", **more)
        check_messages(exchange.sent(), [thoughts] * turn)
        assert exchange.version() == ("2026-10-21" if temperature is None else "2023-06-01")
        assert exchange.sent()["thinking"]["type"] == "adaptive"
        blocks = [*thoughts, {"type": "tool_use", "id": f"t{turn}", "name": "f", "input": {}}]
        body = {"type": "message", "content": blocks, "stop_reason": "tool_use"}
        events, error = exchange.read_body(json.dumps(body).encode())
        assert error is None
        answer = json.loads(exchange.answer(events))
        if through == "chat":
            said += [answer["choices"][0]["message"], {"role": "tool", "tool_call_id": f"t{turn}", "content": "ok"}]
        else:
            result = {"type": "tool_result", "tool_use_id": f"t{turn}", "content": "ok"}
            said += [{"role": "assistant", "content": answer["content"]}, {"role": "user", "content": [result]}]


def test_04_signatures_of_parallel_and_sequential_calls_of_gemini_come_back_in_their_parts() -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    said: list[Any] = [{"role": "user", "content": "go"}]
    steps: list[list[Any]] = [
        [
            {"functionCall": {"id": "a", "name": "f", "args": {}}, "thoughtSignature": "U0lHMQ=="},
            {"functionCall": {"id": "b", "name": "f", "args": {}}},
            {"functionCall": {"id": "c", "name": "f", "args": {}}},
        ],
        [{"functionCall": {"id": "d", "name": "f", "args": {}}, "thoughtSignature": "U0lHMg=="}],
    ]
    for number, parts in enumerate(steps):
        exchange = gemini_chat(messages=said, tools=tools)
        made = [content["parts"] for content in exchange.sent()["contents"] if content["role"] == "model"]
        assert made == steps[:number]
        body = {"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}]}
        events, error = exchange.read_body(json.dumps(body).encode())
        assert error is None
        message = json.loads(exchange.answer(events))["choices"][0]["message"]
        said += [message, *({"role": "tool", "tool_call_id": c["id"], "content": "1"} for c in message["tool_calls"])]
    made = [content["parts"] for content in gemini_chat(messages=said, tools=tools).sent()["contents"][1::2]]
    assert made == steps


def part_events(part: int, kind: str) -> list[Event]:
    match kind:
        case "text":
            return [TextDelta(0, part, f"text {part}"), TextDelta(0, part, " more")]
        case "thought":
            signed = ReasoningFinished(0, part, signature=f"S{part}", origin="up")
            return [ReasoningDelta(0, part, f"thought {part}"), signed]
        case "hidden":
            return [ReasoningFinished(0, part, encrypted=f"E{part}", origin="up")]
        case _:
            started = ToolCallStarted(0, part, f"call_{part}", "f")
            return [
                started,
                ToolArgumentsDelta(0, part, '{"x":'),
                ToolArgumentsDelta(0, part, "1}"),
                ToolCallFinished(0, part),
            ]


@settings(max_examples=60)
@given(kinds=st.lists(st.sampled_from(("text", "thought", "hidden", "call")), min_size=1, max_size=7))
def test_05_the_sdks_read_blocks_in_any_order(kinds: list[str]) -> None:
    called = "call" in kinds
    finish = ChoiceFinished(0, StopReason.TOOL_CALLS if called else StopReason.STOP)
    events: list[Event] = [Started(id="1"), *[e for n, kind in enumerate(kinds) for e in part_events(n, kind)], finish]
    request = Request(model="m", dialect="x", stream=True, messages=())

    def stream(front: Front) -> list[Any]:
        renderer = front.renderer(request, HEAD)
        frames = renderer.feed(events) + renderer.finish()
        data = [line[6:] for line in frames.split(b"\n") if line.startswith(b"data: ")]
        return [json.loads(one) for one in data if one != b"[DONE]"]

    snapshot: Any = None
    pieces: dict[int, bytes] = {}
    for event in stream(MessagesFront()):
        snapshot = accumulate_event(event=EVENT.validate_python(event), current_snapshot=snapshot, json_bufs=pieces)
    whole = json.loads(MessagesFront().render_result(request, fold(events), HEAD))
    told = [block.type for block in snapshot.content]
    assert [block["type"] for block in whole["content"]] == told
    state = ChatCompletionStreamState()
    for chunk in stream(ChatFront()):
        state.handle_chunk(ChatCompletionChunk.model_validate(chunk))
    message = state.get_final_completion().choices[0].message
    body = json.loads(ChatFront().render_result(request, fold(events), HEAD))["choices"][0]["message"]
    assert (message.content or "") == (body["content"] or "")
    assert len(message.tool_calls or ()) == kinds.count("call")


def test_06_usage_of_a_stream_is_that_of_the_body_and_adds_up_with_caches() -> None:
    dialects: set[str] = set()
    for case in BOTH:
        assert case.stream is not None
        assert case.body is not None
        streamed, _ = exchange_of(case).read_stream(case.stream)
        body, _ = exchange_of(case).read_body(case.body)
        usage = fold(streamed).usage
        assert usage == fold(body).usage
        if usage is not None and usage.cached_tokens:
            dialects.add(case.dialect)
            assert usage.cached_tokens + (usage.cache_write_tokens or 0) <= (usage.prompt_tokens or 0)
    assert {"anthropic", "bedrock"} <= dialects


def test_06_every_price_of_a_cache_is_below_that_of_a_fresh_token() -> None:
    priced = [row.prices for row in families() if row.prices is not None]
    assert len(priced) > 30
    assert all(row.cache_read is None or row.cache_read < row.input for row in priced)


OVERLOADED = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}


def test_07_overload_inside_of_a_200_is_an_error_of_its_class_before_and_after_the_first_output() -> None:
    start = {"type": "message_start", "message": {"id": "m", "usage": {}}}
    block: list[dict[str, Any]] = [
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Half"}},
    ]
    for before in ([start], [start, *block]):
        exchange = anthropic_messages(stream=True)
        events, error = exchange.read_stream(sse(*before, OVERLOADED))
        assert isinstance(error, UpstreamOverloaded)
        assert error.retryable
        frames = exchange.stream(events, error)
        assert frames.count(b"event: error") == 1
        assert b"message_stop" not in frames


async def test_08_a_client_that_leaves_closes_the_call_within_a_second() -> None:
    reached, left = asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        reached.set()
        await reader.read()
        left.set()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    for stream in (True, False):
        reached.clear()
        left.clear()
        settings_ = ProviderSettings(name="x", type="openai", base_url=f"http://127.0.0.1:{port}/v1", api_key="k")
        provider = build(settings_)
        request = ChatFront().parse(
            json.dumps({"model": "m", "stream": stream, "messages": [{"role": "user", "content": "x"}]}).encode(),
            max_depth=9,
        )

        async def ask(provider: Any = provider, request: Request = request) -> None:
            async with aclosing(provider.stream(request)) as batches:
                async for _ in batches:
                    pass

        task = asyncio.create_task(ask())
        await reached.wait()
        task.cancel()
        async with asyncio.timeout(1):
            await left.wait()
        await asyncio.gather(task, return_exceptions=True)
        await provider.aclose()
    server.close()
    await server.wait_closed()


@pytest.mark.parametrize("kind", ["openai", "anthropic", "gemini", "cohere", "azure", "openai-responses"])
def test_09_no_provider_shows_its_key(kind: str) -> None:
    settings_ = ProviderSettings(name="x", type=kind, base_url="http://127.0.0.1:9/v1", api_key="s3cret-key")
    provider = build(settings_)
    shown = io.StringIO()
    print(settings_, repr(provider), str(provider), file=shown)
    assert "s3cret-key" not in shown.getvalue()


@pytest.mark.parametrize("drop", [True, False])
def test_10_temperature_to_a_model_without_it_follows_the_policy_and_is_told(drop: bool) -> None:
    provider = build(ProviderSettings(name="x", type="anthropic", api_key="k"))
    body = {"model": "claude-sonnet-5", "messages": [{"role": "user", "content": "x"}], "temperature": 0.2}
    request = ChatFront().parse(json.dumps(body).encode(), max_depth=9)
    capabilities = provider.capabilities("claude-sonnet-5")
    if drop:
        found = fit(request, capabilities, str, drop=True, completions_as_chat=False)
        assert found.dropped == ("temperature",)
        assert "temperature" not in json.loads(MessagesUpstream("x").render_request(found.request))
    else:
        with pytest.raises(UnsupportedParameter, match="temperature"):
            fit(request, capabilities, str, drop=False, completions_as_chat=False)


@pairs
def test_11_the_same_request_twice_is_the_same_bytes_and_a_longer_one_begins_with_them(
    client: str, server: str
) -> None:
    conversation = Conversation(CLIENTS[client], SERVERS[server])
    conversation.ask("go")
    before = turns_sent(conversation, server)
    for turn in MODEL[:2]:
        kept, _ = conversation.hear(turn)
        conversation.answer_calls(kept, turn)
        now = turns_sent(conversation, server)
        assert now[: len(before)] == before
        assert turns_sent(conversation, server) == now
        before = now


def turns_sent(conversation: Conversation, server: str) -> list[bytes]:
    """The messages of the body, each as its bytes."""
    body = json.loads(SERVERS[server].upstream().render_request(conversation.request()))
    turns: Iterable[Any] = body.get("messages") or body.get("contents") or body["input"]
    return [json.dumps(turn).encode() for turn in turns]


@pytest.mark.parametrize(
    "dialect", ["anthropic", "bedrock", "cohere", "gemini", "ollama", "openai", "openai_responses"]
)
def test_12_what_nobody_knows_yet_breaks_nothing(dialect: str) -> None:
    unknown = [case for case in golden_cases(dialect) if "unknown" in case.name]
    assert unknown
    for case in unknown:
        exchange = exchange_of(case)
        if case.stream is not None:
            events, error = exchange.read_stream(case.stream)
        elif case.body is not None:
            events, error = exchange.read_body(case.body)
        else:
            continue
        assert error is None or error.status < 600
        if error is None:
            reasons = {event.reason for event in events if isinstance(event, ChoiceFinished)}
            assert reasons
            assert StopReason.ERROR not in reasons
