"""POSTs of bytes over real sockets: any size, any answer, TLS, and connections that are not used again."""

import asyncio
import gzip
import ssl
from contextlib import suppress
from pathlib import Path

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.canonical.errors import BadUpstreamResponse, StreamTruncated, UpstreamError, UpstreamUnreachable
from tests.certificates import certificate
from tests.mock_upstream import Answer
from tests.providers.remote.calls import BODY, connected
from tests.providers.remote.wire_server import answering, client_of, serving, small_socket

pytestmark = pytest.mark.timeout(20)
SIZES = [0, 2, (1 << 18) - 1, 1 << 18, (1 << 18) + 1, 3_000_000]


@pytest.mark.parametrize("size", SIZES)
async def test_a_body_of_any_size_arrives_whole_with_the_same_headers(size: int) -> None:
    async with connected(Answer.json(BODY)) as (upstream, client):
        for body in (b"{}", b"x" * size):
            with await client.post("/a", body, stream=False, request_id="r") as answer:
                assert (answer.status, await answer.body()) == (200, BODY)
        first, second = upstream.requests
        assert second.body == b"x" * size
        assert (second.method, second.path) == ("POST", "/v1/a")
        assert {**second.headers, "content-length": "2"} == first.headers
        assert upstream.connections == 1


async def test_a_host_header_from_run_yaml_goes_out_once() -> None:
    async with connected(Answer.json(BODY), headers={"Host": "other.example"}) as (upstream, client):
        for size in SIZES:
            with await client.post("/a", b"x" * size, stream=False) as answer:
                await answer.body()
    for request in upstream.requests:
        assert request.headers["host"] == "other.example"
        assert request.raw_head.lower().count(b"\r\nhost:") == 1


async def test_a_body_that_came_at_once_has_the_limit_of_any_body() -> None:
    async with connected(Answer.json(b"x" * 11)) as (_, client):
        with (
            await client.post("/a", b"{}", stream=False) as answer,
            pytest.raises(BadUpstreamResponse, match="larger"),
        ):
            await answer.body(10)


async def test_a_packed_body_that_lacks_its_end_is_a_bad_answer() -> None:
    packed = gzip.compress(BODY)[:-1]
    async with connected(Answer.json(packed, headers={"content-encoding": "gzip"})) as (_, client):
        with await client.post("/a", b"{}", stream=False) as answer, pytest.raises(BadUpstreamResponse, match="decomp"):
            await answer.body()


async def test_early_hints_are_no_answer() -> None:
    hints = b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n"
    ok = hints + b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
    async with serving(answering(ok)) as base_url, client_of(base_url) as client:
        for _ in range(2):
            with await client.post("/a", b"{}", stream=False) as answer:
                assert (answer.status, await answer.body()) == (200, b"ok")


async def test_a_body_without_a_length_ends_with_the_connection() -> None:
    without_length = Answer(headers={"content-type": "application/json"}, pieces=[BODY], framing="none")
    async with connected(without_length) as (upstream, client):
        for _ in range(2):
            with await client.post("/a", b"{}", stream=False) as answer:
                assert await answer.body() == BODY
        assert upstream.connections == 2


async def test_an_answer_that_was_closed_cannot_be_read() -> None:
    async with connected(Answer.sse([b"data: 1\n\n"], then="hang")) as (upstream, client):
        answer = await client.post("/a", b"{}", stream=True)
        await answer.read()
        answer.close()
        answer.close()
        with pytest.raises(StreamTruncated):
            await answer.read()
        await upstream.idle()


async def test_a_connection_whose_request_was_answered_before_it_was_sent_is_not_used_again() -> None:
    """What is left of the first request must not be taken for the second one."""
    connections = 0

    async def answer_without_reading(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
        await asyncio.Event().wait()

    async with (
        serving(answer_without_reading, small_socket(), limit_bytes=1) as base_url,
        client_of(base_url) as client,
    ):
        for _ in range(2):
            with await client.post("/a", bytes(20_000_000), stream=False) as answer:
                assert await answer.body() == b"ok"
    assert connections == 2


async def test_a_call_that_is_cancelled_while_its_body_goes_out_ends_at_once() -> None:
    begun, left = asyncio.Event(), asyncio.Event()

    async def read_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readexactly(1)
            begun.set()
            await reader.readexactly(1 << 20)
        except (asyncio.IncompleteReadError, ConnectionError):
            left.set()

    async with (
        serving(read_nothing, small_socket(), limit_bytes=1 << 20) as base_url,
        client_of(base_url) as client,
    ):
        task = asyncio.create_task(client.post("/a", bytes(900_000), stream=False))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(left.wait(), 1)


async def test_tls_is_spoken_with_the_configured_authority_and_no_other(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(cert, key)
    ok = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
    async with serving(answering(ok), tls=tls) as base_url:
        async with client_of(base_url, ca_file=str(cert)) as client:
            with await client.post("/a", b"{}", stream=False) as answer:
                assert await answer.body() == b"ok"
        async with client_of(base_url) as client:
            with pytest.raises(UpstreamUnreachable, match="TLS failed, CERTIFICATE_VERIFY_FAILED"):
                await client.post("/a", b"{}", stream=False)


async def test_a_server_that_asks_for_a_certificate_is_shown_the_configured_one(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=cert)
    tls.load_cert_chain(cert, key)
    tls.verify_mode = ssl.CERT_REQUIRED
    both = tmp_path / "both.pem"
    both.write_bytes(key.read_bytes() + cert.read_bytes())
    ok = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
    async with serving(answering(ok), tls=tls) as base_url:
        for shown in ({"client_cert": str(cert), "client_key": str(key)}, {"client_cert": str(both)}):
            async with client_of(base_url, ca_file=str(cert), **shown) as client:
                with await client.post("/a", b"{}", stream=False) as answer:
                    assert await answer.body() == b"ok"
        async with client_of(base_url, ca_file=str(cert)) as client:
            with pytest.raises(UpstreamUnreachable):
                await client.post("/a", b"{}", stream=False)


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=4), st.booleans())
@hypothesis.settings(max_examples=50)
async def test_garbage_always_ends_in_an_answer_or_an_error_of_ours(garbage: list[bytes], head: bool) -> None:
    sent = (b"HTTP/1.1 200 OK\r\n" if head else b"") + b"".join(garbage)
    async with serving(answering(sent, then_close=True)) as base_url, client_of(base_url) as client:
        async with asyncio.timeout(5):
            with suppress(UpstreamError), await client.post("/a", b"{}", stream=False) as answer:
                await answer.body()
