"""A server of our own on loopback, and clients that stream completions from it: tokens per second, time to first token.

Both servers speak OpenAI's /v1/completions and take `ignore_eos`.
"""

import asyncio
import json
import socket
import statistics
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp

__all__ = ["HttpSpeed", "free_port", "measure", "serving"]

_START_S = 120


@dataclass(frozen=True)
class HttpSpeed:
    """Tokens per second over all clients, and the median time to first token in milliseconds."""

    tokens: float
    ttft_ms: float

    def best(self, other: "HttpSpeed") -> "HttpSpeed":
        return HttpSpeed(max(self.tokens, other.tokens), min(self.ttft_ms, other.ttft_ms))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def serving(command: Sequence[str], port: int, health: str, log: Path) -> Iterator[None]:
    """A server process until the block ends. health: the path that answers 200 once it is ready."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        try:
            deadline = time.monotonic() + _START_S
            while not _answers(f"http://127.0.0.1:{port}{health}"):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"{command[0]} did not start; see {log}")
                time.sleep(0.2)
            yield
        finally:
            process.terminate()
            process.wait(30)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def measure(port: int, model: str, *, clients: int, tokens: int, words: int, turn: int) -> HttpSpeed:
    """One round: each client streams one answer. turn: numbers the round, so that no prompt comes twice."""
    return asyncio.run(_measure(port, model, clients, tokens=tokens, words=words, turn=turn))


async def _measure(port: int, model: str, clients: int, *, tokens: int, words: int, turn: int) -> HttpSpeed:
    async with aiohttp.ClientSession(base_url=f"http://127.0.0.1:{port}") as session:
        begin = time.perf_counter()
        names = (f"{turn}.{client}" for client in range(clients))
        counts = await asyncio.gather(*(_stream(session, model, name, tokens=tokens, words=words) for name in names))
        took_s = time.perf_counter() - begin
    return HttpSpeed(clients * tokens / took_s, 1e3 * statistics.median(counts))


async def _stream(session: aiohttp.ClientSession, model: str, name: str, *, tokens: int, words: int) -> float:
    """Seconds to the first token of one answer of exactly `tokens` tokens."""
    prompt = f"Story {name}. " + " ".join(f"Then item {name} met item {index}." for index in range(words // 5))
    body = {
        "model": model,
        "prompt": prompt,
        "max_tokens": tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
    }
    begin = time.perf_counter()
    first_s = 0.0
    async with session.post("/v1/completions", json=body) as answer:
        answer.raise_for_status()
        async for line in answer.content:
            if not first_s and line.startswith(b"data: {") and json.loads(line[6:])["choices"][0].get("text"):
                first_s = time.perf_counter() - begin
    return first_s
