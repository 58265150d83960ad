"""What is refused at the door: depth, Unicode, numbers, sizes; and which headers pass it."""

import asyncio
import gzip
import io
import json
import sys
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import aiohttp

from tests.cases.case import Case
from tests.cases.reply import fold, message_of
from tests.cases.stage import Local, staged
from tests.mock_upstream import Answer, MockUpstream

__all__ = ["CHECKS"]

_ANSWER = {"id": "c1", "created": 1, "model": "m", "choices": []}


def _good() -> Answer:
    choice = {"index": 0, "message": {"role": "assistant", "content": "ok"}, "finish_reason": "stop"}
    return Answer.json(json.dumps({**_ANSWER, "choices": [choice]}).encode())


def _spliced(body: dict[str, Any], name: str, raw: bytes) -> bytes:
    """The body with one field as these raw bytes."""
    rest = json.dumps({key: value for key, value in body.items() if key != name}).encode()
    return b'%b, "%b": %b}' % (rest[:-1], name.encode(), raw)


def _nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


async def _sec_01(case: Case) -> None:
    local = Local()
    local.says("ok")
    body = {name: value for name, value in case.body.items() if name != "tools"}
    async with staged(case, local=local, config={"server": {"max_depth": 64, "unsupported_params": "drop"}}) as stage:
        # The body's own braces are one level.
        assert (await stage.post(_spliced(body, "ignored", _nested(62)))).status == 200
        assert (await stage.post(_spliced(body, "ignored", _nested(63)))).status == 200
        for depth in (64, 65, 20_000, 100_000):
            for field in ("ignored", "tools", "metadata", "response_format"):
                reply = await stage.post(_spliced(body, field, _nested(depth)))
                assert reply.status == 400, (depth, field)
                assert "nest" in reply.error["message"]
        deep_objects = b'{"a":' * 20_000 + b"1" + b"}" * 20_000
        for field in ("tools", "ignored", "messages"):
            assert (await stage.post(_spliced(body, field, deep_objects))).status == 400
        assert (await stage.get("/healthz")).status == 200
        assert (await stage.post(body)).status == 200


async def _sec_01_default_limit(case: Case) -> None:
    local = Local()
    async with staged(case, local=local) as stage:
        for depth in (20_000, 100_000):
            reply = await stage.post(_spliced(case.body, "tools", _nested(depth)))
            assert (reply.status, reply.error["type"]) == (400, "invalid_request_error")
        assert (await stage.get("/healthz")).status == 200


async def _sec_01_upstream(case: Case) -> None:
    """An upstream's body that is nested too deeply is its failure; a call's arguments are a string like any other."""
    remote = case.towards("oai/x")
    body = {name: value for name, value in remote.body.items() if name != "tools"}
    deep = _spliced(_ANSWER, "choices", _nested(100_000))
    arguments = _nested(100_000).decode()
    call = {"id": "c9", "type": "function", "function": {"name": "f", "arguments": arguments}}
    choice = {"index": 0, "message": {"role": "assistant", "tool_calls": [call]}, "finish_reason": "tool_calls"}
    async with staged(remote, Answer.json(deep)) as stage:
        reply = await stage.post(body)
        assert (reply.status, reply.error["type"]) == (502, "upstream_error")
        stage.upstream.script(Answer.sse([b"data: " + deep + b"\n\n"]))
        reply = await stage.post({**body, "stream": True})
        assert (reply.status, reply.error["type"]) == (502, "upstream_error")
        stage.upstream.script(Answer.json(json.dumps({**_ANSWER, "choices": [choice]}).encode()))
        assert message_of((await stage.post(body)).ok).calls[0]["arguments"] == arguments
        replayed = {**body, "messages": [*body["messages"], choice["message"]]}
        assert (await stage.post(replayed)).status in (200, 400)
        assert (await stage.get("/healthz")).status == 200


_SURROGATE = rb"a\ud800b"


async def _sec_02(case: Case) -> None:
    user = b'"messages": [{"role": "user", "content": "x"}]'
    call = b'"messages": [{"role": "assistant", "tool_calls": [{"type": "function", %b}]}]'
    places = {
        "messages[0].content": b'"messages": [{"role": "user", "content": "%b"}]',
        "messages[0].name": b'"messages": [{"role": "user", "name": "%b", "content": "x"}]',
        "messages[0].tool_calls[0].id": call % b'"id": "%b", "function": {"name": "f", "arguments": "{}"}',
        "messages[0].tool_calls[0].function.arguments": call
        % b'"id": "c", "function": {"name": "f", "arguments": "%b"}',
        "tools[0].function.parameters.title": user
        + b', "tools": [{"type": "function", "function": {"name": "f", "parameters": {"title": "%b"}}}]',
        "metadata.k": user + b', "metadata": {"k": "%b"}',
        "odd.field": user + b', "odd": {"field": "%b"}',
    }
    async with staged(case, Answer.sse([b"data: [DONE]\n\n"])) as stage:
        for stream in (b"true", b"false"):
            for path, raw in places.items():
                for bad in (_SURROGATE, rb"\udc00", rb"\ud83d\u0041", b"a\xffb", b"\xed\xa0\x80"):
                    reply = await stage.post(b'{"model": "any/x", "stream": %b, %b}' % (stream, raw % bad))
                    assert (reply.status, reply.error["type"]) == (400, "invalid_request_error"), (path, bad)
                reply = await stage.post(b'{"model": "any/x", "stream": %b, %b}' % (stream, raw % _SURROGATE))
                named = reply.error["param"] or reply.error["message"]
                assert path.partition(".")[0].partition("[")[0] in named, (path, reply.error)
        assert stage.upstream.requests == []


async def _sec_02_pairs(case: Case) -> None:
    """A pair of escapes is one character."""
    async with staged(case, _good()) as stage:
        raw = rb'{"model": "any/x", "messages": [{"role": "user", "content": "\ud83d\ude0a"}]}'
        (await stage.post(raw)).ok  # noqa: B018
        assert stage.sent()["messages"][0]["content"] == "😊"
        assert "😊".encode() in stage.upstream.requests[0].body or b"\\ud83d" in stage.upstream.requests[0].body


async def _sec_02_local(case: Case) -> None:
    local = Local()
    async with staged(case.towards("local/x"), local=local) as stage:
        raw = b'{"model": "local/x", "stream": true, "messages": [{"role": "user", "content": "%b"}]}' % _SURROGATE
        assert (await stage.post(raw)).error["type"] == "invalid_request_error"
        assert local.engine.requests == []


async def _sec_02_on(case: Case, path: str, raw: bytes) -> None:
    async with staged(case, Answer.sse([b"data: [DONE]\n\n"])) as stage:
        reply = await stage.post(raw % _SURROGATE, path)
        assert reply.status == 400, reply.body
        assert stage.upstream.requests == []


async def _sec_02_messages(case: Case) -> None:
    raw = b'{"model": "any/x", "stream": true, "max_tokens": 9, "messages": [{"role": "user", "content": "%b"}]}'
    await _sec_02_on(case, "/v1/messages", raw)


async def _sec_02_responses(case: Case) -> None:
    await _sec_02_on(case, "/v1/responses", b'{"model": "any/x", "stream": true, "input": "%b"}')


async def _pm_02(case: Case) -> None:
    local = Local()
    local.says("ok")
    fields = ("seed", "n", "top_k", "max_tokens", "stop_token_ids")
    bad = [b"18446744073709551616", b"1e400", b"1.5", b"true", b"9" * 5000, b"-9223372036854775809", b'"1"', b"NaN"]
    async with staged(case, local=local) as stage:
        reply = await stage.post()
        assert (reply.status, reply.error["type"], reply.error["param"]) == (400, "invalid_request_error", "seed")
        body = case.body_with(seed=1)
        for field in fields:
            for number in bad:
                value = b"[%b]" % number if field == "stop_token_ids" else number
                reply = await stage.post(_spliced(body, field, value))
                assert reply.status == 400, (field, number[:30])
                if number != b"NaN":
                    assert (reply.error["param"] or "").startswith(field), (field, number[:30], reply.error)
                assert len(reply.body) < 2000
        for number in bad:
            raw = _spliced({**case.body, "seed": 1, "logprobs": True}, "top_logprobs", number)
            assert (await stage.post(raw)).status == 400, number[:30]
        assert local.engine.requests == []
        for seed in (2**63 - 1, -(2**63), 0):
            assert message_of((await stage.post(case.body_with(seed=seed))).ok).content == "ok"


async def _cx_01(case: Case) -> None:
    window = 64
    local = Local(max_context=window, template="{% for message in messages %}{{ message.content }}{% endfor %}")
    local.vocabulary.add("word ")
    local.says(*["x"] * 100)
    async with staged(case, local=local) as stage:

        def body(words: int, **fields: Any) -> dict[str, Any]:
            return {"model": "local/ctx64", "messages": [{"role": "user", "content": "word " * words}], **fields}

        for refused in (body(500, max_tokens=8), body(window), body(window, max_tokens=1), body(60, max_tokens=5)):
            for reply in await stage.both(refused):
                assert (reply.status, reply.error["code"]) == (400, "context_length_exceeded")
                numbers = [int(word) for word in reply.error["message"].replace(",", " ").split() if word.isdigit()]
                assert window in numbers
                assert any(number in (500, 64, 60) for number in numbers)
        assert local.engine.requests == []
        last = (await stage.post(body(window - 1))).ok
        assert last["usage"]["prompt_tokens"] == window - 1
        assert last["usage"]["completion_tokens"] == 1
        assert message_of(last).finish == "length"
        clamped = (await stage.post(body(60))).ok
        assert clamped["usage"]["completion_tokens"] == 4
        assert (await stage.post(body(60, max_tokens=4))).status == 200


_ALLOWED = {
    "content-type", "content-length", "date", "server", "x-request-id", "x-gateway-provider",
    "x-gateway-upstream-model", "x-gateway-upstream-request-id", "cache-control", "x-accel-buffering",
    "transfer-encoding", "x-content-type-options",
}  # fmt: skip


async def _hd_01(case: Case) -> None:
    answer = case.answer().gzipped()
    chunk = {**case.upstream_json(), "choices": [{"index": 0, "delta": {"content": "ok"}, "finish_reason": "stop"}]}
    stream = Answer.sse(
        [b"data: %b\n\n" % json.dumps(chunk).encode(), b"data: [DONE]\n\n"], headers={"set-cookie": "a=b"}
    )
    headers = {**case.headers, "cookie": "c=client-key", "x-api-key": "client-key", "host": "localhost"}
    async with staged(case, answer, key="upstream-key") as stage:
        whole = await stage.post(headers=headers)
        assert message_of(whole.ok).content == "ok"  # read without inflating
        stage.upstream.script(stream)
        streamed = await stage.post(case.body_with(stream=True), headers=headers)
        assert fold(streamed.chunks)[0].content == "ok"
        assert streamed.headers["cache-control"] == "no-cache"
        for reply in (whole, streamed):
            assert set(reply.headers) <= _ALLOWED
        for seen in stage.upstream.requests:
            assert b"client-key" not in seen.raw_head + seen.body
            assert seen.headers["authorization"] == "Bearer upstream-key"
            assert seen.headers["host"].startswith("127.0.0.1")
            assert not {"cookie", "x-api-key", "x-forwarded-for"} & set(seen.headers)


async def _bb_01(case: Case) -> None:
    body = case.body
    picture = "data:image/png;base64," + "iVBO" * (3 * 2**18)
    body["messages"][0]["content"][0]["image_url"]["url"] = picture
    async with staged(case, _good()) as stage:
        (await stage.post(body)).ok  # noqa: B018
        assert picture.encode() in stage.upstream.requests[-1].body
        body["messages"][0]["content"][0]["image_url"]["url"] = picture * 6
        assert (await stage.post(body)).status == 200, "18 MiB is well below the default"


async def _bb_01_limits(case: Case) -> None:
    """413 in JSON from Content-Length before the body came, while reading chunks, and on the inflated size."""
    config = {"server": {"max_body_mb": 1}}
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    squeezed = gzip.compress(b" " * 2**22)
    assert len(squeezed) < 2**16
    deflated = zlib.compress(b" " * 2**22)
    chunks = b"".join(b"%x\r\n%b\r\n" % (2**18, b" " * 2**18) for _ in range(6))
    sent = {
        "length": b"content-length: 3000000\r\n\r\n",
        "chunks": b"transfer-encoding: chunked\r\n\r\n" + chunks,
        "gzip": b"content-encoding: gzip\r\ncontent-length: %d\r\n\r\n%b" % (len(squeezed), squeezed),
        "deflate": b"content-encoding: deflate\r\ncontent-length: %d\r\n\r\n%b" % (len(deflated), deflated),
    }
    async with staged(case, Answer.json(b"{}"), config=config) as stage:
        for name, rest in sent.items():
            reader, writer = await asyncio.open_connection("127.0.0.1", stage.port)
            writer.write(head + rest)
            status = await reader.readline()
            answer_head = await reader.readuntil(b"\r\n\r\n")
            assert b" 413 " in status, (name, status)
            assert b"application/json" in answer_head
            length = next(
                int(line.split(b":")[1]) for line in answer_head.lower().split(b"\r\n") if b"content-length" in line
            )
            error = json.loads(await reader.readexactly(length))["error"]
            assert "server.max_body_mb" in error["message"], name
            writer.close()
        assert stage.upstream.requests == []


async def _bb_01_in_flight(case: Case) -> None:
    """Bytes of all bodies together are bounded: one that would pass the bound is told to come back."""
    megabyte = b" " * (2**20 - 200)
    config = {"server": {"max_body_mb": 1}}
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    start = head + b"content-length: %d\r\n\r\n" % (len(megabyte) + 1)
    async with staged(case, Answer.json(b"{}"), config=config) as stage:
        writers = []
        answers = []
        for _ in range(12):
            reader, writer = await asyncio.open_connection("127.0.0.1", stage.port, limit=2**22)
            writer.write(start + megabyte)
            writers.append(writer)
            answers.append(asyncio.ensure_future(reader.readline()))
        done, pending = await asyncio.wait(answers, return_when=asyncio.FIRST_COMPLETED, timeout=5)
        assert done
        assert all(answer.result().split()[1] in (b"429", b"503") for answer in done)
        assert pending
        for writer in writers:
            writer.close()
        await asyncio.gather(*answers, return_exceptions=True)
        assert (await stage.get("/healthz")).status == 200


async def _bb_01_memory(case: Case) -> None:
    """A gateway of its own process grows by three bodies at most while one passes through."""
    picture = "data:image/png;base64," + "iVBO" * (6 * 2**20)
    async with _gateway_process() as (process, port, upstream):
        await _send_picture(port, case, picture[: 2**20])
        before = _peak_kib(process.pid)
        await _send_picture(port, case, picture)
        assert len(upstream.requests[-1].body) > len(picture)
        assert (_peak_kib(process.pid) - before) * 1024 <= 3 * len(picture)


def _peak_kib(pid: int) -> int:
    """The most resident memory that the process ever had."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


async def _send_picture(port: int, case: Case, url: str) -> None:
    body = case.body
    body["messages"][0]["content"][0]["image_url"]["url"] = url
    data = io.BytesIO(json.dumps(body).encode())
    address = f"http://127.0.0.1:{port}{case.path}"
    async with (
        aiohttp.ClientSession() as session,
        session.post(address, data=data, headers={"content-type": "application/json"}) as answer,
    ):
        assert answer.status == 200


@asynccontextmanager
async def _gateway_process() -> AsyncIterator[tuple[asyncio.subprocess.Process, int, MockUpstream]]:
    """`gateway serve` in front of a scripted upstream that answers well."""
    with TemporaryDirectory() as folder:
        async with MockUpstream(_good()) as upstream:
            config = Path(folder) / "run.yaml"
            provider = f"{{type: openai-compatible, base_url: '{upstream.base_url}'}}"
            config.write_text(f"version: 1\nserver: {{port: 0}}\nproviders: {{oai: {provider}}}\n")
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "gateway", "serve", "--config", str(config)), stderr=asyncio.subprocess.PIPE
            )
            try:
                assert process.stderr is not None
                told = (await process.stderr.readline()).decode()
                yield process, int(told.rpartition(":")[2].partition("/")[0]), upstream
            finally:
                process.terminate()
                await process.communicate()


CHECKS = {
    "SEC-01": _sec_01,
    "SEC-01/default-limit": _sec_01_default_limit,
    "SEC-01/upstream": _sec_01_upstream,
    "SEC-02": _sec_02,
    "SEC-02/pairs": _sec_02_pairs,
    "SEC-02/local": _sec_02_local,
    "SEC-02/messages": _sec_02_messages,
    "SEC-02/responses": _sec_02_responses,
    "PM-02": _pm_02,
    "CX-01": _cx_01,
    "HD-01": _hd_01,
    "BB-01": _bb_01,
    "BB-01/limits": _bb_01_limits,
    "BB-01/in-flight": _bb_01_in_flight,
    "BB-01/memory": _bb_01_memory,
}
