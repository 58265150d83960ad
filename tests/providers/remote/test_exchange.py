"""What counts as an answer, as an error and as an end: status, content type, cuts and resets over real sockets."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace

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
    UpstreamUnreachable,
)
from adapters.canonical.events import ChoiceFinished, Started
from providers.remote.answer import MAX_BODY_BYTES
from providers.remote.http import HttpClient
from tests.mock_upstream import Answer
from tests.providers.remote.calls import BODY, STREAM, call, collect, connected, failure, settings, text_of
from tests.providers.remote.tiny_dialect import chunk
from tests.providers.remote.wire_server import asked, client_of, serving

pytestmark = pytest.mark.timeout(20)


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

    @pytest.mark.parametrize("stream", [True, False])
    async def test_what_the_head_says_of_rate_limits_is_in_started(self, stream: bool) -> None:
        limits = {
            "X-RateLimit-Remaining-Tokens": "90",
            "anthropic-ratelimit-requests-reset": "2026-11-01T00:00:00Z",
            "ratelimit-policy": "x" * 1000,
            "x-other": "1",
        }
        answer = STREAM if stream else Answer.json(BODY)
        async with connected(replace(answer, headers={**answer.headers, **limits})) as (_, client):
            events = await collect(call(client, stream=stream))
        assert isinstance(events[0], Started)
        assert dict(events[0].limits) == {
            "ratelimit-remaining-tokens": "90",
            "anthropic-ratelimit-requests-reset": "2026-11-01T00:00:00Z",
        }

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
        client = HttpClient(settings(), "http://127.0.0.1:9/v1")
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

    async def test_a_whole_answer_cut_at_any_byte_or_at_all_of_them_gives_the_same_events(self) -> None:
        chunks = b"".join([b"%x\r\n%b\r\n" % (len(piece), piece) for piece in STREAM.pieces])
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        whole = head + chunks + b"0\r\n\r\n"
        cuts: list[list[bytes]] = [[whole[:cut], whole[cut:]] for cut in range(1, len(whole))]
        cuts.append([bytes((byte,)) for byte in whole])
        asks = iter(cuts)

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while await asked(reader):
                for piece in next(asks):
                    writer.write(piece)
                    for _ in range(4):
                        await asyncio.sleep(0)

        async with serving(serve) as base_url, client_of(base_url) as client:
            for _ in cuts:
                events = await collect(call(client))
                assert text_of(events) == "hello"
                assert isinstance(events[0], Started)
                assert isinstance(events[-1], ChoiceFinished)

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
            client = HttpClient(settings(), f"http://127.0.0.1:{port}")
            error, _ = await failure(call(client))
            await client.aclose()
        assert type(error) is BadUpstreamResponse

    async def test_a_server_that_speaks_no_tls_is_unreachable(self) -> None:
        async with bare_server(b"HTTP/1.1 400 Bad Request\r\n\r\n") as port:
            client = HttpClient(settings(), f"https://127.0.0.1:{port}")
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
