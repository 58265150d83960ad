#!/usr/bin/env python3
"""A very cheap OpenAI-compatible upstream for gateway benchmarks.

It answers from prebuilt bytes, so that the gateway in front of it is always
the slower part:

  POST /v1/chat/completions   fixed JSON answer of about 200 tokens, or, with
                              "stream": true, --chunks SSE events
  GET  /v1/models             one model
  GET  /health                "ok"

With --delay-ms 0 a whole stream is written at once (each event still its own
HTTP chunk); with --delay-ms N the events leave N ms apart, but for the first
--at-once of them, which leave together.
A usage event is added when the request asks for stream_options.include_usage.

Needs uvloop and httptools. Binds to a loopback address only.
"""

import argparse
import asyncio
import ipaddress
import json
import re
import signal

import httptools
import uvloop

STREAM = re.compile(rb'"stream"\s*:\s*true')
USAGE = re.compile(rb'"include_usage"\s*:\s*true')
CREATED = 1_700_000_000
ID = b"chatcmpl-0000000000"  # the digits are counted up per answer: gateways that store answers need unique ids


def plain(status, body, ctype=b"application/json"):
    head = b"HTTP/1.1 %s\r\ncontent-type: %s\r\ncontent-length: %d\r\n\r\n"
    return head % (status, ctype, len(body)) + body


def http_chunk(data):
    return b"%x\r\n%s\r\n" % (len(data), data)


def completion(kind, model, choices, **more):
    head = {"id": ID.decode(), "object": kind, "created": CREATED, "model": model, "system_fingerprint": "fp_mock"}
    return {**head, "choices": choices, **more}


class Answers:
    """All the bytes this server ever sends, built once."""

    def __init__(self, model, tokens, chunks):
        usage = {"prompt_tokens": 220, "completion_tokens": tokens, "total_tokens": 220 + tokens}
        message = {"role": "assistant", "refusal": None, "content": " ".join(f"word{i % 97}" for i in range(tokens))}
        choice = {"index": 0, "finish_reason": "stop", "logprobs": None, "message": message}
        answer = completion("chat.completion", model, [choice], usage=usage)
        self.full = plain(b"200 OK", json.dumps(answer).encode())
        self.models = plain(
            b"200 OK",
            json.dumps(
                {"object": "list", "data": [{"id": model, "object": "model", "created": CREATED, "owned_by": "mock"}]}
            ).encode(),
        )
        self.health = plain(b"200 OK", b"ok", b"text/plain")
        self.missing = plain(b"404 Not Found", b'{"error":{"message":"no such route","type":"not_found"}}')

        self.stream_head = (
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
            b"cache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n"
        )

        def event(choices, **more):
            chunk = completion("chat.completion.chunk", model, choices, **more)
            return http_chunk(b"data: %s\n\n" % json.dumps(chunk).encode())

        def delta(d, finish=None):
            return [{"index": 0, "delta": d, "logprobs": None, "finish_reason": finish}]

        first = [event(delta({"role": "assistant", "content": ""}))]
        middle = [event(delta({"content": f" word{i % 97}"})) for i in range(max(chunks - 2, 0))]
        last = [event(delta({}, "stop"))]
        done = [http_chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"]
        self.events = first + middle + last + done
        self.events_usage = first + middle + last + [event([], usage=usage)] + done
        self.burst = self.stream_head + b"".join(self.events)
        self.burst_usage = self.stream_head + b"".join(self.events_usage)


class Upstream(asyncio.Protocol):
    served = 0

    def __init__(self, answers, delay, at_once, loop):
        self.answers, self.delay, self.at_once, self.loop = answers, delay, at_once, loop

    def fresh(self, data):
        return data.replace(ID, self.id)

    def connection_made(self, transport):
        self.transport = transport
        self.parser = httptools.HttpRequestParser(self)

    def connection_lost(self, exc):
        self.transport = None

    def data_received(self, data):
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            self.transport.close()

    # httptools callbacks
    def on_message_begin(self):
        self.url, self.body = b"", []

    def on_url(self, url):
        self.url += url

    def on_body(self, data):
        self.body.append(data)

    def on_message_complete(self):
        a, path = self.answers, self.url.split(b"?", 1)[0]
        if path.endswith(b"/chat/completions"):
            body = self.body[0] if len(self.body) == 1 else b"".join(self.body)
            Upstream.served += 1
            self.id = b"chatcmpl-%010d" % Upstream.served
            if not STREAM.search(body):
                self.transport.write(self.fresh(a.full))
            elif not self.delay:
                self.transport.write(self.fresh(a.burst_usage if USAGE.search(body) else a.burst))
            else:
                events = a.events_usage if USAGE.search(body) else a.events
                self.transport.write(a.stream_head + self.fresh(b"".join(events[: self.at_once])))
                self.loop.call_later(self.delay, self.tick, events, self.at_once, self.loop.time())
        elif path.endswith(b"/models"):
            self.transport.write(a.models)
        elif path.endswith(b"/health"):
            self.transport.write(a.health)
        else:
            self.transport.write(a.missing)

    def tick(self, events, i, start):
        if self.transport is None:
            return
        self.transport.write(self.fresh(events[i]))
        i += 1
        if i < len(events):  # aim at the absolute time, so that lateness does not add up
            self.loop.call_later(
                max(0.0, start + (i - self.at_once + 1) * self.delay - self.loop.time()), self.tick, events, i, start
            )


async def serve(args):
    loop = asyncio.get_running_loop()
    answers = Answers(args.model, args.tokens, args.chunks)
    server = await loop.create_server(
        lambda: Upstream(answers, args.delay_ms / 1000, args.at_once, loop), args.host, args.port, backlog=1024
    )
    stop = asyncio.Event()
    for sig in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(sig, stop.set)
    print(f"mock upstream on http://{args.host}:{args.port}/v1", flush=True)
    await stop.wait()
    server.close()


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--host", default="127.0.0.1")
    p.add_argument("--port", type=int, default=9001)
    p.add_argument("--model", default="mock-model")
    p.add_argument("--tokens", type=int, default=200, help="words in the non-streamed answer")
    p.add_argument("--chunks", type=int, default=64, help="SSE events per stream, [DONE] not counted")
    p.add_argument("--delay-ms", type=float, default=0.0, help="gap between SSE events")
    p.add_argument("--at-once", type=int, default=1, help="events of a spread stream that leave with its head")
    args = p.parse_args()
    if not ipaddress.ip_address(args.host).is_loopback:
        p.error("--host must be a loopback address")
    uvloop.run(serve(args))


if __name__ == "__main__":
    main()
