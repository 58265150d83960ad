#!/usr/bin/env python3
"""The least work an LLM gateway can do: aiohttp, aiohttp, orjson. The yardstick of compare.py.

It reads a chat completions request, decodes it, sets the model name, sends it upstream, decodes the answer (of a
stream: every event), sets the model name back, encodes again and answers. It checks nothing. Loopback only.
"""

import argparse
import ipaddress

import aiohttp
import orjson
import uvloop
from aiohttp import web


class Events:
    """Cuts a byte stream into SSE events and rewrites each one."""

    def __init__(self) -> None:
        self.rest = b""

    def feed(self, data: bytes) -> bytes:
        parts = (self.rest + data if self.rest else data).split(b"\n\n")
        self.rest = parts.pop()
        out = []
        for part in parts:
            if part.startswith(b"data: "):
                payload = part[6:]
                out.append(b"data: %s\n\n" % (payload if payload == b"[DONE]" else rename(payload)))
        return b"".join(out)


def rename(raw: bytes) -> bytes:
    document = orjson.loads(raw)
    document["model"] = "public-name"
    return orjson.dumps(document)


class Proxy:
    def __init__(self, upstream: str) -> None:
        self.url = upstream + "/chat/completions"
        self.session: aiohttp.ClientSession | None = None

    async def chat(self, request: web.Request) -> web.StreamResponse:
        if self.session is None:
            self.session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=60))
        document = orjson.loads(await request.read())
        document["model"] = "mock-model"
        headers = {"content-type": "application/json"}
        answer = await self.session.post(self.url, data=orjson.dumps(document), headers=headers)
        if not document.get("stream"):
            return web.Response(body=rename(await answer.read()), content_type="application/json")
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        feed = Events().feed
        async for data in answer.content.iter_any():
            out = feed(data)
            if out:
                await response.write(out)
        await response.write_eof()
        return response


async def health(request: web.Request) -> web.Response:
    return web.Response(text="ok")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=9100)
    parser.add_argument("--upstream", default="http://127.0.0.1:9001/v1")
    args = parser.parse_args()
    if not ipaddress.ip_address(args.host).is_loopback:
        parser.error("--host must be a loopback address")
    app = web.Application(client_max_size=64 << 20)
    app.router.add_post("/v1/chat/completions", Proxy(args.upstream).chat)
    app.router.add_get("/healthz", health)
    uvloop.install()
    web.run_app(app, host=args.host, port=args.port, access_log=None, print=None)


if __name__ == "__main__":
    main()
