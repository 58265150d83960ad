#!/usr/bin/env python3
"""Thousands of slow streams at once through one process: errors, memory of each, and what a newcomer waits.

    python bench/gateway/slow_streams.py                        # 5,000 streams, the gateway beside the bare proxy
    python bench/gateway/slow_streams.py --streams 500 --seconds 5

Each stream has an event a second. While all of them run, newcomers come one after another on connections of their own;
what they wait for their first word is set beside what they wait with nobody else there. All traffic is on loopback.
"""

import argparse
import asyncio
import json
import resource
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import uvloop
from compare import HERE, KEY, Server, free_port, more_of
from loadgen import usage

RAMP = 500
"""Streams that are opened in a second."""
NEWCOMERS_EVERY_S = 0.1


@dataclass
class Streams:
    """What the clients saw. `ended` had every event and the end mark."""

    opened: int = 0
    begun: int = 0
    ended: int = 0
    errors: list[str] = field(default_factory=list)


class Client(asyncio.Protocol):
    """One stream on a connection of its own; holds none of its bytes."""

    def __init__(self, request: bytes, events: int, seen: Streams) -> None:
        self.request, self.wanted, self.seen = request, events, seen
        self.events, self.tail, self.over = 0, b"", asyncio.get_running_loop().create_future()
        self.first: asyncio.Future[float] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.seen.opened += 1
        transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        found = self.tail + data
        self.events += found.count(b"data: {")
        if b"word" in found and not self.first.done():
            self.first.set_result(time.perf_counter())
            self.seen.begun += 1
        self.tail = found[-6:] if b"[DONE]" not in found else b""
        if b"[DONE]" in found:
            self.end(None if self.events >= self.wanted else f"short: {self.events} of {self.wanted} events")
        elif not found.startswith(b"HTTP/1.1 200") and found.startswith(b"HTTP/1.1"):
            self.end(found[:200].decode(errors="replace"))

    def connection_lost(self, error: Exception | None) -> None:
        self.end(f"the connection ended: {error!r}")

    def end(self, error: str | None) -> None:
        if self.over.done():
            return
        self.over.set_result(None)
        if not self.first.done():
            self.first.set_exception(ConnectionError(error or "no event"))
            self.first.exception()  # whoever waits for it gets it again
        if error is None:
            self.seen.ended += 1
        else:
            self.seen.errors.append(error)
        self.transport.close()


def request_of(port: int, model: str) -> bytes:
    messages = [{"role": "user", "content": "Tell a long story. " * 20}]
    body = json.dumps({"model": model, "stream": True, "messages": messages}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
    return f"{head}Authorization: Bearer {KEY}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


async def newcomer(port: int, request: bytes) -> float:
    """Milliseconds from the connection's beginning to the first word; then it leaves."""
    began = time.perf_counter()
    _, client = await asyncio.get_running_loop().create_connection(
        lambda: Client(request, 0, Streams()), "127.0.0.1", port
    )
    first = await client.first
    client.transport.abort()
    return (first - began) * 1000


async def newcomers(port: int, request: bytes, seconds: float) -> list[float]:
    waits, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end:
        waits.append(await newcomer(port, request))
        await asyncio.sleep(NEWCOMERS_EVERY_S)
    return waits


async def put_load(server: Server, port: int, model: str, streams: int, seconds: float, events: int) -> dict:
    request, seen, loop = request_of(port, model), Streams(), asyncio.get_running_loop()
    alone = await newcomers(port, request, 2.0)
    idle_mb = usage([server.process.pid])[1]
    clients: list[Client] = []
    began = time.perf_counter()
    for number in range(streams):
        _, client = await loop.create_connection(lambda: Client(request, events, seen), "127.0.0.1", port)
        clients.append(client)
        await asyncio.sleep(max(0.0, began + number / RAMP - time.perf_counter()))
    while seen.begun + len(seen.errors) < streams:
        await asyncio.sleep(0.05)
    cpu = usage([server.process.pid])[0]
    crowded = await newcomers(port, request, seconds)
    cores, full_mb = (usage([server.process.pid])[0] - cpu) / seconds, usage([server.process.pid])[1]
    together = seen.begun - seen.ended - len(seen.errors)
    await asyncio.gather(*[client.over for client in clients])
    return {
        "streams": together,
        "ended": seen.ended,
        "errors": len(seen.errors),
        "samples": sorted(set(seen.errors))[:3],
        "kb_each": (full_mb - idle_mb) * 1024 / max(together, 1),
        "rss_mb": full_mb,
        "cores": cores,
        "alone_ms": statistics.median(alone),
        "p50_ms": statistics.median(crowded),
        "p99_ms": sorted(crowded)[int(len(crowded) * 0.99)],
    }


def bench(gateway: list[str], streams: int, seconds: float, folder: Path) -> bool:
    """Prints a line for each server. Tells whether the gateway had no errors."""
    # Long enough for the ramp, the measured time, and as much again for a machine that falls behind.
    events = int(2 * (streams / RAMP + seconds)) + 5
    upstream, servers = free_port(), []
    good = True

    def start(command: list[str], port: int, name: str, path: str = "/healthz") -> Server:
        servers.append(Server(command, f"http://127.0.0.1:{port}{path}", folder / f"{name}.log"))
        return servers[-1]

    mock = [sys.executable, str(HERE / "mock_upstream.py"), "--port", str(upstream)]
    (folder / "prices.yaml").write_text("mock/mock-model: {input: 0.25, output: 2, cached: 0.025}\n")
    try:
        start([*mock, "--delay-ms", "1000", "--at-once", "2", "--chunks", str(events)], upstream, "mock", "/health")
        columns = ("at once", 8), ("errors", 8), ("KB each", 9), ("RSS MB", 8), ("cores", 7)
        columns += ("TTFT alone", 12), ("p50 ms", 8), ("p99 ms", 8), ("added p50", 11)
        print(f"{'server':<12}" + "".join(f"{title:>{width}}" for title, width in columns), flush=True)
        for label in ("bare", "gateway", "everything"):
            port = free_port()
            if label == "bare":
                command = [sys.executable, str(HERE / "bare_proxy.py"), "--port", str(port)]
                command += ["--upstream", f"http://127.0.0.1:{upstream}/v1"]
            else:
                config = folder / f"{label}.yaml"
                config.write_text(
                    f"version: 1\nserver: {{port: {port}}}\nproviders:\n"
                    f"  mock: {{type: openai-compatible, base_url: 'http://127.0.0.1:{upstream}/v1', api_key: k,\n"
                    f"         max_connections: {streams + 1000}}}\nmodels: {{public: mock/mock-model}}\n"
                    + more_of(label, folder, label)
                )
                command = [*gateway, "--config", str(config)]
            server = start(command, port, label)
            model = "mock-model" if label == "bare" else "public"
            row = uvloop.run(put_load(server, port, model, streams, seconds, events))
            servers.pop().stop()
            print(
                f"{label:<12}{row['streams']:8}{row['errors']:8}{row['kb_each']:9.1f}{row['rss_mb']:8.0f}"
                f"{row['cores']:7.2f}{row['alone_ms']:12.1f}{row['p50_ms']:8.1f}{row['p99_ms']:8.1f}"
                f"{row['p50_ms'] - row['alone_ms']:11.1f}",
                flush=True,
            )
            for sample in row["samples"]:
                print(f"    {sample}")
            good = good and (label == "bare" or row["errors"] == 0)
    finally:
        for server in reversed(servers):
            server.stop()
    return good


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=5000)
    parser.add_argument("--seconds", type=float, default=20.0, help="of newcomers beside all of them")
    parser.add_argument("--gateway", default=f"{sys.executable} -m gateway", help="the command that starts it")
    args = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # the servers inherit it: two sockets a stream
    if hard < 2 * args.streams + 500:
        parser.error(f"{args.streams} streams need {2 * args.streams + 500} open files, and {hard} are allowed")
    with tempfile.TemporaryDirectory() as folder:
        if not bench(args.gateway.split(), args.streams, args.seconds, Path(folder)):
            sys.exit(1)


if __name__ == "__main__":
    main()
