"""A gateway in a process of its own, and one that serves a request whose upstream has yet to answer."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx

__all__ = ["ROOT", "SERVE", "Held", "children", "holding", "serving", "until_serving"]

SERVE = """\
import os, sys
from pathlib import Path
from gateway.config import load_config
from gateway.server.process.run import serve
from providers.registry import provider_types
path = Path(sys.argv[1])
sys.exit(serve(load_config(path, os.environ, provider_types=provider_types()), config_path=path))
"""
ROOT = Path(__file__).parents[4]


@contextmanager
def serving(
    folder: Path, upstream_port: int = 9, server: str = "", *, extra: str = "", env: Mapping[str, str] | None = None
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A gateway process and where it serves: host and port, or `unix:FILE`."""
    config = folder / "run.yaml"
    config.write_text(
        f"version: 1\nserver: {{port: 0{server}}}\n"
        f"providers: {{up: {{type: openai-compatible, base_url: 'http://127.0.0.1:{upstream_port}/v1'}}}}\n"
        f"storage: {{url: memory}}\n{extra}"
    )
    command = [sys.executable, "-c", SERVE, str(config)]
    environment = {**os.environ, **(env or {})}
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=environment, start_new_session=True
    )
    try:
        assert process.stderr is not None
        first = process.stderr.readline()
        assert " on " in first, first + process.stderr.read()
        yield process, first.split(" on ")[1].split()[0].rpartition("://")[2].removesuffix("/v1")
    finally:
        process.kill()
        process.communicate()


def children(process: subprocess.Popen[str]) -> list[int]:
    return [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]


def until_serving(address: str) -> None:
    end = time.monotonic() + 20
    while time.monotonic() < end:
        with suppress(httpx.TransportError):
            if httpx.get(f"http://{address}/readyz").status_code == 200:
                return
    raise AssertionError("it does not serve")


CHAT = {"model": "up/m", "messages": [{"role": "user", "content": "hi"}]}
_BODY = (
    b'{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"finish_reason":"stop",'
    b'"message":{"role":"assistant","content":"late"}}]}'
)
_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(_BODY), _BODY)


@dataclass
class Held:
    """A gateway process with a request that its upstream has heard, and has yet to answer."""

    process: subprocess.Popen[str]
    address: str
    answer: "asyncio.Future[httpx.Response]"
    _upstream: socket.socket

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def let_go(self) -> None:
        """The upstream answers: the answer says "late"."""
        self._upstream.sendall(_ANSWER)

    async def closed(self) -> None:
        """Waits until nothing listens any more."""
        while True:
            try:
                if self.address.startswith("unix:"):
                    _, writer = await asyncio.open_unix_connection(self.address.removeprefix("unix:"))
                else:
                    host, _, port = self.address.partition(":")
                    _, writer = await asyncio.open_connection(host, int(port))
            except (ConnectionRefusedError, FileNotFoundError):
                return
            except ConnectionResetError:
                continue  # it waited in the backlog of the socket that was being closed
            writer.close()
            await asyncio.gather(writer.wait_closed(), return_exceptions=True)

    async def ended(self) -> int:
        """The status of the process, once it has ended."""
        return await asyncio.to_thread(self.process.wait, 10)


@asynccontextmanager
async def holding(folder: Path, server: str = "") -> AsyncIterator[Held]:
    with socket.create_server(("127.0.0.1", 0)) as upstream:
        upstream.settimeout(10)
        with serving(folder, upstream.getsockname()[1], server) as (process, address):
            file = address.removeprefix("unix:") if address.startswith("unix:") else None
            transport = httpx.AsyncHTTPTransport(uds=file)
            async with httpx.AsyncClient(transport=transport, timeout=10) as client:
                where = "localhost" if file is not None else address
                answer = asyncio.ensure_future(client.post(f"http://{where}/v1/chat/completions", json=CHAT))
                connection, _ = await asyncio.to_thread(upstream.accept)
                with connection:
                    assert await asyncio.to_thread(connection.recv, 65_536)
                    yield Held(process, address, answer, connection)
