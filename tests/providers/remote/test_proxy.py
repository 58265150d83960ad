"""A configured proxy: whole requests in the clear, a tunnel for servers with TLS, and what it may refuse."""

import asyncio
import ssl
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import uvloop

from adapters.canonical.errors import UpstreamUnreachable
from tests.certificates import certificate
from tests.providers.remote.wire_server import Serve, answering, client_of, serving

pytestmark = pytest.mark.timeout(20)
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


def context_of(folder: Path) -> tuple[ssl.SSLContext, str]:
    cert, key = certificate(folder)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(cert, key)
    return context, str(cert)


class TunnelingProxy:
    """`heads` are the requests that it got."""

    def __init__(self, answer: bytes = b"HTTP/1.1 200 Connection established\r\n\r\n") -> None:
        self.heads: list[bytes] = []
        self._answer = answer

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self.heads.append(head)
        writer.write(self._answer)
        if not self._answer[9:].startswith(b"200"):
            await writer.drain()
            return
        host, _, port = head.split(b" ")[1].decode().rpartition(":")
        behind, before = await asyncio.open_connection(host, int(port))
        try:
            await asyncio.gather(_pass_on(reader, before), _pass_on(behind, writer))
        finally:
            before.transport.abort()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)


def through(url: str, account: str = "") -> str:
    return url.removesuffix("/v1").replace("://", f"://{account}")


async def body() -> AsyncGenerator[bytes, None]:
    yield b"ab"


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("secured", [False, True], ids=["proxy in the clear", "proxy with TLS"])
def test_a_server_with_tls_is_asked_through_a_tunnel_which_is_kept(tmp_path: Path, loop: type, secured: bool) -> None:
    context, authority = context_of(tmp_path)
    proxy = TunnelingProxy()
    handshakes = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal handshakes
        handshakes += 1
        await answering(OK)(reader, writer)

    async def main() -> None:
        async with (
            serving(serve, tls=context) as base_url,
            serving(proxy, tls=context if secured else None) as proxy_url,
            client_of(base_url, proxy=through(proxy_url, "us%65r:pass@"), ca_file=authority) as client,
        ):
            for _ in range(2):
                with await client.post("/a", b"{}", stream=False) as answer:
                    assert await answer.body() == b"ok"
                with await client.forward("POST", "/a", {}, body(), length=2) as answer:
                    assert await answer.body() == b"ok"
            place = base_url.removeprefix("https://").removesuffix("/v1")
        assert proxy.heads == [
            f"CONNECT {place} HTTP/1.1\r\nhost: {place}\r\nproxy-authorization: Basic dXNlcjpwYXNz\r\n\r\n".encode()
        ]

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(main())
    assert handshakes == 1


async def test_requests_in_the_clear_go_to_it_whole() -> None:
    heads: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            heads.append(await reader.readuntil(b"\r\n\r\n"))
            await reader.readexactly(2)
            writer.write(OK)

    async with (
        serving(serve) as proxy_url,
        client_of("http://upstream.invalid/v1", proxy=through(proxy_url, "user:pass@")) as client,
    ):
        with await client.post("/a", b"{}", stream=True) as answer:
            assert await answer.body() == b"ok"
        with await client.forward("POST", "/b", {}, body(), length=2) as answer:
            assert await answer.body() == b"ok"
    for head, path in zip(heads, ("/a", "/b"), strict=True):
        assert head.startswith(f"POST http://upstream.invalid/v1{path} HTTP/1.1\r\nhost: upstream.invalid\r\n".encode())
        assert b"\r\nproxy-authorization: Basic dXNlcjpwYXNz\r\n" in head


async def close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")


@pytest.mark.parametrize(
    ("serve", "message"),
    [
        (TunnelingProxy(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n"), "refused the connection"),
        (TunnelingProxy(b"SSH-2.0-OpenSSH_9.2\r\n\r\n"), "refused the connection"),
        (TunnelingProxy(b"x" * 20_000), "refused the connection"),
        (close, "closed the connection"),
    ],
)
async def test_a_proxy_that_lets_nothing_through_is_unreachable(serve: Serve, message: str) -> None:
    async with (
        serving(serve) as proxy_url,
        client_of("https://upstream.invalid/v1", proxy=through(proxy_url, "user:secret@"), max_connections=1) as client,
    ):
        for _ in range(2):  # the room of a failed one is there again
            with pytest.raises(UpstreamUnreachable) as caught:
                await client.post("/a", b"{}", stream=False)
            assert caught.value.message == f"tiny: the configured proxy {message}"


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_a_server_behind_a_tunnel_is_trusted_no_more_than_another(tmp_path: Path, loop: type) -> None:
    context, _ = context_of(tmp_path)

    async def main() -> None:
        async with (
            serving(answering(OK), tls=context) as base_url,
            serving(TunnelingProxy()) as proxy_url,
            client_of(base_url, proxy=through(proxy_url), max_connections=1) as client,
        ):
            for _ in range(2):
                with pytest.raises(UpstreamUnreachable, match="TLS failed, CERTIFICATE_VERIFY_FAILED"):
                    await client.post("/a", b"{}", stream=False)

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(main())
