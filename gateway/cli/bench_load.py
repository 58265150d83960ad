"""The load of `gateway bench`: so many clients, each asking again as soon as it was answered."""

import asyncio
import ssl
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import aiohttp
import orjson

__all__ = ["Load", "measure", "report"]

_TOTAL_S = 600.0
_MAX_SHOWN = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """`requests` None: as many as there are time for. `trust` None: what the system trusts. `socket_file` None: by its
    address."""

    url: str
    trust: ssl.SSLContext | None = None
    socket_file: str | None = None
    key: str | None
    model: str
    prompt: str
    max_tokens: int
    stream: bool
    clients: int
    seconds: float
    requests: int | None


@dataclass(slots=True)
class _Seen:
    whole_s: list[float] = field(default_factory=list)
    first_s: list[float] = field(default_factory=list)
    tokens: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    first_error: str | None = None
    """What the first one that failed said."""
    begun: int = 0

    def fail(self, kind: str, why: str) -> None:
        self.errors[kind] += 1
        self.first_error = self.first_error or why[:_MAX_SHOWN]


async def measure(load: Load) -> Mapping[str, object]:
    """What was seen: counts, rates, and times in milliseconds."""
    seen = _Seen()
    headers = {"content-type": "application/json"}
    if load.key is not None:
        headers["authorization"] = f"Bearer {load.key}"
    body: dict[str, object] = {
        "model": load.model,
        "messages": [{"role": "user", "content": load.prompt}],
        "max_tokens": load.max_tokens,
        "stream": load.stream,
    }
    if load.stream:
        body["stream_options"] = {"include_usage": True}
    sent = orjson.dumps(body)
    began = time.perf_counter()
    connector: aiohttp.BaseConnector
    if load.socket_file is None:
        connector = aiohttp.TCPConnector(limit=0, ssl=load.trust or True)
    else:
        connector = aiohttp.UnixConnector(load.socket_file, limit=0)
    async with aiohttp.ClientSession(
        connector=connector,
        headers=headers,
        timeout=aiohttp.ClientTimeout(total=_TOTAL_S),
    ) as session:
        await asyncio.gather(*[_client(load, session, sent, seen, began + load.seconds) for _ in range(load.clients)])
    took_s = time.perf_counter() - began
    return {
        "requests": len(seen.whole_s),
        "errors": dict(seen.errors),
        "first_error": seen.first_error,
        "seconds": round(took_s, 2),
        "requests_per_s": round(len(seen.whole_s) / took_s, 2),
        "tokens_per_s": round(seen.tokens / took_s, 1),
        "whole_ms": _quantiles(seen.whole_s),
        "first_output_ms": _quantiles(seen.first_s),
    }


def report(result: Mapping[str, object]) -> str:
    """A line for each number."""
    lines = []
    for name, value in result.items():
        shown = ", ".join(f"{key} {number}" for key, number in value.items()) if isinstance(value, Mapping) else value
        if shown not in ("", None):
            lines.append(f"{name.replace('_', ' '):<18}{shown}")
    return "\n".join(lines)


async def _client(load: Load, session: aiohttp.ClientSession, body: bytes, seen: _Seen, until: float) -> None:
    while time.perf_counter() < until and (load.requests is None or seen.begun < load.requests):
        seen.begun += 1
        try:
            await _ask(load, session, body, seen)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            seen.fail(type(error).__name__, str(error))


async def _ask(load: Load, session: aiohttp.ClientSession, body: bytes, seen: _Seen) -> None:
    began = time.perf_counter()
    async with session.post(load.url, data=body) as answer:
        if answer.status != 200:
            seen.fail(str(answer.status), f"{answer.status} {(await answer.read()).decode(errors='replace')}")
            return
        if not load.stream:
            seen.tokens += _tokens(await answer.read())
            seen.whole_s.append(time.perf_counter() - began)
            return
        first: float | None = None
        tokens, done = 0, False
        async for line in answer.content:
            if line.startswith(b"data: {"):
                first = first or time.perf_counter()
                if b'"usage"' in line:
                    tokens = _tokens(line[6:]) or tokens
                if line.startswith(b'data: {"error"'):
                    seen.fail("in_stream", line.decode(errors="replace").strip())
                    return
            elif line.startswith(b"data: [DONE]"):
                done = True
        if not done or first is None:
            seen.fail("truncated", "a stream ended without its end")
            return
        seen.tokens += tokens
        seen.first_s.append(first - began)
        seen.whole_s.append(time.perf_counter() - began)


def _tokens(data: bytes) -> int:
    try:
        usage = orjson.loads(data).get("usage")
    except orjson.JSONDecodeError:
        return 0
    return int(usage.get("completion_tokens") or 0) if isinstance(usage, dict) else 0


def _quantiles(values: Sequence[float]) -> dict[str, float]:
    ordered = sorted(values)
    if not ordered:
        return {}
    return {
        f"p{percent}": round(ordered[min(len(ordered) - 1, len(ordered) * percent // 100)] * 1000, 2)
        for percent in (50, 90, 99)
    }
