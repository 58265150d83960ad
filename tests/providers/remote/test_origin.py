"""Opening a connection: names, addresses that do not answer, and TLS against a server with an authority of its own."""

import asyncio
import socket
import ssl
from pathlib import Path

import pytest
import uvloop

from providers.remote.origin import Origin
from providers.remote.pool import Pool
from providers.remote.tls import ResumingContext, trusting
from tests.certificates import certificate
from tests.providers.remote.test_pool import OK, use
from tests.providers.remote.wire_server import answering, serving

pytestmark = pytest.mark.timeout(20)


def port_of(base_url: str) -> int:
    return int(base_url.split(":")[2].removesuffix("/v1"))


async def ask(origin: Origin, times: int = 1) -> list[bytes]:
    """Each over a connection of its own."""
    found = []
    for _ in range(times):
        pool = Pool(origin, max_connections=1, connect_s=5, turn_s=5)
        try:
            connection = await pool.connect()
            found.append(await use(connection))
        finally:
            await pool.aclose()
    return found


async def test_a_name_is_looked_up_and_every_address_of_it_is_tried() -> None:
    async with serving(answering(OK)) as base_url:  # listens on 127.0.0.1 alone; the name may mean ::1 first
        assert await ask(Origin("localhost", port_of(base_url), None)) == [b"ok"]


async def test_a_name_that_does_not_resolve_is_told() -> None:
    for _ in range(2):
        with pytest.raises(socket.gaierror):
            await Origin("upstream.invalid", 80, None).open(asyncio.Protocol)


async def test_a_name_whose_addresses_take_no_connection_is_looked_up_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(answering(OK)) as base_url:
        told = iter((1, port_of(base_url)))

        async def look_up(host: str, port: int, **_: object) -> list[tuple[object, ...]]:
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", next(told)))]

        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", look_up)
        origin = Origin("upstream.invalid", 80, None)
        with pytest.raises(ConnectionRefusedError):
            await ask(origin)
        assert await ask(origin, times=2) == [b"ok"] * 2
        assert next(told, None) is None


async def test_small_writes_go_out_at_once() -> None:
    async with serving(answering(OK)) as base_url:
        protocol = _Kept()
        await Origin("127.0.0.1", port_of(base_url), None).open(lambda: protocol)
        opened = protocol.transport.get_extra_info("socket")
        assert opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        protocol.transport.close()


class _Kept(asyncio.Protocol):
    transport: asyncio.BaseTransport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport


class TestTls:
    @staticmethod
    def server(folder: Path, host: str = "127.0.0.1") -> tuple[ssl.SSLContext, Path]:
        cert, key = certificate(folder, host)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(cert, key)
        return context, cert

    @pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
    def test_a_server_of_the_configured_authority_is_trusted_and_its_session_taken_up_again(
        self, tmp_path: Path, loop: type
    ) -> None:
        context, cert = self.server(tmp_path)
        resumed: list[bool] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            resumed.append(writer.get_extra_info("ssl_object").session_reused)
            await answering(OK)(reader, writer)

        async def main() -> None:
            async with serving(serve, tls=context) as base_url:
                origin = Origin("127.0.0.1", port_of(base_url), trusting(str(cert)))
                assert await ask(origin, times=3) == [b"ok"] * 3

        with asyncio.Runner(loop_factory=loop) as runner:
            runner.run(main())
        assert resumed == [False, True, True]

    @pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
    @pytest.mark.parametrize("secured", [True, False])
    def test_a_large_body_goes_both_ways(self, tmp_path: Path, secured: bool, loop: type) -> None:
        context, cert = self.server(tmp_path)
        tls = trusting(str(cert)) if secured else None
        with asyncio.Runner(loop_factory=loop) as runner:
            runner.run(self.exchange_large_bodies(context if secured else None, tls))

    @staticmethod
    async def exchange_large_bodies(context: ssl.SSLContext | None, tls: ResumingContext | None) -> None:
        body = bytes(3_000_000)
        answer = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body
        async with serving(answering(answer), tls=context) as base_url:
            pool = Pool(Origin("127.0.0.1", port_of(base_url), tls), max_connections=1, connect_s=5, turn_s=5)
            connections = set()
            for _ in range(2):
                connections.add(connection := await pool.connect())
                found = connection.send(b"POST /a HTTP/1.1\r\ncontent-length: %d\r\n\r\n" % len(body), body)
                await found.head
                size = 0
                while not found.finished:
                    await found.arrive()
                    size += len(found.take())
                assert size == len(body)
            assert len(connections) == 1
            await pool.aclose()

    @pytest.mark.parametrize("host", ["127.0.0.1", "other.example"])
    async def test_an_unknown_authority_or_another_name_is_refused(self, tmp_path: Path, host: str) -> None:
        context, cert = self.server(tmp_path, host)
        tls = trusting(None if host == "127.0.0.1" else str(cert))
        async with serving(answering(OK), tls=context) as base_url:
            pool = Pool(Origin("127.0.0.1", port_of(base_url), tls), max_connections=1, connect_s=5, turn_s=5)
            for _ in range(2):  # the room of a failed one is there again
                with pytest.raises(ssl.SSLCertVerificationError):
                    await pool.connect()
            await pool.aclose()

    async def test_a_server_that_says_nothing_ends_at_the_connect_limit(self, tmp_path: Path) -> None:
        async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await asyncio.Event().wait()

        async with serving(say_nothing) as base_url:
            pool = Pool(
                Origin("127.0.0.1", port_of(base_url), trusting(None)), max_connections=1, connect_s=0.05, turn_s=5
            )
            for _ in range(2):
                with pytest.raises(TimeoutError):
                    await pool.connect()
            await pool.aclose()
