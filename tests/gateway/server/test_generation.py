"""Answers as clients see them over a socket: one path for both modes, when the status goes out, and who leaves."""

import asyncio
import socket
from typing import Any

import aiohttp
import orjson
import pytest

from adapters.canonical.errors import (
    ContextOverflow,
    StreamTruncated,
    UpstreamAuth,
    UpstreamOverloaded,
    UpstreamQuota,
    UpstreamRateLimited,
    UpstreamUnreachable,
)
from adapters.canonical.events import Started
from providers.base import Batch, Capabilities
from providers.testing.scripted import Script, ScriptedProvider
from tests.gateway.server.running import FINISH, HELLO, Running, chat, error_of, running, text, until

USER = [{"role": "user", "content": "hi"}]
ONE_TRY = "reliability: {retry: {attempts: 1}}\n"


def frames(body: bytes) -> list[bytes]:
    """The data of the events in a stream."""
    return [line.removeprefix(b"data: ") for line in body.split(b"\n\n") if line.startswith(b"data: ")]


def streamed_text(body: bytes) -> str:
    chunks = [orjson.loads(frame) for frame in frames(body) if frame != b"[DONE]"]
    return "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])


def provider(*scripts: Script) -> ScriptedProvider:
    return ScriptedProvider("fake", *scripts)


async def test_an_answer_is_the_fold_of_its_stream() -> None:
    async with (
        running(provider(HELLO)) as gateway,
        gateway.post(chat()) as whole,
        gateway.post(chat(stream=True)) as stream,
    ):
        body = await whole.json()
        sent = await stream.read()
    assert body["choices"][0]["message"]["content"] == streamed_text(sent) == "Hello there"
    assert body["model"] == "fake/m"
    assert frames(sent)[-1] == b"[DONE]"


async def test_headers_tell_where_the_answer_came_from() -> None:
    async with running(provider(HELLO)) as gateway:
        for stream in (False, True):
            async with gateway.post(chat(stream=stream)) as answer:
                headers = {name.lower(): value for name, value in answer.headers.items()}
                assert headers["x-gateway-provider"] == "fake"
                assert headers["x-gateway-upstream-model"] == "m"
                assert headers["x-gateway-upstream-request-id"] == "up-req-1"
                assert headers["x-request-id"].startswith("req_")
                allowed = {"content-type", "server", "date", "x-request-id", "x-content-type-options"} | {
                    name for name in headers if name.startswith("x-gateway-")
                }
                allowed |= {"transfer-encoding", "cache-control", "x-accel-buffering"} if stream else {"content-length"}
                assert set(headers) == allowed
                if stream:
                    assert headers["cache-control"] == "no-cache"
                    assert headers["x-accel-buffering"] == "no"


async def test_an_upstreams_rate_limits_are_told_under_a_name_of_their_own() -> None:
    limits = (("ratelimit-remaining-tokens", "90"), ("anthropic-ratelimit-requests-limit", "5"))
    script: list[Batch] = [[Started(id="1", limits=limits)], *HELLO[1:]]
    async with running(provider(script)) as gateway, gateway.post(chat()) as answer:
        assert answer.headers["x-gateway-upstream-ratelimit-remaining-tokens"] == "90"
        assert answer.headers["x-gateway-upstream-anthropic-ratelimit-requests-limit"] == "5"


async def test_dropped_parameters_are_listed_in_a_header_as_the_client_spells_them() -> None:
    narrow = ScriptedProvider("fake", HELLO, capabilities=Capabilities(fields=frozenset()))
    extra = "server: {unsupported_params: drop}\n"
    async with running(narrow, extra=extra) as gateway, gateway.post(chat(reasoning_effort="low", seed=1)) as answer:
        assert answer.status == 200
        dropped = answer.headers["x-gateway-dropped-params"].split(", ")
    assert set(dropped) == {"reasoning_effort", "seed"}


async def test_a_parameter_that_the_target_lacks_is_refused_by_name() -> None:
    narrow = ScriptedProvider("fake", HELLO, capabilities=Capabilities(fields=frozenset()))
    async with running(narrow) as gateway, gateway.post(chat(seed=1)) as answer:
        assert answer.status == 400
        assert (await error_of(answer))["param"] == "seed"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("error", "status"),
    [
        (UpstreamUnreachable("reset"), 502),
        (StreamTruncated("cut"), 502),
        (UpstreamOverloaded("busy", retry_after_s=30, upstream_status=529), 503),
        (UpstreamAuth("no"), 502),
    ],
    ids=["unreachable", "truncated", "overloaded", "auth"],
)
async def test_a_fault_before_the_first_output_is_a_true_status(error: Exception, status: int, stream: bool) -> None:
    async with running(provider([error]), extra=ONE_TRY) as gateway, gateway.post(chat(stream=stream)) as answer:
        assert answer.status == status
        await error_of(answer)


@pytest.mark.parametrize("stream", [False, True])
async def test_an_upstreams_wait_reaches_the_client(stream: bool) -> None:
    limited = UpstreamRateLimited("slow down", retry_after_s=29.5, should_retry=True, upstream_status=429)
    async with running(provider([limited])) as gateway, gateway.post(chat(stream=stream)) as answer:
        assert answer.status == 429
        assert answer.headers["retry-after"] == "30"
        assert answer.headers["retry-after-ms"] == "29500"
        assert answer.headers["x-should-retry"] == "true"


async def test_what_no_retry_would_mend_says_so() -> None:
    async with running(provider([UpstreamQuota("spent")])) as gateway, gateway.post(chat()) as answer:
        assert answer.status == 502
        assert answer.headers["x-should-retry"] == "false"


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("/v1/chat/completions", {"model": "fake/m", "messages": USER}, "max_tokens"),
        ("/v1/responses", {"model": "fake/m", "input": "hi"}, "max_output_tokens"),
        ("/v1/messages", {"model": "fake/m", "messages": USER, "max_tokens": 9}, "max_tokens"),
        ("/v1beta/models/fake/m:generateContent", {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]},
         "generationConfig.maxOutputTokens"),
        ("/api/chat", {"model": "fake/m", "messages": USER, "stream": False}, "options.num_predict"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("stream", [False, True])
async def test_what_a_target_finds_wrong_is_named_as_the_client_names_it(
    path: str, body: dict[str, Any], said: str, stream: bool
) -> None:
    error = ContextOverflow("max_tokens: 5 prompt tokens and 9 more are 14, the window holds 8", param="max_tokens")
    streamed = body if ":" in path else {**body, "stream": stream}
    async with running(ScriptedProvider("fake", [error])) as gateway, gateway.post(streamed, path) as answer:
        assert answer.status == 400
        text = await answer.text()
    assert f"{said}: 5 prompt tokens" in text
    assert f'"{said}"' in text


async def test_a_fault_after_the_first_output_is_in_band_and_invents_no_finish() -> None:
    async with running(provider([text("par"), UpstreamOverloaded("engine overloaded")])) as gateway:
        async with gateway.post(chat(stream=True)) as answer:
            assert answer.status == 200
            sent = await answer.read()
        (line,) = gateway.lines()
    *before, error, done = frames(sent)
    assert orjson.loads(error)["error"]["message"] == "engine overloaded"
    assert done == b"[DONE]"
    assert streamed_text(b"".join(b"data: " + frame + b"\n\n" for frame in before)) == "par"
    assert b'"finish_reason":"' not in sent
    assert line["error"] == "overloaded"


async def test_a_stream_cut_without_a_finish_ends_in_an_error_in_both_modes() -> None:
    async with running(provider([text('{"a": 1, "b')]), extra=ONE_TRY) as gateway:
        async with gateway.post(chat(stream=True)) as answer:
            assert orjson.loads(frames(await answer.read())[-2])["error"]["code"] == "stream_truncated"
        async with gateway.post(chat()) as answer:
            assert answer.status == 502
            assert (await error_of(answer))["code"] == "stream_truncated"


async def test_failover_before_the_first_output_is_invisible() -> None:
    first = ScriptedProvider("one", [UpstreamUnreachable("down")])
    second = ScriptedProvider("two", HELLO)
    extra = "models: {fast: {targets: [one/m], on_failure: [two/n]}}\n"
    async with running(first, second, extra=extra) as gateway, gateway.post(chat("fast", stream=True)) as answer:
        assert answer.headers["x-gateway-provider"] == "two"
        assert streamed_text(await answer.read()) == "Hello there"


async def test_headers_are_held_until_the_first_output() -> None:
    go = asyncio.Event()
    slow = provider([*HELLO[:1], go, *HELLO[1:]])
    async with running(slow) as gateway:
        asking = asyncio.ensure_future(
            gateway.session.post(gateway.url + "/v1/chat/completions", json=chat(stream=True))
        )
        await slow.waiting.wait()
        done, _ = await asyncio.wait({asking}, timeout=0.05)
        assert not done
        go.set()
        async with await asking as answer:
            assert answer.status == 200
            await answer.read()


async def test_long_silence_brings_comment_frames_and_then_errors_come_in_band() -> None:
    go = asyncio.Event()
    slow = provider([go, UpstreamUnreachable("reset")])
    extra = "server: {keepalive_s: 0.02}\n" + ONE_TRY
    async with running(slow, extra=extra) as gateway, gateway.post(chat(stream=True)) as answer:
        assert answer.status == 200
        first = await answer.content.readuntil(b"\n\n")
        second = await answer.content.readuntil(b"\n\n")
        assert first.startswith(b":")
        assert second.startswith(b":")
        go.set()
        rest = await answer.read()
        assert orjson.loads(frames(rest)[0])["error"]["code"] == "upstream_unreachable"


async def test_comment_frames_go_on_between_outputs() -> None:
    go = asyncio.Event()
    slow = provider([text("a"), go, [*text("b"), *FINISH]])
    extra = "server: {keepalive_s: 0.02}\n"
    async with running(slow, extra=extra) as gateway, gateway.post(chat(stream=True)) as answer:
        while not (await answer.content.readuntil(b"\n\n")).startswith(b":"):
            pass
        go.set()
        assert streamed_text(await answer.read()) == "b"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("begun", [False, True])
async def test_a_client_that_leaves_frees_the_provider(stream: bool, begun: bool) -> None:
    slow = provider([*([text("x")] if begun else []), asyncio.Event()])
    async with running(slow) as gateway:
        _, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        body = orjson.dumps(chat(stream=stream))
        writer.write(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
        )
        await slow.waiting.wait()
        assert slow.open_streams == 1
        writer.close()
        await writer.wait_closed()
        await until(lambda: slow.open_streams == 0)
        await until(lambda: len(gateway.lines()) == 1)
        assert gateway.lines()[0]["status"] == 499
        assert len(slow.requests) == 1


async def test_a_slow_reader_holds_the_provider_back() -> None:
    produced = 0

    class Fast(ScriptedProvider):
        async def stream(self, request):  # type: ignore[no-untyped-def]
            nonlocal produced
            self.open_streams += 1
            try:
                while True:
                    produced += 1
                    yield text("x" * 10_000)
                    await asyncio.sleep(0)
            finally:
                self.open_streams -= 1

    fast = Fast("fake", HELLO)
    async with running(fast) as gateway:
        with socket.create_connection(("127.0.0.1", gateway.port)) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
            body = orjson.dumps(chat(stream=True))
            client.sendall(
                b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
            )
            await until(lambda: produced > 10)
            quiet_rounds, seen = 0, 0
            while quiet_rounds < 300:
                await asyncio.sleep(0)
                quiet_rounds, seen = (quiet_rounds + 1, seen) if produced == seen else (0, produced)
            assert produced < 2000  # 20 MB; socket buffers take a few
        await until(lambda: fast.open_streams == 0)


async def test_an_internal_fault_shows_nothing_but_its_id() -> None:
    broken = provider([RuntimeError("the secret sauce: hi")])
    async with running(broken) as gateway:
        async with gateway.post(chat(stream=True)) as answer:
            assert answer.status == 500
            request_id = answer.headers["x-request-id"]
            error = await error_of(answer)
        faults = [line for line in gateway.lines() if line["event"] == "internal_error"]
    assert "sauce" not in str(error)
    assert request_id in str(error["message"])
    assert faults[0]["request_id"] == request_id
    assert "RuntimeError" in str(faults[0]["error"])
    assert "sauce" not in str(faults)


async def test_an_internal_fault_inside_a_stream_is_in_band() -> None:
    broken = provider([text("x"), RuntimeError("boom")])
    async with running(broken) as gateway, gateway.post(chat(stream=True)) as answer:
        sent = await answer.read()
    assert orjson.loads(frames(sent)[-2])["error"]["type"] == "server_error"
    assert b"boom" not in sent


async def test_the_log_holds_the_request_but_neither_prompt_nor_answer() -> None:
    async with running(provider(HELLO)) as gateway:
        async with gateway.post(chat(messages=[{"role": "user", "content": "my private words"}])) as answer:
            await answer.read()
        (line,) = gateway.lines()
    assert (line["status"], line["path"], line["model"]) == (200, "/v1/chat/completions", "fake/m")
    assert (line["prompt_tokens"], line["completion_tokens"], line["provider"]) == (3, 2, "fake")
    assert "private" not in str(line)
    assert "Hello" not in str(line)


async def test_draining_finishes_what_runs_refuses_what_is_new_and_says_not_ready() -> None:
    go = asyncio.Event()
    slow = provider([text("a"), go, [*text("b"), *FINISH]])
    async with running(slow) as gateway, gateway.post(chat(stream=True)) as answer:
        await slow.waiting.wait()
        draining = asyncio.ensure_future(gateway.app.drain(5))
        await until(lambda: gateway.app.service.draining)
        async with gateway.post(chat()) as refused, gateway.session.get(gateway.url + "/readyz") as ready:
            assert refused.status == 503
            assert (await error_of(refused))["code"] == "shutting_down"
            assert ready.status == 503
        go.set()
        assert streamed_text(await answer.read()) == "ab"
        await draining


async def test_what_outlives_the_drain_is_cancelled_and_its_client_told() -> None:
    slow = provider([text("a"), asyncio.Event()])
    async with running(slow) as gateway, gateway.post(chat(stream=True)) as answer:
        await slow.waiting.wait()
        await gateway.app.drain(0)
        assert slow.open_streams == 0
        assert orjson.loads(frames(await answer.read())[-2])["error"]["code"] == "shutting_down"


async def test_a_request_id_of_the_client_is_echoed_and_reaches_the_provider() -> None:
    fake = provider(HELLO)
    async with running(fake) as gateway, gateway.post(chat(), headers={"X-Request-Id": "mine-42"}) as answer:
        assert answer.headers["x-request-id"] == "mine-42"
    assert fake.requests[0].request_id == "mine-42"


@pytest.mark.parametrize("value", ["x" * 200, "with blank", "\u00e9"])
async def test_a_request_id_that_is_not_sane_is_replaced(value: str) -> None:
    async with running(provider(HELLO)) as gateway, gateway.post(chat(), headers={"X-Request-Id": value}) as answer:
        assert answer.headers["x-request-id"].startswith("req_")


async def test_completions_go_the_same_way() -> None:
    body = {"model": "fake/m", "prompt": "hi"}
    async with running(provider(HELLO)) as gateway, gateway.post(body, "/v1/completions") as answer:
        assert (await answer.json())["choices"][0]["text"] == "Hello there"


async def test_what_fills_in_at_mistrals_path_is_answered_as_chat() -> None:
    fake = provider(HELLO)
    body = {"model": "fake/m", "prompt": "def f(", "suffix": "return a"}
    async with running(fake) as gateway, gateway.post(body, "/v1/fim/completions") as answer:
        assert (await answer.json())["choices"][0]["message"]["content"] == "Hello there"
    assert (fake.requests[0].prompts, fake.requests[0].suffix) == (("def f(",), "return a")


async def test_many_requests_at_once_stay_apart() -> None:
    async def ask(gateway: Running, number: int) -> str:
        async with gateway.post(chat(stream=number % 2 == 0, user=str(number))) as answer:
            body = await answer.read()
            return streamed_text(body) if number % 2 == 0 else orjson.loads(body)["choices"][0]["message"]["content"]

    echo = provider(lambda request: [text(f"for {request.user}"), FINISH])
    async with running(echo) as gateway:
        answers = await asyncio.gather(*[ask(gateway, number) for number in range(50)])
    assert answers == [f"for {number}" for number in range(50)]


async def test_connections_are_kept_for_the_next_request() -> None:
    connector = aiohttp.TCPConnector(limit=1)
    async with running(provider(HELLO)) as gateway, aiohttp.ClientSession(connector=connector) as session:
        for stream in (False, True, False):
            async with session.post(gateway.url + "/v1/chat/completions", json=chat(stream=stream)) as answer:
                await answer.read()
        assert len(gateway.app.connections.connections) == 1
