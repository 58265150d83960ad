#!/usr/bin/env python3
"""The gateway beside a bare proxy, in one run: CPU per request, req/s, TTFT, cold start, memory, and the ratios.

    python bench/gateway/compare.py

Both stand in front of the same mock upstream on this machine and take the same load in turns, several rounds; the
figure of a server is its median round. CPU per request hardly moves when something else runs: compare that first.
More contenders: --limits, a gateway that asks for a key, holds it to limits and a budget, and keeps its usage;
--metrics, one that counts for Prometheus; --everything, both; --workers, one of two processes; --peers, other gateways
(see peers.py).
"""

import argparse
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from peers import PEERS, peer

HERE = Path(__file__).parent
ROOT = HERE.parent.parent


@dataclass(frozen=True)
class Load:
    """One kind of traffic. `upstream` is which mock answers; `target` the ratio that BENCH asks for."""

    name: str
    upstream: str
    mode: str
    concurrency: int
    target: float


LOADS = (
    Load("non-stream, 64 clients", "burst", "full", 64, 1.5),
    Load("64-event burst stream, 64 clients", "burst", "stream", 64, 1.25),
    Load("64 events 10 ms apart, 64 clients", "spaced", "stream", 64, 1.15),
    Load("64-event burst stream, 1 client", "burst", "stream", 1, 0),
)


class Server:
    """A child process in its own group, stopped at the end."""

    def __init__(self, command: list[str], ready: str, log: Path, more: Mapping[str, str] | None = None) -> None:
        self._log = log.open("wb")
        environment = {**os.environ, "LLM_GATEWAY_DATA": str(log.parent), **(more or {})}  # keeps nothing
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has its bytecode
        start = time.perf_counter()
        self.process = subprocess.Popen(
            command, stdout=self._log, stderr=subprocess.STDOUT, process_group=0, cwd=ROOT, env=environment
        )
        self.cold_start_s = self._wait(ready, start, log)

    def _wait(self, url: str, start: float, log: Path) -> float:
        while time.perf_counter() - start < 120:
            if self.process.poll() is not None:
                sys.exit(f"{url}: the server ended with {self.process.returncode}:\n{log.read_text()[-2000:]}")
            try:
                with urllib.request.urlopen(url, timeout=2):
                    return time.perf_counter() - start
            except (urllib.error.URLError, OSError):
                time.sleep(0.005)
        sys.exit(f"{url}: not ready in 120 s")

    def stop(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
        self._log.close()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(frozen=True)
class Contender:
    """A server with the port and the model that it is asked by."""

    label: str
    server: Server
    port: int
    model: str
    headers: Mapping[str, str] = field(default_factory=dict)
    warmup_s: float = 0.7


def measure(one: Contender, load: Load, seconds: float) -> dict[str, float]:
    command = [sys.executable, str(HERE / "loadgen.py"), "--url", f"http://127.0.0.1:{one.port}/v1/chat/completions"]
    command += ["--model", one.model, "--mode", load.mode, "-c", str(load.concurrency), "-d", str(seconds)]
    for name, value in {"Authorization": f"Bearer {KEY}", **one.headers}.items():
        command += ["-H", f"{name}: {value}"]
    with tempfile.NamedTemporaryFile(suffix=".json") as rows:
        command += ["--warmup", str(one.warmup_s), "--pid", str(one.server.process.pid), "--json", rows.name]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"the load on {one.label} failed:\n{done.stdout}{done.stderr}")
        row: dict[str, float] = json.loads(Path(rows.name).read_text())
    if row["errors"]:
        sys.exit(f"the load on {one.label} saw errors: {row}")
    return row


_OPENING_S = 3.0
"""The first request makes the database and loads what that needs, which is no cost of a request."""
KEY = "key-of-the-bench"
METRICS = "telemetry: {prometheus: true}\n"


def limits(folder: Path, name: str) -> str:
    """Of run.yaml: a key that is limited, costs that are known, and a database of this name."""
    return f"""\
auth: {{keys: [{{id: bench, secret: {KEY}, limits: {{rpm: 100000000, tpm: 100000000000, parallel: 10000}},
               budget: {{usd: 1000000, per: month}}}}]}}
prices: {{file: prices.yaml}}
storage: {{url: "sqlite:///{folder}/{name}.db"}}
"""


def more_of(label: str, folder: Path, name: str) -> str:
    """What the contender of this label has in its run.yaml beside the others'."""
    return (limits(folder, name) if label in ("limits", "everything") else "") + (
        METRICS if label in ("metrics", "everything") else ""
    )


class Field:
    """Everybody in front of one mock upstream, started in the order of the table."""

    def __init__(self, name: str, delay_ms: int, folder: Path, servers: list[Server]) -> None:
        self._name = name
        self._folder = folder
        self._servers = servers
        port = free_port()
        self.upstream = f"http://127.0.0.1:{port}/v1"
        mock = [sys.executable, str(HERE / "mock_upstream.py"), "--port", str(port), "--delay-ms", str(delay_ms)]
        mock += ["--at-once", "2"]  # the first word with the role, which the gateway keeps until a word comes
        self._start("mock", mock, port, "/health")
        self.contenders: list[Contender] = []

    def add_bare(self) -> None:
        port = free_port()
        command = [sys.executable, str(HERE / "bare_proxy.py"), "--port", str(port), "--upstream", self.upstream]
        self.contenders.append(Contender("bare", self._start("bare", command, port, "/healthz"), port, "mock-model"))

    def add_gateway(self, label: str, command: Sequence[str]) -> Server:
        port = free_port()
        config = self._folder / f"{label}-{self._name}.yaml"
        workers = ", workers: 2" if label == "2 workers" else ""
        config.write_text(
            f"version: 1\nserver: {{port: {port}{workers}}}\nproviders:\n"
            f"  mock: {{type: openai-compatible, base_url: '{self.upstream}', api_key: k}}\n"
            "models: {public: mock/mock-model}\n" + more_of(label, self._folder, f"{label}-{self._name}")
        )
        server = self._start(label, [*command, "--config", str(config)], port, "/healthz")
        self.contenders.append(Contender(label, server, port, "public", warmup_s=_OPENING_S))
        return server

    def add_peer(self, name: str, installed: Path) -> None:
        port = free_port()
        found = peer(name, installed, port=port, upstream=self.upstream, folder=self._folder)
        server = self._start(name, found.command, port, found.ready, found.environment)
        self.contenders.append(Contender(name, server, port, found.model, found.headers, warmup_s=_OPENING_S))

    def _start(
        self, label: str, command: list[str], port: int, ready: str, environment: Mapping[str, str] | None = None
    ) -> Server:
        log = self._folder / f"{label}-{self._name}.log"
        server = Server(command, f"http://127.0.0.1:{port}{ready}", log, environment)
        self._servers.append(server)
        return server


def bench(
    gateway: list[str],
    seconds: float,
    rounds: int,
    folder: Path,
    *,
    more: Sequence[str],
    peers: Sequence[str] = (),
    installed: Path = Path(),
) -> None:
    servers: list[Server] = []
    try:
        (folder / "prices.yaml").write_text("mock/mock-model: {input: 0.25, output: 2, cached: 0.025}\n")
        cold: list[float] = []
        fields: dict[str, Field] = {}
        for name, delay_ms in (("burst", 0), ("spaced", 10)):
            here = fields[name] = Field(name, delay_ms, folder, servers)
            here.add_bare()
            cold += [here.add_gateway(label, gateway).cold_start_s for label in ("gateway", *more)]
            for label in peers:
                here.add_peer(label, installed)
        print(f"cold start of the gateway: {min(cold):.2f} s (target 0.6 s)\n")
        columns = ("cpu ms/req", 11), ("req/s", 9), ("TTFT p50 ms", 13), ("RSS MB", 8), ("ratio", 8), ("target", 8)
        print(f"{'load':<36}{'server':<11}" + "".join(f"{title:>{width}}" for title, width in columns))
        for load in LOADS:
            everybody = fields[load.upstream].contenders
            rows: dict[str, list[dict[str, float]]] = {one.label: [] for one in everybody}
            for _ in range(rounds):
                for one in everybody:
                    rows[one.label].append(measure(one, load, seconds))
            report(load, rows)
    finally:
        for server in reversed(servers):
            server.stop()


def report(load: Load, rows: dict[str, list[dict[str, float]]]) -> None:
    def median(label: str, key: str) -> float:
        return statistics.median(row.get(key, 0.0) for row in rows[label])

    for label in rows:
        ratio = median(label, "cpu_ms_req") / median("bare", "cpu_ms_req")
        first = f"{median(label, 'ttft_ms_p50'):13.2f}" if load.mode == "stream" else " " * 13
        tail = f"{ratio:7.2f}x" + (f"{load.target:7.2f}x" if load.target else "") if label != "bare" else ""
        if label == "2 workers":
            tail += f"   {median(label, 'cpu_ms_req') / median('gateway', 'cpu_ms_req'):.2f}x of one process (1.10x)"
        print(
            f"{load.name if label == 'bare' else '':<36}{label:<11}{median(label, 'cpu_ms_req'):11.3f}"
            f"{median(label, 'rps'):9.0f}{first}{median(label, 'rss_mb'):8.0f}{tail}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measured round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--gateway", default=f"{sys.executable} -m gateway", help="the command that starts it")
    parser.add_argument("--limits", action="store_true", help="also a gateway with keys, limits, budget and usage")
    parser.add_argument("--metrics", action="store_true", help="also a gateway that counts for Prometheus")
    parser.add_argument("--everything", action="store_true", help="also a gateway with all of these")
    parser.add_argument("--workers", action="store_true", help="also a gateway of two processes")
    parser.add_argument("--peers", default="", help=f"other gateways, with commas between: {', '.join(PEERS)}")
    parser.add_argument("--peers-in", type=Path, default=Path.home() / "peers", help="where they are installed")
    args = parser.parse_args()
    more = [label for label in ("limits", "metrics", "everything") if getattr(args, label)] + (
        ["2 workers"] if args.workers else []
    )
    peers = [name for name in args.peers.split(",") if name]
    if unknown := [name for name in peers if name not in PEERS]:
        parser.error(f"--peers: {', '.join(unknown)} is not among {', '.join(PEERS)}")
    with tempfile.TemporaryDirectory() as folder:
        bench(
            args.gateway.split(),
            args.seconds,
            args.rounds,
            Path(folder),
            more=more,
            peers=peers,
            installed=args.peers_in,
        )


if __name__ == "__main__":
    main()
