#!/usr/bin/env python3
"""Closed-loop load generator for OpenAI-compatible chat/completions servers.

For each mode and concurrency it keeps that many keep-alive connections busy
for a fixed time and prints one row: requests/s, latency percentiles and, for
streams, time to first event, events/s. With --pid it also reports how much CPU
the server (and its children) burned per request and its resident memory: on a
shared or small machine the CPU figure is the one that can be compared.

Needs uvloop and httptools. Talks to loopback addresses only.
"""

import argparse
import asyncio
import ipaddress
import json
import os
import sys
import time
from urllib.parse import urlsplit

import httptools
import uvloop

TICK = os.sysconf("SC_CLK_TCK")
PAGE_KB = os.sysconf("SC_PAGE_SIZE") // 1024


def tree(pids):
    """The pids and all their descendants."""
    children = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat") as f:
                    ppid = int(f.read().rsplit(")", 1)[1].split()[1])
            except OSError:
                continue
            children.setdefault(ppid, []).append(int(name))
    found, todo = set(), list(pids)
    while todo:
        pid = todo.pop()
        if pid not in found:
            found.add(pid)
            todo += children.get(pid, [])
    return found


def usage(pids):
    """CPU seconds and resident MB of the pids and their descendants."""
    cpu = rss = 0
    for pid in tree(pids):
        try:
            with open(f"/proc/{pid}/stat") as f:
                fields = f.read().rsplit(")", 1)[1].split()
        except OSError:
            continue
        cpu += int(fields[11]) + int(fields[12])
        rss += int(fields[21])
    return cpu / TICK, rss * PAGE_KB / 1024


class Stats:
    def __init__(self):
        self.total, self.first, self.events, self.errors, self.samples = [], [], 0, 0, {}
        self.measuring = False

    def error(self, what):
        if self.measuring:
            self.errors += 1
        self.samples.setdefault(what[:300], 0)
        self.samples[what[:300]] += 1


class Client(asyncio.Protocol):
    """One keep-alive connection that sends the same request again and again."""

    def __init__(self, run):
        self.run = run
        self.clock = time.perf_counter

    def connection_made(self, transport):
        self.transport, self.busy = transport, False
        self.next()

    def next(self):
        if self.run.stopping:
            self.transport.close()
            return
        self.parser = httptools.HttpResponseParser(self)
        self.first, self.events, self.tail, self.done, self.close, self.body = 0.0, 0, b"", False, False, b""
        self.busy, self.start = True, self.clock()
        self.transport.write(self.run.request)

    def data_received(self, data):
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError as e:
            self.run.stats.error(f"bad response: {e!r}")
            self.transport.abort()

    def connection_lost(self, exc):
        if self.busy and not self.run.stopping:
            self.run.stats.error(f"connection lost: {exc!r}")
        self.run.lost(self)

    # httptools callbacks
    def on_header(self, name, value):
        if name.lower() == b"connection" and value.lower() == b"close":
            self.close = True

    def on_body(self, data):
        if self.run.stream:
            if not self.first:
                self.first = self.clock()
            seen = self.tail + data
            self.events += seen.count(b"data:")
            self.done = self.done or b"[DONE]" in seen
            # keep what may be the start of a marker cut in two, never a whole marker
            self.tail = b"" if seen.endswith(b"\n") else seen[-4:]
        if len(self.body) < 300 or not self.run.stream:
            self.body += data

    def on_message_complete(self):
        now, stats, run = self.clock(), self.run.stats, self.run
        self.busy = False
        status = self.parser.get_status_code()
        if status != 200:
            stats.error(f"HTTP {status}: {self.body[:200]!r}")
        elif run.stream and (self.events < run.min_events or not (self.done or run.no_done)):
            stats.error(f"short stream: {self.events} events, done={self.done}: {self.body[:200]!r}")
        elif not run.stream and run.expect not in self.body:
            stats.error(f"unexpected answer: {self.body[:200]!r}")
        elif stats.measuring:
            stats.total.append(now - self.start)
            if run.stream:
                stats.first.append(self.first - self.start)
                stats.events += self.events
        if run.count():
            if self.close or not self.parser.should_keep_alive():
                self.transport.close()
            else:
                run.loop.call_soon(self.next)
        else:
            self.transport.close()


class Run:
    def __init__(self, args, stream, concurrency):
        url = urlsplit(args.url)
        self.host, self.port = url.hostname, url.port or 80
        self.stream, self.concurrency, self.args = stream, concurrency, args
        self.min_events, self.no_done, self.expect = args.min_events, args.allow_no_done, args.expect.encode()
        body = {
            "model": args.model,
            "stream": stream,
            "temperature": 0.7,
            "max_tokens": 256,
            "messages": [
                {"role": "system", "content": "You are a helpful assistant. Answer in a few short sentences."},
                {
                    "role": "user",
                    "content": "Please sum up this text. "
                    + "The quick brown fox jumps over a lazy dog. " * max(1, args.prompt_bytes // 44),
                },
            ],
        }
        data = json.dumps(body).encode()
        head = [
            f"POST {url.path or '/'} HTTP/1.1",
            f"Host: {self.host}:{self.port}",
            "Content-Type: application/json",
            "Accept: */*",
            f"Content-Length: {len(data)}",
            *args.header,
        ]
        self.request = "\r\n".join(head).encode() + b"\r\n\r\n" + data
        self.stats, self.stopping, self.live, self.left = Stats(), False, set(), args.max_requests

    def count(self):
        self.left -= 1
        return self.left > 0

    def lost(self, client):
        self.live.discard(client)
        if not self.stopping and self.left > 0 and sum(self.stats.samples.values()) < 1000:
            self.loop.create_task(self.connect())

    async def connect(self):
        try:
            _, client = await self.loop.create_connection(lambda: Client(self), self.host, self.port)
            self.live.add(client)
        except OSError as e:
            self.stats.error(f"connect: {e!r}")

    async def go(self):
        self.loop = asyncio.get_running_loop()
        for _ in range(self.concurrency):
            await self.connect()
        await asyncio.sleep(self.args.warmup)
        cpu0, _ = usage(self.args.pid)
        me0, start = time.process_time(), time.perf_counter()
        self.stats.measuring = True
        while time.perf_counter() - start < self.args.duration and self.left > 0:
            await asyncio.sleep(0.02)
        self.stats.measuring = False
        elapsed = time.perf_counter() - start
        me = time.process_time() - me0
        cpu1, rss = usage(self.args.pid)
        self.stopping = True
        for client in list(self.live):
            client.transport.abort()
        await asyncio.sleep(0.05)
        s = self.stats
        n = len(s.total)
        row = {
            "label": self.args.label,
            "mode": "stream" if self.stream else "full",
            "c": self.concurrency,
            "n": n,
            "errors": s.errors,
            "rps": n / elapsed,
            **pct("ms", s.total),
        }
        if self.stream:
            row |= {**pct("ttft_ms", s.first), "events_s": s.events / elapsed}
        if self.args.pid and n:
            row |= {"cpu_ms_req": (cpu1 - cpu0) * 1000 / n, "cpu_cores": (cpu1 - cpu0) / elapsed, "rss_mb": rss}
        row["client_cores"] = me / elapsed
        if s.samples:
            row["error_samples"] = s.samples
        return row


def pct(name, values):
    if not values:
        return {}
    v = sorted(values)
    return {f"{name}_p{q}": v[min(len(v) - 1, int(len(v) * q / 100))] * 1000 for q in (50, 95, 99)}


def show(row):
    out = f"{row['label']:<28} {row['mode']:<6} c={row['c']:<3} {row['rps']:>9.1f} req/s"
    if "ms_p50" in row:
        out += "  ms p50/95/99 " + "/".join(f"{row[f'ms_p{q}']:.2f}" for q in (50, 95, 99))
    if "ttft_ms_p50" in row:
        out += f"  ttft {row['ttft_ms_p50']:.2f}/{row['ttft_ms_p95']:.2f}/{row['ttft_ms_p99']:.2f}"
        out += f"  {row['events_s']:.0f} ev/s"
    if "cpu_ms_req" in row:
        out += f"  cpu {row['cpu_ms_req']:.3f} ms/req ({row['cpu_cores']:.2f} cores)  rss {row['rss_mb']:.0f} MB"
    out += f"  client {row['client_cores']:.2f} cores  err {row['errors']}"
    for what, n in list(row.get("error_samples", {}).items())[:3]:
        out += f"\n    {n}x {what}"
    return out


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--url", default="http://127.0.0.1:9001/v1/chat/completions")
    p.add_argument("--model", default="mock-model")
    p.add_argument("--mode", choices=["full", "stream", "both"], default="both")
    p.add_argument("-c", "--concurrency", default="1,16,64", help="comma-separated")
    p.add_argument("-d", "--duration", type=float, default=5.0, help="measured seconds per row")
    p.add_argument("--warmup", type=float, default=1.0, help="unmeasured seconds before each row")
    p.add_argument("--max-requests", type=int, default=400_000, help="stop a row after this many requests")
    p.add_argument("--prompt-bytes", type=int, default=900)
    p.add_argument("-H", "--header", action="append", default=[], help="extra header line, repeatable")
    p.add_argument("--pid", type=int, action="append", default=[], help="server process to account, repeatable")
    p.add_argument("--min-events", type=int, default=60, help="fewer SSE events than this is an error")
    p.add_argument("--allow-no-done", action="store_true", help="do not ask for data: [DONE]")
    p.add_argument("--expect", default="word", help="text that a non-streamed answer must hold")
    p.add_argument("--label", default="run")
    p.add_argument("--json", help="append the rows to this file, one JSON object a line")
    args = p.parse_args()
    host = urlsplit(args.url).hostname
    if not (host == "localhost" or ipaddress.ip_address(host).is_loopback):
        p.error("--url must name a loopback address")
    failed = False
    for stream in {"full": [False], "stream": [True], "both": [False, True]}[args.mode]:
        for c in (int(x) for x in args.concurrency.split(",")):
            row = uvloop.run(Run(args, stream, c).go())
            print(show(row), flush=True)
            failed |= not row["n"]
            if args.json:
                with open(args.json, "a") as f:
                    f.write(json.dumps(row) + "\n")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
