"""Mixed traffic against a gateway in this process: every dialect, faults of upstreams, clients that leave. Then a look
at what is left behind, and whether both sides counted the same.

    python -m tests.gateway.soak.load --seconds 3600
"""

import argparse
import asyncio
import gc
import os
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from gateway.config import Config, parse_config
from gateway.server.app import Surroundings, build_app
from gateway.server.lifetime import App
from gateway.telemetry.series import Snapshot
from providers.registry import provider_types
from tests.cases.tiny_model import write_model
from tests.gateway.server.running import until
from tests.gateway.soak.flaky import FlakyUpstream
from tests.gateway.soak.questions import Question, question

__all__ = ["Seen", "soak"]

CLIENTS = 24
LEAVING = 0.05
FAULTY = 0.1
KEY = "key-of-the-soak"
_WARM = 0.3
"""This share of the time passes before memory must be flat."""
_LEAST = 500
"""So many requests has each half at least, on however slow a machine: the first of them only warm up."""
_LIVE_NOISE = 1500
_LIVE_EACH = 0.02
"""By so much where all is warm, and so much a request, may the blocks of live objects differ between two moments
without a request: a connection upstream that is kept has some hundred, a thing that each request leaves behind has at
least one."""


@dataclass
class Seen:
    """What the load saw. `left` did not wait for the end; `statuses` are of the others."""

    statuses: Counter[int] = field(default_factory=Counter)
    failed_in_stream: int = 0
    left: int = 0
    paths: Counter[str] = field(default_factory=Counter)
    resident: list[tuple[float, float]] = field(default_factory=list)
    """Seconds, and MB."""
    live: list[tuple[int, int]] = field(default_factory=list)
    """Requests so far, and blocks of live objects, when nothing was asked: after each half."""

    @property
    def requests(self) -> int:
        return self.statuses.total() + self.left

    def check_memory(self, seconds: float, within: float, noise: int) -> None:
        """Flat after the beginning: what is resident grows by no more than this share, and requests leave nothing."""
        (requests_before, before), (requests, blocks) = self.live
        assert blocks - before <= noise + _LIVE_EACH * (requests - requests_before), self.live
        early = max(mb for at, mb in self.resident if _WARM * seconds <= at <= 0.6 * seconds)
        late = max(mb for at, mb in self.resident if at >= 0.8 * seconds)
        assert late <= early * (1 + within), self.resident[:: max(1, len(self.resident) // 20)]


@dataclass(frozen=True)
class Part:
    """How long clients go on: until this moment, and until so many requests were made since the beginning."""

    until_s: float
    least: int


async def soak(seconds: float, folder: Path, *, seed: int = 0, growth: float = 0.05, noise: int = _LIVE_NOISE) -> Seen:
    """`growth`: the share by which memory may grow; `noise`: the blocks by which live objects may, whatever is asked.
    Fails where they grow by more, or where anything is left behind, or is not counted as it was seen."""
    tasks_before = len(asyncio.all_tasks())
    source = random.Random(seed)
    upstreams = [FlakyUpstream(random.Random(seed + number), share=FAULTY) for number in (1, 2)]
    urls = [await upstream.start() for upstream in upstreams]
    app = build_app(_config(urls, folder), around=Surroundings(log=None))
    await app.start()
    await _loaded(app)
    server = await asyncio.get_running_loop().create_server(app.connections, "127.0.0.1", 0, backlog=1024)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    seen = Seen()
    began = time.monotonic()
    watch = asyncio.ensure_future(_watch(seen, began, seconds))
    for half in (1, 2):
        async with _session() as session:
            part = Part(until_s=began + half * seconds / 2, least=half * _LEAST)
            await asyncio.gather(
                *[_client(session, url, random.Random(source.random()), part, seen) for _ in range(CLIENTS)]
            )
            await until(lambda: app.running == 0, within_s=10)
            attempts = await _check_counts(app, seen, upstreams, session, url)
        await until(lambda: not app.connections.connections, within_s=10)
        seen.live.append((seen.requests, _live_blocks()))
    await watch
    _check_left(app)
    server.close()
    await app.drain(0)
    await app.aclose()
    for upstream in upstreams:
        upstream.close()
    await until(lambda: not any(upstream.open for upstream in upstreams), within_s=10)
    await until(lambda: len(asyncio.all_tasks()) <= tasks_before, within_s=10)
    print(f"{seen.requests} requests, {attempts} attempts, {sum(each.wrong for each in upstreams)} faults upstream")
    print(f"{dict(seen.statuses)}, {seen.failed_in_stream} failed after their beginning, {seen.left} left early")
    seen.check_memory(seconds, growth, noise)
    return seen


def _session() -> aiohttp.ClientSession:
    connector = aiohttp.TCPConnector(limit=0)
    return aiohttp.ClientSession(connector=connector, headers={"authorization": f"Bearer {KEY}"})


def _config(urls: list[str], folder: Path) -> Config:
    write_model(folder / "tiny")
    (folder / "plain.jinja").write_text("{% for message in messages %}{{ message.content }}\n{% endfor %}")
    (folder / "prices.yaml").write_text('"*": {input: 0.25, output: 2}\n')
    text = (
        "version: 1\nserver: {completions_as_chat: true}\n"
        f"auth: {{keys: [{{id: soak, secret: {KEY}, admin: true, limits: {{rpm: 100000000, parallel: 1000}}}}]}}\n"
        f"providers:\n  a: {{type: openai-compatible, base_url: '{urls[0]}'}}\n"
        f"  b: {{type: openai-compatible, base_url: '{urls[1]}'}}\n"
        f"  local: {{type: local, device: cpu, threads: 1, models:\n"
        f"    {{tiny: {{source: {folder}/tiny, chat_template: {folder}/plain.jinja}}}}}}\n"
        "models: {smart: {targets: [a/m, b/m], strategy: least_busy}}\n"
        "reliability: {timeouts: {first_token_s: 1, gap_s: 1, whole_s: 1, total_s: 10}, retry: {max_wait_s: 1}}\n"
        f"storage: {{url: 'sqlite:///{folder}/soak.db'}}\ntelemetry: {{prometheus: true}}\n"
        f"prices: {{file: {folder}/prices.yaml}}\n"
    )
    return parse_config(text, {}, provider_types=provider_types())


async def _loaded(app: App) -> None:
    async with asyncio.timeout(30):
        while await app.catalogue.is_loading("local/tiny"):  # noqa: ASYNC110  # nothing tells of that moment
            await asyncio.sleep(0.05)


async def _client(session: aiohttp.ClientSession, url: str, source: random.Random, part: Part, seen: Seen) -> None:
    while time.monotonic() < part.until_s or seen.requests < part.least:
        asked = question(source)
        seen.paths[asked.path] += 1
        patience_s = source.random() * 0.03 if source.random() < LEAVING else 60.0
        try:
            async with asyncio.timeout(patience_s):
                await _ask(session, url, asked, seen)
        except TimeoutError:
            assert patience_s < 1, asked
            seen.left += 1


async def _ask(session: aiohttp.ClientSession, url: str, asked: Question, seen: Seen) -> None:
    named = {name: os.urandom(8).hex() for name in ("x-request-id", "x-session-id", "user-agent", "idempotency-key")}
    async with session.post(url + asked.path, json=asked.body, headers=named) as answer:
        body = await answer.read()
    ended_well = asked.ended_well(answer.status, body)
    seen.statuses[answer.status] += 1
    if answer.status == 200 and not ended_well:
        seen.failed_in_stream += 1


async def _watch(seen: Seen, began: float, seconds: float) -> None:
    while (at := time.monotonic() - began) < seconds:
        gc.collect()
        seen.resident.append((at, _resident_mb()))
        await asyncio.sleep(seconds / 60)


async def _check_counts(
    app: App, seen: Seen, upstreams: list[FlakyUpstream], session: aiohttp.ClientSession, url: str
) -> int:
    """What the gateway counted is what was seen here and upstream. Gives how many attempts there were."""
    snapshot = app.snapshot()
    assert snapshot is not None
    ended = _ended(snapshot)
    by_status = Counter[int]()
    for (status, _), count in ended.items():
        by_status[status] += count
    # Who left before the gateway had the request was not counted.
    assert seen.statuses.total() <= by_status.total() <= seen.requests, (by_status, seen)
    for status, count in seen.statuses.items():  # who leaves at the last moment may have been answered
        assert count <= by_status[status] <= count + seen.left, (by_status, seen)
    in_stream = sum(count for (status, error), count in ended.items() if status == 200 and error)
    assert seen.failed_in_stream <= in_stream <= seen.failed_in_stream + seen.left
    attempts = {target: sum(series.ended.values()) for target, series in snapshot.attempts.items()}
    remote = sum(count for (provider, _), count in attempts.items() if provider != "local")
    asked = sum(upstream.asked for upstream in upstreams)
    assert asked <= remote <= asked + seen.left + _unsent(snapshot), (asked, remote)
    async with session.get(f"{url}/admin/usage") as answer:
        rows = (await answer.json())["data"]
    seen.statuses[200] += 1  # which is counted as well
    assert sum(row["attempts"] for row in rows) == sum(attempts.values())
    return sum(attempts.values())


def _ended(snapshot: Snapshot) -> Counter[tuple[int, str]]:
    ended = Counter[tuple[int, str]]()
    for series in snapshot.requests.values():
        ended.update(series.ended)
    return ended


def _unsent(snapshot: Snapshot) -> int:
    """Attempts whose connection was lost or given up, perhaps before the upstream had the whole request."""
    return sum(
        count
        for series in snapshot.attempts.values()
        for (_, outcome, error), count in series.ended.items()
        if outcome == "failed" and error in ("UpstreamUnreachable", "UpstreamTimeout")
    )


def _check_left(app: App) -> None:
    """No call, no body, no block."""
    snapshot = app.snapshot()
    assert snapshot is not None
    held = {
        (gauge.name, *gauge.labels): gauge.value
        for gauge in snapshot.gauges
        if gauge.name
        in (
            "gateway.requests.active",
            "gateway.request.bodies.held",
            "gateway.target.active",
            "gateway.engine.running",
            "gateway.engine.waiting",
            "gateway.engine.blocks_used",
        )
    }
    assert len(held) >= 7, held
    assert not any(held.values()), held


def _live_blocks() -> int:
    """Of Python's own objects: no memory that is free or of others, so it does not move while nothing happens."""
    gc.collect()
    return sys.getallocatedblocks()


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        seen = asyncio.run(soak(arguments.seconds, Path(folder), seed=arguments.seed))
    print("memory, MB:", *[f"{mb:.0f}" for _, mb in seen.resident[::6]])
    print("requests and live blocks:", *seen.live)


if __name__ == "__main__":
    main()
