"""The end of all connections, in order."""

import asyncio
import json
import ssl
from pathlib import Path

import pytest

from tests.certificates import certificate
from tests.gateway.http.hosted import get, hosted, post, until


async def test_idle_connections_are_closed_and_others_after_their_answers() -> None:
    async with hosted() as at, at.client() as idle, at.client() as busy, at.client() as new:
        await idle.send(get("/echo"))
        await idle.answer()
        await busy.send(get("/wait"))
        await at.service.waiting.wait()
        await until(lambda: len(at.connections.connections) == 3)
        ending = asyncio.ensure_future(at.connections.shutdown(10))
        assert await idle.end() == b""
        assert await new.end() == b""
        assert not ending.done()
        at.service.release.set()
        _, headers, body = await busy.answer()
        assert (headers["connection"], body) == ("close", b"waited")
        await ending
        assert not at.connections.connections


async def test_of_a_server_that_will_end_only_those_that_wait_for_another_request_are_closed() -> None:
    async with hosted() as at, at.client() as idle, at.client() as busy, at.client() as new:
        await idle.send(get("/echo"))
        await idle.answer()
        await busy.send(get("/wait"))
        await at.service.waiting.wait()
        await until(lambda: len(at.connections.connections) == 3)
        at.connections.end_idle()
        assert await idle.end() == b""
        await new.send(get("/echo"))
        assert (await new.answer())[0] == 200
        at.service.release.set()
        assert (await busy.answer())[2] == b"waited"


async def test_what_does_not_end_in_time_is_cut_off() -> None:
    async with hosted() as at, at.client() as waiting, at.client() as reading:
        await waiting.send(get("/wait"))
        await reading.send(post("/echo", b"abc")[:-1])
        await until(lambda: at.service.running == 2)
        await at.connections.shutdown(0.05)
        assert at.service.cancelled == 2
        assert await waiting.end() == b""
        await until(lambda: not at.connections.connections)


async def test_the_same_is_served_over_tls(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    theirs.load_cert_chain(cert, key)
    ours = ssl.create_default_context(cafile=str(cert))
    async with hosted(tls=theirs) as at:
        async with at.client(ours) as client:
            await client.send(post("/echo", b"x" * 1_000_000) + get("/stream"))
            assert len(json.loads((await client.answer())[2])[3]) == 1_000_000
            assert (await client.answer())[2].endswith(b"end")
            await client.send(b"garbage\r\n\r\n")
            assert (await client.answer())[0] == 400
        async with at.client(ours) as client:
            await client.send(get("/wait"))
            await at.service.waiting.wait()
            client.abort()
            await until(lambda: at.service.cancelled == 1)


async def test_a_handshake_that_does_not_come_is_not_waited_for(tmp_path: Path) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*certificate(tmp_path))
    async with hosted(tls=tls, head_s=0.05) as at, at.client() as silent:
        assert await asyncio.wait_for(silent.end(), 5) == b""


async def test_a_refusal_over_tls_ends_the_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.http.connection.LINGER_S", 0.05)
    cert, key = certificate(tmp_path)
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    theirs.load_cert_chain(cert, key)
    ours = ssl.create_default_context(cafile=str(cert))
    async with hosted(tls=theirs) as at, at.client(ours) as client:
        await client.send(b"garbage\r\n\r\n")
        assert (await client.answer())[0] == 400
        assert await client.end() == b""


async def test_connections_beyond_the_most_are_closed_and_others_served() -> None:
    async with hosted(most=2) as at, at.client() as first:
        async with at.client() as second:
            for client in (first, second):
                await client.send(get("/echo"))
                assert (await client.answer())[0] == 200
            async with at.client() as third:
                assert await third.end() == b""
        await until(lambda: len(at.connections.connections) == 1)
        assert (await at.ask(get("/echo")))[0] == 200
