#!/usr/bin/env python3
"""The gateway beside a bare proxy, in one run: CPU per request, req/s, TTFT, cold start, memory, and the ratios.

    python bench/gateway/compare.py

Both stand in front of the same mock upstream on this machine and take the same load in turns, several rounds; the
figure of a server is its median round. CPU per request hardly moves when something else runs: compare that first.
With --limits a second gateway takes part, which asks for a key, holds it to limits and a budget, and keeps its usage.
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
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

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
    Load("64-event burst stream, 64 clients", "burst", "stream", 64, 1.4),
    Load("64 events 10 ms apart, 64 clients", "spaced", "stream", 64, 1.2),
    Load("64-event burst stream, 1 client", "burst", "stream", 1, 0),
)


class Server:
    """A child process in its own group, stopped at the end."""

    def __init__(self, command: list[str], ready: str, log: Path) -> None:
        self._log = log.open("wb")
        environment = {**os.environ, "LLM_GATEWAY_DATA": str(log.parent)}  # keeps nothing beyond the run
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has its bytecode
        start = time.perf_counter()
        self.process = subprocess.Popen(
            command, stdout=self._log, stderr=subprocess.STDOUT, process_group=0, cwd=ROOT, env=environment
        )
        self.cold_start_s = self._wait(ready, start, log)

    def _wait(self, url: str, start: float, log: Path) -> float:
        while time.perf_counter() - start < 60:
            if self.process.poll() is not None:
                sys.exit(f"{url}: the server ended with {self.process.returncode}:\n{log.read_text()[-2000:]}")
            try:
                with urllib.request.urlopen(url, timeout=2):
                    return time.perf_counter() - start
            except (urllib.error.URLError, OSError):
                time.sleep(0.005)
        sys.exit(f"{url}: not ready in 60 s")

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


def measure(server: Server, port: int, model: str, load: Load, seconds: float) -> dict[str, float]:
    command = [sys.executable, str(HERE / "loadgen.py"), "--url", f"http://127.0.0.1:{port}/v1/chat/completions"]
    command += [
        "-H",
        f"Authorization: Bearer {KEY}",
        "--model",
        model,
        "--mode",
        load.mode,
        "-c",
        str(load.concurrency),
        "-d",
        str(seconds),
    ]
    with tempfile.NamedTemporaryFile(suffix=".json") as rows:
        command += ["--warmup", "0.7", "--pid", str(server.process.pid), "--json", rows.name]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"the load failed:\n{done.stdout}{done.stderr}")
        row: dict[str, float] = json.loads(Path(rows.name).read_text())
    if row["errors"]:
        sys.exit(f"the load saw errors: {row}")
    return row


KEY = "key-of-the-bench"
LIMITS = """\
auth: {{keys: [{{id: bench, secret: {key}, limits: {{rpm: 100000000, tpm: 100000000000, parallel: 10000}},
               budget: {{usd: 1000000, per: month}}}}]}}
prices: {{file: prices.yaml}}
storage: {{url: "sqlite:///{folder}/{name}.db"}}
"""

METRICS = "telemetry: {prometheus: true}\n"


def bench(gateway: list[str], seconds: float, rounds: int, folder: Path, *, more: Sequence[str]) -> None:
    python = sys.executable
    ports = {name: free_port() for name in ("burst", "spaced")}
    servers: list[Server] = []

    def start(command: list[str], port: int, name: str, path: str = "/healthz") -> Server:
        server = Server(command, f"http://127.0.0.1:{port}{path}", folder / f"{name}.log")
        servers.append(server)
        return server

    try:
        for name, delay in (("burst", "0"), ("spaced", "10")):
            command = [python, str(HERE / "mock_upstream.py"), "--port", str(ports[name]), "--delay-ms", delay]
            start(command, ports[name], name, "/health")
        (folder / "prices.yaml").write_text("mock/mock-model: {input: 0.25, output: 2, cached: 0.025}\n")
        cold: list[float] = []
        pairs: dict[str, list[tuple[str, Server, int, str]]] = {}
        for name in ("burst", "spaced"):
            bare_port = free_port()
            command = [python, str(HERE / "bare_proxy.py"), "--port", str(bare_port)]
            command += ["--upstream", f"http://127.0.0.1:{ports[name]}/v1"]
            bare = start(command, bare_port, f"bare-{name}")
            pairs[name] = [("bare", bare, bare_port, "mock-model")]
            for label in ("gateway", *more):
                port = free_port()
                config = folder / f"{label}-{name}.yaml"
                config.write_text(
                    f"version: 1\nserver: {{port: {port}}}\nproviders:\n"
                    f"  mock: {{type: openai-compatible, base_url: 'http://127.0.0.1:{ports[name]}/v1', api_key: k}}\n"
                    "models: {public: mock/mock-model}\n"
                    + {"limits": LIMITS.format(key=KEY, folder=folder, name=name), "metrics": METRICS}.get(label, "")
                )
                ours = start([*gateway, "--config", str(config)], port, f"{label}-{name}")
                cold.append(ours.cold_start_s)
                pairs[name].append((label, ours, port, "public"))
        print(f"cold start of the gateway: {min(cold):.2f} s (target 0.6 s)\n")
        columns = ("cpu ms/req", 11), ("req/s", 9), ("TTFT p50 ms", 13), ("RSS MB", 8), ("ratio", 8), ("target", 8)
        print(f"{'load':<36}{'server':<9}" + "".join(f"{title:>{width}}" for title, width in columns))
        for load in LOADS:
            rows: dict[str, list[dict[str, float]]] = {label: [] for label, *_ in pairs[load.upstream]}
            for _ in range(rounds):
                for label, server, port, model in pairs[load.upstream]:
                    rows[label].append(measure(server, port, model, load, seconds))
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
        print(
            f"{load.name if label == 'bare' else '':<36}{label:<9}{median(label, 'cpu_ms_req'):11.3f}"
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
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bench(
            args.gateway.split(),
            args.seconds,
            args.rounds,
            Path(folder),
            more=[label for label in ("limits", "metrics") if getattr(args, label)],
        )


if __name__ == "__main__":
    main()
