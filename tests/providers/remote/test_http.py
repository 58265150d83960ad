"""HTTP below every remote provider, over real sockets: what arrives, what leaves, what breaks, and what is freed."""

import asyncio
import json
import ssl
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager

import pytest

from adapters.canonical.errors import (
    BadUpstreamResponse,
    GatewayError,
    InvalidRequest,
    StreamTruncated,
    UpstreamError,
    UpstreamOverloaded,
    UpstreamQuota,
    UpstreamRateLimited,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from adapters.canonical.events import ChoiceFinished, Event, Started, TextDelta
from adapters.canonical.messages import USER, Message, Text
from adapters.canonical.request import Request
from providers.base import Batch, Limits, ProviderSettings
from providers.remote.exchange import exchange
from providers.remote.http import MAX_BODY_BYTES, HttpClient
from tests.mock_upstream import Answer, MockUpstream
from tests.providers.remote.tiny_dialect import END, TinyUpstream, chunk

pytestmark = pytest.mark.timeout(20)
BODY = b'{"text": "hello"}'
STREAM = Answer.sse([chunk("hel"), chunk("lo"), END])


def request(*, stream: bool = True, request_id: str | None = None) -> Request:
    messages = (Message(role=USER, parts=(Text(text="hi"),)),)
    return Request(model="m", dialect="tiny", stream=stream, messages=messages, request_id=request_id)


def settings(base_url: str = "http://127.0.0.1:9/v1", **changes: object) -> ProviderSettings:
    values: dict[str, object] = {"name": "tiny", "type": "tiny", "base_url": base_url, **changes}
    return ProviderSettings(**values)  # type: ignore[arg-type]


@asynccontextmanager
async def connected(*answers: Answer, **changes: object) -> AsyncIterator[tuple[MockUpstream, HttpClient]]:
    async with MockUpstream(*answers) as upstream:
        client = HttpClient(
            settings(upstream.base_url, **changes), upstream.base_url, {"authorization": "Bearer key-1"}
        )
        try:
            yield upstream, client
        finally:
            await client.aclose()


def call(client: HttpClient, *, stream: bool = True, request_id: str | None = None) -> AsyncGenerator[Batch, None]:
    return exchange(client, TinyUpstream(), request(stream=stream, request_id=request_id))


async def collect(batches: AsyncGenerator[Batch, None]) -> list[Event]:
    async with aclosing(batches):
        return [event async for batch in batches for event in batch]


def text_of(events: list[Event]) -> str:
    return "".join([event.text for event in events if isinstance(event, TextDelta)])


async def failure(batches: AsyncGenerator[Batch, None]) -> tuple[GatewayError, str]:
    """The error that the stream ends in, and the text before it."""
    seen: list[Event] = []
    try:
        async with aclosing(batches):
            async for batch in batches:
                seen += batch
    except GatewayError as error:
        return error, text_of(seen)
    raise AssertionError(f"the stream ended well after {text_of(seen)!r}")


@asynccontextmanager
async def bare_server(greeting: bytes) -> AsyncIterator[int]:
    """The port of a server that sends this to whoever connects, and hangs up."""

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(greeting)
        await writer.drain()
        await reader.read(1)
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


class TestAnswers:
    async def test_a_stream_arrives_event_by_event_and_gives_its_connection_back(self) -> None:
        async with connected(STREAM) as (upstream, client):
            for _ in range(3):
                events = await collect(call(client))
                assert text_of(events) == "hello"
                assert isinstance(events[-1], ChoiceFinished)
            assert upstream.connections == 1

    async def test_a_whole_answer_gives_the_same_text_and_its_connection_back(self) -> None:
        async with connected(Answer.json(BODY)) as (upstream, client):
            for _ in range(3):
                assert text_of(await collect(call(client, stream=False))) == "hello"
            assert upstream.connections == 1
            assert json.loads(upstream.requests[0].body) == {"model": "m", "stream": False}

    @pytest.mark.parametrize("stream", [True, False])
    async def test_the_upstreams_request_id_is_in_started(self, stream: bool) -> None:
        answer = STREAM if stream else Answer.json(BODY)
        answer = Answer(**{**vars(answer), "headers": {**answer.headers, "x-request-id": "up-1"}})
        async with connected(answer) as (_, client):
            events = await collect(call(client, stream=stream))
        assert events[0] == Started(id="tiny", request_id="up-1")

    async def test_the_first_event_is_given_out_while_the_rest_is_still_to_come(self) -> None:
        gate = asyncio.Event()
        answer = Answer(headers=STREAM.headers, pieces=STREAM.pieces, gate=gate, gate_after=1)
        async with connected(answer) as (_, client), aclosing(call(client)) as batches:
            assert text_of(await anext(batches)) == "hel"
            gate.set()
            assert text_of([event async for batch in batches for event in batch]) == "lo"

    @pytest.mark.parametrize("stream", [True, False])
    async def test_a_gzip_answer_is_inflated_though_it_was_not_asked_for(self, stream: bool) -> None:
        answer = STREAM if stream else Answer.json(BODY)
        async with connected(answer.gzipped()) as (_, client):
            assert text_of(await collect(call(client, stream=stream))) == "hello"

    async def test_a_json_answer_to_a_stream_request_is_an_answer(self) -> None:
        async with connected(Answer.json(BODY)) as (_, client):
            assert text_of(await collect(call(client))) == "hello"

    async def test_a_stream_in_answer_to_a_plain_request_is_an_answer(self) -> None:
        async with connected(STREAM) as (_, client):
            assert text_of(await collect(call(client, stream=False))) == "hello"

    async def test_a_stream_that_calls_itself_json_is_an_answer(self) -> None:
        async with connected(Answer.json(b"".join(STREAM.pieces))) as (_, client):
            assert text_of(await collect(call(client))) == "hello"

    @pytest.mark.parametrize("content_type", ["", "text/plain; charset=utf-8", "application/octet-stream"])
    async def test_a_stream_without_a_useful_content_type_is_an_answer(self, content_type: str) -> None:
        headers = {"content-type": content_type} if content_type else {}
        async with connected(Answer(headers=headers, pieces=STREAM.pieces)) as (_, client):
            assert text_of(await collect(call(client))) == "hello"

    @pytest.mark.parametrize("stream", [True, False])
    async def test_a_page_with_status_200_is_a_bad_upstream_response(self, stream: bool) -> None:
        page = b"<html><head><title>x</title></head><body>Please <b>log in</b></body></html>"
        async with connected(Answer(headers={"content-type": "text/html"}, pieces=[page])) as (_, client):
            error, _ = await failure(call(client, stream=stream))
        assert type(error) is BadUpstreamResponse
        assert error.status == 502
        assert "Please log in" in error.message
        assert "<" not in error.message

    async def test_an_error_object_inside_a_200_is_an_error_with_its_retry_hint(self) -> None:
        answer = Answer.json(b'{"error": "busy"}', headers={"retry-after": "7"})
        async with connected(answer) as (_, client):
            error, _ = await failure(call(client))
        assert type(error) is UpstreamOverloaded
        assert error.retry_after_s == 7

    async def test_an_answer_beyond_the_limit_is_refused_and_its_connection_closed(self) -> None:
        piece = b"x" * (1 << 20)
        answer = Answer(
            headers={"content-type": "application/json"}, pieces=[piece] * (MAX_BODY_BYTES // len(piece) + 1)
        )
        async with connected(answer) as (upstream, client):
            error, _ = await failure(call(client, stream=False))
            await upstream.idle()
        assert type(error) is BadUpstreamResponse


class TestBrokenConnections:
    @pytest.mark.parametrize("stream", [True, False])
    async def test_no_server_is_unreachable_and_no_address_is_told(self, stream: bool) -> None:
        client = HttpClient(settings(), "http://127.0.0.1:9/v1", {})
        error, _ = await failure(call(client, stream=stream))
        await client.aclose()
        assert type(error) is UpstreamUnreachable
        assert error.retryable
        assert "127.0.0.1" not in error.message
        assert error.__cause__ is not None

    @pytest.mark.parametrize("then", ["reset", "close"])
    @pytest.mark.parametrize("stream", [True, False])
    async def test_a_break_before_the_status_line_is_unreachable(self, then: str, stream: bool) -> None:
        async with connected(Answer(silent=True, then=then)) as (_, client):  # type: ignore[arg-type]
            error, _ = await failure(call(client, stream=stream))
        assert type(error) is UpstreamUnreachable

    @pytest.mark.parametrize("then", ["reset", "close"])
    @pytest.mark.parametrize(
        ("pieces", "text"),
        [([], ""), ([chunk("hel"), b"data: l"], "hel"), ([chunk("hel"), chunk("lo")], "hello")],
        ids=["after the head", "inside a line", "between events"],
    )
    async def test_a_break_before_the_finish_is_a_truncated_stream(
        self, pieces: list[bytes], text: str, then: str
    ) -> None:
        async with connected(Answer.sse(pieces, then=then)) as (_, client):  # type: ignore[arg-type]
            error, seen = await failure(call(client))
        assert type(error) is StreamTruncated
        assert seen == text

    @pytest.mark.parametrize("then", ["reset", "close"])
    async def test_a_break_after_the_finish_is_a_good_end(self, then: str) -> None:
        async with connected(Answer.sse(STREAM.pieces, then=then)) as (_, client):  # type: ignore[arg-type]
            assert text_of(await collect(call(client))) == "hello"

    async def test_what_came_before_a_reset_is_delivered_even_to_a_slow_reader(self) -> None:
        answer = Answer.sse(STREAM.pieces, then="reset")
        async with connected(answer) as (upstream, client), aclosing(call(client)) as batches:
            seen = await anext(batches)
            await upstream.idle()  # the reset is here before the reader comes back
            for _ in range(10):
                await asyncio.sleep(0)
            seen += [event async for batch in batches for event in batch]
        assert text_of(seen) == "hello"
        assert isinstance(seen[-1], ChoiceFinished)

    async def test_a_clean_end_without_a_finish_is_a_truncated_stream(self) -> None:
        async with connected(Answer.sse([chunk("hel")])) as (_, client):
            error, seen = await failure(call(client))
        assert (type(error), seen) == (StreamTruncated, "hel")

    async def test_a_stream_cut_at_any_byte_is_truncated_or_whole(self) -> None:
        whole = b"".join(STREAM.pieces)
        needed = len(whole)
        answers = [Answer.sse([whole[:cut]] if cut else [], then="close") for cut in range(needed + 1)]
        async with connected(*answers) as (_, client):
            for cut in range(needed):
                error, seen = await failure(call(client))
                assert type(error) is StreamTruncated
                assert "hello".startswith(seen), cut
            assert text_of(await collect(call(client))) == "hello"

    async def test_a_stream_split_at_any_byte_is_the_same_stream(self) -> None:
        whole = b"".join(STREAM.pieces)
        answers = [Answer.sse([whole[:cut], whole[cut:]]) for cut in range(1, len(whole))]
        async with connected(*answers) as (_, client):
            for _ in answers:
                assert text_of(await collect(call(client))) == "hello"

    async def test_a_body_shorter_than_its_length_is_truncated(self) -> None:
        answer = Answer(
            headers={"content-type": "application/json"},
            pieces=[BODY],
            framing="length",
            length=len(BODY) + 5,
            then="close",
        )
        async with connected(answer) as (_, client):
            error, _ = await failure(call(client, stream=False))
        assert type(error) is StreamTruncated

    async def test_a_body_without_its_last_chunk_is_truncated(self) -> None:
        answer = Answer(headers={"content-type": "application/json"}, pieces=[BODY], then="close")
        async with connected(answer) as (_, client):
            error, _ = await failure(call(client, stream=False))
        assert type(error) is StreamTruncated

    async def test_broken_compression_is_a_bad_response(self) -> None:
        answer = Answer.json(b"this is not gzip", headers={"content-encoding": "gzip"})
        async with connected(answer) as (_, client):
            error, _ = await failure(call(client, stream=False))
        assert type(error) is BadUpstreamResponse

    async def test_an_answer_that_is_not_http_is_a_bad_response(self) -> None:
        async with bare_server(b"SSH-2.0-OpenSSH_9\r\n\r\n") as port:
            client = HttpClient(settings(), f"http://127.0.0.1:{port}", {})
            error, _ = await failure(call(client))
            await client.aclose()
        assert type(error) is BadUpstreamResponse

    async def test_a_server_that_speaks_no_tls_is_unreachable(self) -> None:
        async with bare_server(b"HTTP/1.1 400 Bad Request\r\n\r\n") as port:
            client = HttpClient(settings(), f"https://127.0.0.1:{port}", {})
            error, _ = await failure(call(client))
            await client.aclose()
        assert type(error) is UpstreamUnreachable


class TestStatuses:
    @pytest.mark.parametrize(
        ("status", "kind", "ours"),
        [
            (400, InvalidRequest, 400),
            (402, UpstreamQuota, 502),
            (429, UpstreamRateLimited, 429),
            (503, UpstreamOverloaded, 503),
        ],
    )
    @pytest.mark.parametrize("stream", [True, False])
    async def test_a_json_error_is_the_dialects(
        self, status: int, kind: type[GatewayError], ours: int, stream: bool
    ) -> None:
        async with connected(Answer.json(b'{"error": "no"}', status)) as (upstream, client):
            error, _ = await failure(call(client, stream=stream))
            await upstream.idle()
        assert type(error) is kind
        assert error.status == ours
        assert error.message == "no"
        if isinstance(error, UpstreamError):
            assert error.upstream_status == status

    async def test_an_html_page_keeps_the_class_of_its_status_without_markup(self) -> None:
        page = b"<html><head><title>503</title><style>b{}</style></head><body><h1>No <b>backend</b></h1></body></html>"
        answer = Answer(status=503, headers={"content-type": "text/html", "retry-after": "3"}, pieces=[page])
        async with connected(answer) as (_, client):
            error, _ = await failure(call(client))
        assert type(error) is UpstreamOverloaded
        assert error.code == "bad_upstream_response"
        assert error.message == "tiny: status 503, No backend"
        assert error.retry_after_s == 3
        assert error.upstream_status == 503

    async def test_a_redirect_is_not_followed(self) -> None:
        async with connected(Answer(status=307, headers={"location": "http://127.0.0.1:9/"})) as (upstream, client):
            error, _ = await failure(call(client))
        assert type(error) is UpstreamError
        assert error.upstream_status == 307
        assert len(upstream.requests) == 1

    async def test_an_error_body_that_hangs_or_breaks_still_tells_its_status(self) -> None:
        answer = Answer(status=503, headers={"content-type": "text/plain"}, pieces=[b"half"], then="reset")
        async with connected(answer) as (_, client):
            error, _ = await failure(call(client))
        assert type(error) is UpstreamOverloaded

    async def test_an_exhausted_account_tells_clients_not_to_retry(self) -> None:
        async with connected(Answer.json(b'{"error": "no"}', 402)) as (_, client):
            error, _ = await failure(call(client))
        assert error.should_retry is False

    async def test_the_upstreams_word_on_retrying_is_kept(self) -> None:
        answer = Answer.json(b'{"error": "slow"}', 429, headers={"retry-after-ms": "1500", "x-should-retry": "false"})
        async with connected(answer) as (_, client):
            error, _ = await failure(call(client))
        assert error.retry_after_s == 1.5
        assert error.should_retry is False


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

    async def test_a_connection_left_open_after_the_finish_is_a_good_end(self) -> None:
        answer = Answer.sse(STREAM.pieces, then="hang")
        async with connected(answer, limits=Limits(gap_s=0.05)) as (upstream, client):
            assert text_of(await collect(call(client))) == "hello"
            await upstream.idle()

    async def test_a_plain_answer_ends_at_the_total_limit_not_at_the_first_token_limit(self) -> None:
        limits = Limits(first_token_s=0.001, total_s=0.1)
        async with connected(Answer.json(BODY), Answer(silent=True, then="hang"), limits=limits) as (_, client):
            assert text_of(await collect(call(client, stream=False))) == "hello"
            error, _ = await failure(call(client, stream=False))
        assert type(error) is UpstreamTimeout

    async def test_a_full_pool_is_unreachable_at_the_connect_limit(self) -> None:
        answer = Answer.sse([chunk("hel")], then="hang")
        limits = Limits(connect_s=0.05)
        async with connected(answer, limits=limits, max_connections=1) as (_, client), aclosing(call(client)) as first:
            await anext(first)
            error, _ = await failure(call(client))
        assert type(error) is UpstreamUnreachable


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

    async def test_a_proxy_is_used_when_it_is_configured(self) -> None:
        async with MockUpstream(STREAM) as proxy:
            target = settings("http://upstream.invalid/v1", proxy=proxy.base_url.removesuffix("/v1"))
            client = HttpClient(target, "http://upstream.invalid/v1", {})
            assert text_of(await collect(call(client))) == "hello"
            await client.aclose()
        assert proxy.requests[0].path == "http://upstream.invalid/v1/tiny"


class TestSettings:
    @pytest.mark.parametrize(
        "base_url", ["ftp://host/v1", "host/v1", "http://", "http://user:secret@host/v1", "http://host/v1?key=secret"]
    )
    def test_a_base_url_that_cannot_work_is_refused_without_telling_it(self, base_url: str) -> None:
        with pytest.raises(ValueError, match=r"providers\.tiny\.base_url") as caught:
            HttpClient(settings(base_url), base_url, {})
        assert "secret" not in str(caught.value)

    @pytest.mark.parametrize("name", ["Content-Length", "transfer-encoding", "cookie"])
    def test_framing_headers_cannot_be_configured(self, name: str) -> None:
        with pytest.raises(ValueError, match=r"providers\.tiny\.headers"):
            HttpClient(settings(headers={name: "1"}), "http://host/v1", {})

    @pytest.mark.parametrize(
        ("name", "value"), [("x team", "a"), ("x-team", "a\r\nx-evil: 1"), ("", "a"), ("x-team", "é")]
    )
    def test_what_is_no_header_cannot_be_configured(self, name: str, value: str) -> None:
        with pytest.raises(ValueError, match=r"providers\.tiny\.headers"):
            HttpClient(settings(headers={name: value}), "http://host/v1", {})

    def test_a_key_with_a_line_end_is_refused_without_telling_it(self) -> None:
        with pytest.raises(ValueError, match=r"providers\.tiny\.api_key") as caught:
            HttpClient(settings(), "http://host/v1", {"authorization": "Bearer secret\n"})
        assert "secret" not in str(caught.value)

    def test_a_ca_file_that_is_no_certificate_is_refused(self, tmp_path: object) -> None:
        with pytest.raises((ssl.SSLError, OSError)):
            HttpClient(settings(ca_file=f"{tmp_path}/missing.pem"), "https://host/v1", {})
