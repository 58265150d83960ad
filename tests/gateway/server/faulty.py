"""An upstream that sends any bytes and then does any harm, and a gateway in front of it and of a healthy one."""

import asyncio
import json
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal

import aiohttp

from tests.mock_upstream import Answer, MockUpstream
from tests.serving import serving

__all__ = ["BODY", "CHUNKS", "Faulty", "Faults", "Seen", "Then", "faults", "head", "whole"]

Then = Literal["close", "reset", "hang"]

_CHUNK = b'data: {"id":"u","created":1,"model":"m","choices":[{"index":0,"delta":%b,"finish_reason":%b}]}\n\n'
CHUNKS = (
    _CHUNK % (b'{"role":"assistant","content":""}', b"null"),
    _CHUNK % (b'{"content":"par"}', b"null"),
    _CHUNK % (b'{"content":"tial"}', b"null"),
    _CHUNK % (b"{}", b'"stop"'),
    b"data: [DONE]\n\n",
)
"""A good stream that says `partial`: its start, two words, its finish, its end."""
BODY = (
    b'{"id":"u","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"partial"},'
    b'"finish_reason":"stop"}]}'
)


def head(content_type: str = "text/event-stream", status: int = 200, *headers: str) -> bytes:
    """Of an answer that ends with its connection. `headers` are more lines."""
    lines = [f"HTTP/1.1 {status} X", f"content-type: {content_type}", *headers, "connection: close", "", ""]
    return "\r\n".join(lines).encode()


def whole(*, stream: bool) -> bytes:
    """Every byte of a good answer, chunked or with its length."""
    if not stream:
        return b"HTTP/1.1 200 X\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(BODY), BODY)
    chunks = b"".join([b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in CHUNKS])
    return (
        b"HTTP/1.1 200 X\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n%b0\r\n\r\n" % chunks
    )


class Faulty:
    """Answers each request with `sent`, then does what `then` says. `calls` counts requests, `open` those not over."""

    def __init__(self) -> None:
        self.sent = b""
        self.then: Then = "close"
        self.calls = 0
        self.open = 0
        self._writers: set[asyncio.StreamWriter] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        self.open += 1
        try:
            request = await reader.readuntil(b"\r\n\r\n")
            length = next(line for line in request.lower().split(b"\r\n") if line.startswith(b"content-length:"))
            await reader.readexactly(int(length.split(b":")[1]))
            self.calls += 1
            writer.write(self.sent)
            await writer.drain()
            for _ in range(6):  # the gateway, on the same loop, reads this before the harm
                await asyncio.sleep(0)
            if self.then == "hang":
                await reader.read(1)  # ends when the gateway leaves
            elif self.then == "reset":
                linger = struct.pack("ii", 1, 0)
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                writer.transport.abort()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the gateway left
        finally:
            self.open -= 1
            self._writers.discard(writer)
            writer.close()

    def abort(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()


@dataclass(frozen=True)
class Seen:
    """What the client got."""

    status: int
    body: bytes

    @property
    def error(self) -> dict[str, Any]:
        """The error object of an answer that is nothing else."""
        found: dict[str, Any] = json.loads(self.body)["error"]
        return found

    @property
    def frames(self) -> list[str]:
        """The data of a stream's frames."""
        return [line[6:] for line in self.body.decode().splitlines() if line.startswith("data: ")]


@dataclass
class Faults:
    """`lone` has the faulty target alone, `pair` a healthy one behind it, which says `good`."""

    url: str
    session: aiohttp.ClientSession
    faulty: Faulty
    healthy: MockUpstream

    async def ask(self, model: str, *, stream: bool, path: str = "/v1/chat/completions", **fields: object) -> Seen:
        """`fields` are those of the body; one that is None is left out."""
        body = {"model": model, "messages": [{"role": "user", "content": "hi"}], "stream": stream or None, **fields}
        sent = {name: value for name, value in body.items() if value is not None}
        async with self.session.post(self.url + path, json=sent) as answer:
            return Seen(answer.status, await answer.read())


_HEALTHY_STREAM = (_CHUNK % (b'{"role":"assistant","content":"good"}', b"null"), *CHUNKS[3:])
_HEALTHY_BODY = BODY.replace(b"partial", b"good")


@asynccontextmanager
async def faults(
    *,
    stream: bool = True,
    more: str = "",
    timeouts: str = "{}",
    refusing: str | None = None,
    healthy_body: bytes | None = None,
    kind: str = "openai-compatible",
) -> AsyncIterator[Faults]:
    """`more` are fields of the alias `pair`, `refusing` an address in place of the faulty upstream, `healthy_body` what
    the healthy one says instead, `kind` the faulty one's type. Nothing is tried twice, and no breaker opens."""
    faulty = Faulty()
    server = await asyncio.start_server(faulty.serve, "127.0.0.1", 0)
    below = "" if kind == "ollama" else "/v1"
    address = refusing or f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}{below}"
    answer = Answer.sse(_HEALTHY_STREAM) if stream else Answer.json(healthy_body or _HEALTHY_BODY)
    async with MockUpstream(answer) as healthy:
        text = (
            "version: 1\nstorage: {url: memory}\nproviders:\n"
            f"  a: {{type: {kind}, base_url: '{address}'{'' if kind == 'ollama' else ', api_key: k'}}}\n"
            f"  b: {{type: openai-compatible, base_url: '{healthy.base_url}'}}\n"
            f"models: {{lone: a/m, pair: {{targets: [a/m, b/m]{more}}}}}\n"
            f"reliability: {{retry: {{attempts: 1}}, breaker: {{failures: 1000000}}, timeouts: {timeouts}}}\n"
        )
        async with serving(text) as url, aiohttp.ClientSession() as session:
            try:
                yield Faults(url, session, faulty, healthy)
            finally:
                server.close()
                faulty.abort()
