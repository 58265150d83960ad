"""Upstreams that fail, and clients that leave."""

import asyncio
import itertools
import json
from typing import Any

from local_engine.errors import QueueFull
from tests.cases.case import Case
from tests.cases.reply import fold, message_of
from tests.cases.stage import Local, Stage, staged
from tests.mock_upstream import Answer
from tests.scripted_engine import Script

__all__ = ["CHECKS"]

CHUNK = (
    b'data: {"id": "c1", "created": 1, "model": "m", "choices": [{"index": 0, "delta": %b, "finish_reason": %b}]}\n\n'
)
TEXT = CHUNK % (b'{"role": "assistant", "content": "par"}', b"null")
FINISH = CHUNK % (b"{}", b'"stop"')
GOOD = Answer.json(
    b'{"id": "c2", "created": 1, "model": "m", "choices": '
    b'[{"index": 0, "message": {"role": "assistant", "content": "good"}, "finish_reason": "stop"}]}'
)


def _two_targets(case: Case) -> dict[str, Any]:
    """An alias whose second target answers when the first one fails."""
    provider = case.body["model"].partition("/")[0]
    return {"models": {"smart": {"targets": [f"{provider}/a", f"{provider}/b"]}}}


async def _ue_01(case: Case) -> None:
    async with staged(case) as stage:
        for status, seen in ((429, 429), (503, 503), (529, 503)):
            answer = Answer(status=status, headers=case.answer().headers, pieces=case.upstream_pieces, framing="length")
            stage.upstream.script(answer)
            for reply in await stage.both(case.body):
                assert reply.status == seen
                assert reply.headers["retry-after"] == "30"
                assert reply.headers["retry-after-ms"] == "29500"
                assert reply.headers["x-should-retry"] == "true"
                assert reply.error["message"] == "slow down"
        assert (await stage.post()).status == 503
        stage.upstream.script(case.answer())
        assert (await stage.post()).error["type"] == "rate_limit_error"


async def _ue_01_fallbacks(case: Case) -> None:
    """After all targets failed, the smallest of their waits."""
    limited = [Answer.json(case.upstream_bytes, 429, headers={"retry-after": str(wait)}) for wait in (50, 20)]
    async with staged(case, *limited, config=_two_targets(case)) as stage:
        reply = await stage.post(case.body_with(model="smart"))
        assert (reply.status, reply.headers["retry-after"]) == (429, "20")
        assert len(stage.upstream.requests) == 2


async def _ue_01_local_queue(case: Case) -> None:
    """The engine's own queue, when it is full, says when to come again."""
    local = Local()
    local.engine.script(Script(steps=(), error=QueueFull(limit=4, retry_after_s=7)))
    async with staged(case.towards("local/x"), local=local) as stage:
        for reply in await stage.both(case.body_with(model="local/x")):
            assert (reply.status, reply.headers["retry-after"]) == (429, "7")
            assert reply.error["type"] == "rate_limit_error"


async def _ue_02(case: Case) -> None:
    choice: dict[str, Any] = {"index": 0, "message": {"role": "assistant", "content": "half"}, "finish_reason": "stop"}
    limit = {"code": 429, "message": "provider limit"}
    variants: list[tuple[Any, int]] = [
        (case.upstream_json(), 429),
        ({"id": "g1", "choices": [{**choice, "error": limit}]}, 429),
        ({"id": "g1", "choices": [{**choice, "finish_reason": "error"}]}, 502),
        ({"id": "g1", "choices": [{**choice, "finish_reason": "error", "error": {"code": 503, "message": "x"}}]}, 503),
        ({"error": {"code": 200, "message": "odd"}}, 502),
        ({"error": {"code": "429", "message": "provider limit"}}, 429),
        ({"id": "g1", "choices": []}, 502),
        ({"id": "g1"}, 502),
    ]
    async with staged(case, config=_two_targets(case)) as stage:
        for body, status in variants:
            failing = Answer.json(json.dumps(body).encode())
            stage.upstream.script(failing)
            reply = await stage.post()
            assert reply.status == status, body
            assert reply.error["message"]
            stage.upstream.script(failing, GOOD)
            assert message_of((await stage.post(case.body_with(model="smart"))).ok).content == "good"


async def _ue_03(case: Case) -> None:
    pages = [
        case.answer(),
        Answer(headers={"content-type": "text/html"}, pieces=case.upstream_pieces, framing="length"),
    ]
    async with staged(case, config=_two_targets(case)) as stage:
        for page in pages:
            stage.upstream.script(page)
            for reply in await stage.both(case.body):
                assert reply.status == 502
                assert (reply.error["type"], reply.error["code"]) == ("upstream_error", "bad_upstream_response")
                assert b"<" not in reply.body
                assert len(reply.error["message"]) < 400
                assert reply.headers.get("x-should-retry") != "false"
            stage.upstream.script(page, GOOD)
            assert message_of((await stage.post(case.body_with(model="smart"))).ok).content == "good"


def _sse(*pieces: bytes, then: Any = "reset") -> Answer:
    return Answer.sse(pieces, then=then)


async def _ue_04(case: Case) -> None:
    good = _sse(TEXT.replace(b"par", b"good"), FINISH, b"data: [DONE]\n\n", then="end")
    before_output = [_sse(), _sse(TEXT[:30]), _sse(b": hello\n\n")]
    after_output = [_sse(TEXT), _sse(TEXT, FINISH[:40]), _sse(TEXT, TEXT), _sse(TEXT, then="close")]
    async with staged(case, before_output[0], config=_two_targets(case)) as stage:
        for answer in before_output:
            stage.upstream.script(answer)
            reply = await stage.post()
            assert (reply.status, reply.error["type"]) == (502, "upstream_error")
            stage.upstream.script(answer, good)
            assert fold((await stage.post(case.body_with(model="smart"))).chunks)[0].content == "good"
        for answer in after_output:
            stage.upstream.script(answer, good)
            asked = len(stage.upstream.requests)
            chunks, error = (await stage.post(case.body_with(model="smart"))).broken_off
            assert fold(chunks)[0].content.startswith("par")
            assert fold(chunks)[0].finishes == []
            assert error["type"] == "upstream_error"
            assert len(stage.upstream.requests) == asked + 1
        for ending in ("reset", "close"):
            stage.upstream.script(_sse(TEXT, FINISH, then=ending))
            choice = fold((await stage.post()).chunks)[0]
            assert (choice.content, choice.finish) == ("par", "stop")
        await _check_short_bodies(stage, case)


async def _ue_04_retry(case: Case) -> None:
    """With a second try allowed, the same target is asked again before the first output."""
    good = _sse(TEXT, FINISH, b"data: [DONE]\n\n", then="end")
    config = {"reliability": {"retry": {"attempts": 2}}}
    async with staged(case, _sse(), good, config=config) as stage:
        assert fold((await stage.post()).chunks)[0].content == "par"
        assert len(stage.upstream.requests) == 2


async def _check_short_bodies(stage: Stage, case: Case) -> None:
    """A Content-Length that is not kept, and a chunked body without its end, are resets."""
    whole = GOOD.pieces[0]
    json_type = {"content-type": "application/json"}
    short = Answer(headers=json_type, pieces=[whole], framing="length", length=len(whole) + 9, then="close")
    unfinished = Answer(headers=json_type, pieces=[whole], framing="chunked", then="close")
    for answer in (short, unfinished):
        stage.upstream.script(answer)
        reply = await stage.post(case.body_with(stream=False))
        assert (reply.status, reply.error["type"]) == (502, "upstream_error")


async def _leave(stage: Stage, body: dict[str, Any], began: asyncio.Event | None = None) -> None:
    """A client that asks and closes its connection: once the other side is at work, or once something was sent."""
    raw = json.dumps(body).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", stage.port)
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    writer.write(head + b"content-length: %d\r\n\r\n%b" % (len(raw), raw))
    if began is not None:
        await began.wait()
    else:
        await reader.readuntil(b"par")
    writer.close()
    await writer.wait_closed()


async def _cl_01(case: Case) -> None:
    async with staged(case, Answer.json(GOOD.pieces[0], then="hang")) as stage:
        silent = Answer(silent=True, then="hang")
        half = Answer(headers=GOOD.headers, pieces=[GOOD.pieces[0][:20]], length=200, framing="length", then="hang")
        for answer, stream in ((silent, False), (half, False), (silent, True)):
            stage.upstream.script(answer)
            asked = len(stage.upstream.requests)
            began = asyncio.Event()
            leaving = asyncio.create_task(_leave(stage, case.body_with(stream=stream), began))
            await stage.upstream.seen(asked + 1)
            began.set()
            await leaving
            await stage.upstream.idle(within_s=1)
            assert len(stage.upstream.requests) == asked + 1
        stage.upstream.script(_sse(TEXT, then="hang"))
        await _leave(stage, case.body_with(stream=True))
        await stage.upstream.idle(within_s=1)
        await _until_logged(stage, 4)


async def _until_logged(stage: Stage, count: int) -> None:
    async with asyncio.timeout(1):
        while len(lines := [line for line in stage.log_lines() if line["event"] == "request"]) < count:  # noqa: ASYNC110
            await asyncio.sleep(0)  # the log has no event to wait for
    assert [line["status"] for line in lines] == [499] * count


async def _cl_01_local(case: Case) -> None:
    """The engine's request is aborted in prefill and in decode, streamed or not, for every choice."""
    local_case = case.towards("local/x")
    local = Local()
    async with staged(local_case, local=local) as stage:
        for stream, choices, after in itertools.product((False, True), (1, 3), (0, 1)):
            steps = [(local.vocabulary.add("par"),), (local.vocabulary.add("tial"),)]
            local.engine.script(Script(steps=steps, gate=asyncio.Event(), gate_after=after))
            await _leave_engine(stage, local_case.body_with(stream=stream, n=choices), choices)
        local.says("next")
        assert message_of((await stage.post(local_case.body_with(stream=False))).ok).content == "next"


async def _leave_engine(stage: Stage, body: dict[str, Any], sequences: int) -> None:
    engine = stage.local.engine
    before = engine.stats().aborted
    began = asyncio.Event()
    leaving = asyncio.create_task(_leave(stage, body, began))
    await engine.until(lambda stats: stats.running == sequences)
    began.set()
    await leaving
    await engine.until(lambda stats: stats.running == 0, within_s=1)
    assert engine.stats().aborted == before + sequences


async def _cl_01_background(case: Case) -> None:
    """A background response goes on when its client leaves."""
    local = Local()
    gate = asyncio.Event()
    body = {"model": "local/x", "input": "hi", "background": True, "store": True}
    async with staged(case.towards("local/x"), local=local) as stage:
        local.engine.script(Script(steps=[(local.vocabulary.add("done"),)], gate=gate))
        created = (await stage.post(body, "/v1/responses")).ok
        await local.engine.until(lambda stats: stats.running == 1)
        gate.set()
        await local.engine.until(lambda stats: stats.finished == 1)
        assert created["status"] in ("queued", "in_progress")


CHECKS = {
    "UE-01": _ue_01,
    "UE-01/fallbacks": _ue_01_fallbacks,
    "UE-01/local-queue": _ue_01_local_queue,
    "UE-02": _ue_02,
    "UE-03": _ue_03,
    "UE-04": _ue_04,
    "UE-04/retry": _ue_04_retry,
    "CL-01": _cl_01,
    "CL-01/local": _cl_01_local,
    "CL-01/background": _cl_01_background,
}
