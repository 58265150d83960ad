"""HTTP below every remote provider, over real sockets: limits, leaving, what leaves, and settings."""

import asyncio
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import pytest

from adapters.canonical.errors import (
    NotReady,
    UpstreamAuth,
    UpstreamError,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from providers.base import Limits
from providers.client_key import BEARER, CLIENT_KEY, OwnKey
from providers.remote.http import HttpClient
from tests.mock_upstream import Answer, MockUpstream
from tests.providers.remote.calls import BODY, STREAM, call, collect, connected, failure, settings, text_of
from tests.providers.remote.tiny_dialect import chunk

pytestmark = pytest.mark.timeout(20)


class TestLimits:
    @pytest.mark.parametrize("silent", [True, False], ids=["no status line", "head only"])
    async def test_silence_before_the_first_event_ends_at_the_first_token_limit(self, silent: bool) -> None:
        answer = Answer(headers=STREAM.headers, silent=silent, then="hang")
        async with connected(answer, limits=Limits(first_token_s=0.05)) as (upstream, client):
            error, _ = await failure(call(client))
            await upstream.idle()
        assert type(error) is UpstreamTimeout

    async def test_comments_do_not_put_the_first_token_limit_off(self) -> None:
        answer = Answer.sse([b": processing\n\n"] * 3, then="hang")
        async with connected(answer, limits=Limits(first_token_s=0.05)) as (_, client):
            error, _ = await failure(call(client))
        assert type(error) is UpstreamTimeout

    async def test_silence_after_the_first_event_ends_at_the_gap_limit(self) -> None:
        answer = Answer.sse([chunk("hel")], then="hang")
        async with connected(answer, limits=Limits(gap_s=0.05)) as (upstream, client):
            error, seen = await failure(call(client))
            await upstream.idle()
        assert (type(error), seen) == (UpstreamTimeout, "hel")

    async def test_a_reader_that_takes_its_time_is_no_silence(self) -> None:
        gate = asyncio.Event()
        answer = Answer(headers=STREAM.headers, pieces=STREAM.pieces, gate=gate, gate_after=1)
        async with connected(answer, limits=Limits(gap_s=0.02)) as (_, client), aclosing(call(client)) as batches:
            await anext(batches)
            elapsed = asyncio.get_running_loop().create_future()
            asyncio.get_running_loop().call_later(0.1, elapsed.set_result, None)
            await elapsed
            gate.set()
            assert text_of([event async for batch in batches for event in batch]) == "lo"

    async def test_silence_after_a_slow_reader_came_back_still_ends_at_the_gap_limit(self) -> None:
        answer = Answer.sse([chunk("hel"), chunk("lo")], then="hang")
        async with connected(answer, limits=Limits(gap_s=0.02)) as (_, client), aclosing(call(client)) as batches:
            await anext(batches)
            await anext(batches)
            elapsed = asyncio.get_running_loop().create_future()
            asyncio.get_running_loop().call_later(0.1, elapsed.set_result, None)
            await elapsed
            with pytest.raises(UpstreamTimeout):
                await asyncio.wait_for(anext(batches), 1)

    async def test_after_the_finish_no_more_than_two_seconds_are_waited(self) -> None:
        async with connected(Answer.sse(STREAM.pieces, then="hang")) as (upstream, client):
            assert text_of(await asyncio.wait_for(collect(call(client)), 5)) == "hello"
            await upstream.idle()

    async def test_a_connection_left_open_after_the_finish_is_a_good_end(self) -> None:
        answer = Answer.sse(STREAM.pieces, then="hang")
        async with connected(answer, limits=Limits(gap_s=0.05)) as (upstream, client):
            assert text_of(await collect(call(client))) == "hello"
            await upstream.idle()

    async def test_a_plain_answer_has_no_first_token_limit(self) -> None:
        gate = asyncio.Event()
        asyncio.get_running_loop().call_later(0.05, gate.set)
        answer = replace(Answer.json(BODY), gate=gate)
        async with connected(answer, limits=Limits(first_token_s=0.001)) as (_, client):
            assert text_of(await collect(call(client, stream=False))) == "hello"

    async def test_who_finds_all_connections_in_use_waits_longer_than_for_a_new_one(self) -> None:
        gate = asyncio.Event()
        answer = replace(Answer.json(BODY), gate=gate)
        limits = Limits(connect_s=0.05)
        async with connected(answer, limits=limits, max_connections=1) as (upstream, client):
            first, second = (asyncio.create_task(collect(call(client, stream=False))) for _ in range(2))
            await upstream.seen(1)
            asyncio.get_running_loop().call_later(0.2, gate.set)
            assert [text_of(await asking) for asking in (first, second)] == ["hello", "hello"]
            assert upstream.connections == 1

    async def test_that_all_connections_are_in_use_for_long_tells_nothing_against_the_upstream(self) -> None:
        answer = Answer(headers=STREAM.headers, silent=True, then="hang")
        limits = Limits(first_token_s=0.05)
        async with connected(answer, limits=limits, max_connections=1) as (upstream, client):
            first = asyncio.create_task(collect(call(client, stream=False)))
            await upstream.seen(1)
            error, _ = await failure(call(client, stream=False))
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
        assert (type(error), error.code) == (NotReady, "overloaded")
        assert not isinstance(error, UpstreamError)  # which breakers count


class TestLeaving:
    @pytest.mark.parametrize("stream", [True, False])
    async def test_cancelling_before_the_answer_closes_the_upstream_socket(self, stream: bool) -> None:
        async with connected(Answer(silent=True, then="hang")) as (upstream, client):
            task = asyncio.create_task(collect(call(client, stream=stream)))
            await upstream.seen(1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await upstream.idle(within_s=1)

    async def test_cancelling_between_events_closes_the_upstream_socket(self) -> None:
        async with connected(Answer.sse([chunk("hel")], then="hang")) as (upstream, client):
            async with aclosing(call(client)) as batches:
                await anext(batches)
                task = asyncio.ensure_future(anext(batches))
                await asyncio.sleep(0)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            await upstream.idle(within_s=1)

    async def test_cancelling_inside_a_body_closes_the_upstream_socket(self) -> None:
        answer = Answer(headers={"content-type": "application/json"}, pieces=[b'{"te'], then="hang")
        async with connected(answer) as (upstream, client):
            task = asyncio.create_task(collect(call(client, stream=False)))
            await upstream.seen(1)
            for _ in range(20):
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await upstream.idle(within_s=1)

    async def test_closing_the_iterator_early_closes_the_socket_and_does_not_reuse_it(self) -> None:
        async with connected(Answer.sse([chunk("hel")], then="hang"), STREAM) as (upstream, client):
            async with aclosing(call(client)) as batches:
                await anext(batches)
            await upstream.idle(within_s=1)
            assert text_of(await collect(call(client))) == "hello"
            assert upstream.connections == 2

    async def test_closing_the_client_fails_running_streams_and_later_calls(self) -> None:
        async with connected(Answer.sse([chunk("hel")], then="hang")) as (upstream, client):
            async with aclosing(call(client)) as batches:
                await anext(batches)
                await client.aclose()
                await client.aclose()
                with pytest.raises(UpstreamError):
                    await anext(batches)
            await upstream.idle(within_s=1)
            error, _ = await failure(call(client))
            assert isinstance(error, UpstreamError)


class TestHeaders:
    async def test_only_headers_that_were_built_here_leave(self) -> None:
        changes = {"headers": {"X-Team": "a"}, "user_agent": "llm-protocol-gateway/9"}
        async with connected(STREAM, **changes) as (upstream, client):
            await collect(call(client, request_id="req-1"))
        seen = dict(upstream.requests[0].headers)
        assert seen.pop("host").startswith("127.0.0.1:")
        assert seen.pop("content-length") == str(len(upstream.requests[0].body))
        assert seen == {
            "accept": "text/event-stream",
            "accept-encoding": "identity",
            "authorization": "Bearer key-1",
            "content-type": "application/json",
            "user-agent": "llm-protocol-gateway/9",
            "x-request-id": "req-1",
            "x-team": "a",
        }

    @pytest.mark.parametrize("request_id", ["a\r\nx-evil: 1", "é", "x" * 513])
    async def test_a_request_id_that_is_no_header_value_stays_here(self, request_id: str) -> None:
        async with connected(STREAM) as (upstream, client):
            await collect(call(client, request_id=request_id))
        assert "x-request-id" not in upstream.requests[0].headers
        assert "x-evil" not in upstream.requests[0].headers

    async def test_cookies_are_neither_kept_nor_sent(self) -> None:
        answer = Answer.json(BODY, headers={"set-cookie": "a=b"})
        async with connected(answer) as (upstream, client):
            await collect(call(client, stream=False))
            await collect(call(client, stream=False))
        assert "cookie" not in upstream.requests[1].headers

    async def test_a_configured_header_may_replace_the_key(self) -> None:
        async with connected(STREAM, headers={"Authorization": "Basic zzz"}) as (upstream, client):
            await collect(call(client))
        assert upstream.requests[0].raw_head.lower().count(b"authorization:") == 1
        assert upstream.requests[0].headers["authorization"] == "Basic zzz"

    async def test_a_proxy_is_used_with_its_password_when_it_is_configured(self) -> None:
        async with MockUpstream(STREAM) as proxy:
            address = proxy.base_url.removesuffix("/v1").replace("http://", "http://user:pass@")
            client = HttpClient(settings(proxy=address), "http://upstream.invalid/v1")
            assert text_of(await collect(call(client))) == "hello"
            await client.aclose()
        assert proxy.requests[0].path == "http://upstream.invalid/v1/tiny"
        assert proxy.requests[0].headers["proxy-authorization"] == "Basic dXNlcjpwYXNz"

    async def test_a_proxy_that_is_not_there_is_unreachable_and_its_password_is_not_told(self) -> None:
        client = HttpClient(settings(proxy="http://user:pass@127.0.0.1:9"), "http://upstream.invalid/v1")
        error, _ = await failure(call(client))
        await client.aclose()
        assert type(error) is UpstreamUnreachable
        assert error.message == "tiny: the configured proxy can't be reached"


async def test_many_paths_are_answered_over_one_connection() -> None:
    async with connected(STREAM) as (upstream, client):
        for number in range(200):
            with await client.post(f"/models/{number}", b"{}", stream=True) as answer:
                assert answer.status == 200
                while await answer.read():
                    pass
        assert upstream.requests[-1].path == "/v1/models/199"
        assert upstream.connections == 1


class TestSettings:
    @pytest.mark.parametrize(
        "base_url", ["ftp://host/v1", "host/v1", "http://", "http://user:secret@host/v1", "http://host/v1?key=secret"]
    )
    def test_a_base_url_that_cannot_work_is_refused_without_telling_it(self, base_url: str) -> None:
        with pytest.raises(ValueError, match=r"providers\.tiny\.base_url") as caught:
            HttpClient(settings(base_url), base_url)
        assert "secret" not in str(caught.value)

    @pytest.mark.parametrize("name", ["Content-Length", "transfer-encoding", "cookie"])
    def test_framing_headers_cannot_be_configured(self, name: str) -> None:
        with pytest.raises(ValueError, match=r"providers\.tiny\.headers"):
            HttpClient(settings(headers={name: "1"}), "http://host/v1")

    @pytest.mark.parametrize(
        ("name", "value"), [("x team", "a"), ("x-team", "a\r\nx-evil: 1"), ("", "a"), ("x-team", "é")]
    )
    def test_what_is_no_header_cannot_be_configured(self, name: str, value: str) -> None:
        with pytest.raises(ValueError, match=r"providers\.tiny\.headers"):
            HttpClient(settings(headers={name: value}), "http://host/v1")

    def test_a_key_with_a_line_end_is_refused_without_telling_it(self) -> None:
        with pytest.raises(ValueError, match=r"providers\.tiny\.api_key") as caught:
            HttpClient(settings(api_key="secret\n"), "http://host/v1", BEARER)
        assert "secret" not in str(caught.value)

    @pytest.mark.parametrize("proxy", ["socks5://host", "host:3128", "http://user:secret@"])
    def test_a_proxy_that_cannot_work_is_refused_without_telling_it(self, proxy: str) -> None:
        with pytest.raises(ValueError, match=r"providers\.tiny\.proxy") as caught:
            HttpClient(settings(proxy=proxy), "http://host/v1")
        assert "secret" not in str(caught.value)

    def test_a_ca_file_that_holds_no_certificate_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "empty.pem").write_text("nothing")
        for name in ("missing.pem", "empty.pem"):
            with pytest.raises(ValueError, match=rf"providers\.tiny\.ca_file: .*{name}"):
                HttpClient(settings(ca_file=str(tmp_path / name)), "https://host/v1")


class TestLargeAnswers:
    """What does not fit into the read buffer is read on as the reader takes it."""

    @pytest.mark.parametrize("framing", ["chunked", "length"])
    async def test_a_body_larger_than_the_buffer_arrives_whole(self, framing: str) -> None:
        pieces = [bytes([65 + number]) * 50_000 for number in range(20)]
        answer = Answer(headers={"content-type": "application/json"}, pieces=pieces, framing=framing)  # type: ignore[arg-type]
        async with connected(answer) as (upstream, client):
            for _ in range(2):
                with await client.post("/a", b"{}", stream=False) as found:
                    assert await found.body() == b"".join(pieces)
            assert upstream.connections == 1

    async def test_a_reader_that_stops_for_a_while_gets_the_rest(self) -> None:
        pieces = [bytes([65 + number]) * 50_000 for number in range(20)]
        async with connected(Answer.sse(pieces)) as (_, client):
            with await client.post("/a", b"{}", stream=True) as found:
                data = b""
                while piece := await found.read():
                    data += piece
                    for _ in range(50):  # the peer goes on until the socket is paused
                        await asyncio.sleep(0)
            assert data == b"".join(pieces)

    async def test_a_body_that_grows_when_it_is_unpacked_arrives_whole(self) -> None:
        body = b" " * 3_000_000
        async with connected(Answer.json(body).gzipped()) as (_, client):
            with await client.post("/a", b"{}", stream=False) as found:
                assert await found.body() == body


async def test_a_clients_own_key_never_goes_out_beside_a_signature_of_the_gateways() -> None:
    own = CLIENT_KEY.set(OwnKey("sk-of-the-client", settings().name))
    try:
        async with MockUpstream(Answer.json(b"{}")) as upstream:
            signing = HttpClient(settings(), upstream.base_url)
            with pytest.raises(UpstreamAuth):
                await signing.post("/x", b"{}", stream=False, headers={"authorization": "Bearer token-of-the-gateway"})
            assert not upstream.requests
            await signing.aclose()
    finally:
        CLIENT_KEY.reset(own)
