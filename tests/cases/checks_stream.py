"""Upstream streams: framing, cuts, broken ends, and the usage in them."""

import itertools
import json

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.cases.anthropic_stream import fold_messages
from tests.cases.case import Case
from tests.cases.reply import Reply, fold, message_of
from tests.cases.stage import Stage, staged
from tests.mock_upstream import Answer

__all__ = ["CHECKS"]

LINE_ENDS = (b"\r\n", b"\n", b"\r")
FINISH = b'data: {"id": "c1", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}\n\n'
DONE = b"data: [DONE]\n\n"


async def _says(stage: Stage, answer: Answer, text: str) -> None:
    """The stream comes out whole and ends in one `stop`."""
    stage.upstream.script(answer)
    choice = fold((await stage.post()).chunks)[0]
    assert (choice.content, choice.finish) == (text, "stop")


async def _sse_01(case: Case) -> None:
    raw = case.upstream_bytes
    async with staged(case) as stage:
        await _says(stage, case.answer(), "AB")
        plain = raw.replace(b"\r\n", b"\n")
        forms = [plain.replace(b"\n", end) for end in LINE_ENDS]
        forms.append(b"".join(map(b"".join, zip(plain.split(b"\n"), itertools.cycle(LINE_ENDS), strict=False))))
        forms.append(plain.replace(b"data: ", b"data:"))
        forms.append(b": hello\n\n" + plain.replace(b"data: {", b"event: x\nid: 7\nretry: 9\nodd: field\ndata: {"))
        forms.append(plain.replace(b', "choices"', b',\ndata: "choices"'))
        for form in forms:
            await _says(stage, case.answer(form), "AB")
            await _says(stage, case.answer(*[form[at : at + 1] for at in range(len(form))]), "AB")
        for at in [at for at in range(1, len(raw)) if raw[at - 1 : at + 1] == b"\r\n"]:
            await _says(stage, case.answer(raw[:at], raw[at:]), "AB")


async def _sse_01_any_chunking(case: Case) -> None:
    """Any line ending at every place, in any pieces."""
    lines = case.upstream_bytes.replace(b"\r\n", b"\n").split(b"\n")[:-1]
    forms: list[tuple[bytes, list[int]]] = []

    @settings(max_examples=60, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
    @given(ends=st.lists(st.sampled_from(LINE_ENDS), min_size=len(lines), max_size=len(lines)), data=st.data())
    def collect(ends: list[bytes], data: st.DataObject) -> None:
        # LF after CR would be one line end, so a blank line keeps its neighbour's.
        for place in range(1, len(ends)):
            if not lines[place]:
                ends[place] = ends[place - 1]
        raw = b"".join(map(b"".join, zip(lines, ends, strict=True)))
        cuts = data.draw(st.lists(st.integers(1, len(raw) - 1), max_size=8, unique=True))
        forms.append((raw, sorted(cuts)))

    collect()
    async with staged(case) as stage:
        for raw, cuts in forms:
            pieces = [raw[start:end] for start, end in itertools.pairwise([0, *cuts, len(raw)])]
            await _says(stage, case.answer(*pieces), "AB")


async def _sse_01_endless_line(case: Case) -> None:
    """A line without an end becomes an error at a limit, and not memory."""
    async with staged(case) as stage:
        stage.upstream.script(case.answer(b"data: ", *[b"x" * 2**20] * 24))
        reply = await stage.post()
        assert reply.status == 502
        assert reply.error["type"] == "upstream_error"


async def _sse_02(case: Case) -> None:
    raw = case.upstream_bytes
    async with staged(case) as stage:
        await _says(stage, case.answer(), "那🌶")
        for at in range(1, len(raw)):
            await _says(stage, case.answer(raw[:at], raw[at:]), "那🌶")
        stage.upstream.script(case.answer(raw.replace("那".encode(), b"\xe9\xff")))
        reply = await stage.post()
        if reply.status == 200 and "error" not in json.loads(reply.frames[-2]):
            choice = fold(reply.chunks)[0]
            assert choice.finish == "stop"
            assert "\ufffd" in choice.content
        elif reply.status == 200:
            assert reply.broken_off[1]["type"] == "upstream_error"
        else:
            assert (reply.status, reply.error["type"]) == (502, "upstream_error")


async def _sse_03(case: Case) -> None:
    async with staged(case) as stage:
        chunks, error = (await stage.post()).broken_off
        assert fold(chunks)[0].content == "par"
        assert fold(chunks)[0].finishes == []
        assert error["message"] == "engine overloaded"
        assert error["code"]
        (line,) = [line for line in stage.log_lines() if line["event"] == "request"]
        assert line["error"] == error["code"]


async def _sse_03_messages(case: Case) -> None:
    body = {"model": "oai/x", "max_tokens": 9, "stream": True, "messages": case.body["messages"]}
    async with staged(case) as stage:
        events = (await stage.post(body, "/v1/messages")).events
        name, data = events[-1]
        assert name == "error"
        assert data["type"] == "error"
        assert data["error"]["message"] == "engine overloaded"
        assert not any(name in ("message_delta", "message_stop") for name, _ in events)
        assert "par" in [data["delta"].get("text") for name, data in events if name == "content_block_delta"]


async def _sse_03_responses(case: Case) -> None:
    async with staged(case) as stage:
        events = (await stage.post({"model": "oai/x", "stream": True, "input": "hi"}, "/v1/responses")).events
        name, data = events[-1]
        assert name == "response.failed"
        assert data["response"]["status"] == "failed"
        assert data["response"]["error"]["message"] == "engine overloaded"
        assert not any(name == "response.completed" for name, _ in events)


async def _fr_05(case: Case) -> None:
    text = case.upstream_bytes
    async with staged(case) as stage:
        chunks, error = (await stage.post()).broken_off
        assert fold(chunks)[0].content == '{"a": 1, "b'
        assert fold(chunks)[0].finishes == []
        assert (error["type"], error["code"]) == ("upstream_error", "stream_truncated")
        assert all(not chunk.get("usage") for chunk in chunks)
        for answer in (case.answer(text + DONE), case.answer(text)):
            stage.upstream.script(answer)
            whole = await stage.post(case.body_with(stream=False))
            assert (whole.status, whole.error["type"]) == (502, "upstream_error")
            assert whole.error["code"] == "stream_truncated"
        stage.upstream.script(case.answer(text + DONE))
        assert (await stage.post()).broken_off[1]["code"] == "stream_truncated"
        await _says(stage, case.answer(text + FINISH), '{"a": 1, "b')
        await _says(stage, case.answer(text + FINISH + DONE), '{"a": 1, "b')


async def _us_01(case: Case) -> None:
    async with staged(case) as stage:
        reply = await stage.post()
        assert all(len(chunk["choices"]) >= 1 for chunk in reply.chunks)
        assert all("usage" not in chunk for chunk in reply.chunks)
        assert fold(reply.chunks)[0].content == "ok"
        assert stage.sent()["stream_options"]["include_usage"] is True
        (line,) = [line for line in stage.log_lines() if line["event"] == "request"]
        assert (line["prompt_tokens"], line["completion_tokens"]) == (3, 1)
        *chunks, last = (await stage.post(case.body_with(stream_options={"include_usage": True}))).chunks
        assert all(chunk["choices"] and chunk["usage"] is None for chunk in chunks)
        assert last["choices"] == []
        assert last["usage"]["prompt_tokens"] == 3
        assert last["usage"]["completion_tokens"] == 1
        assert last["usage"]["total_tokens"] == 4
        refused = await stage.post(case.body_with(stream=False, stream_options={"include_usage": True}))
        assert (refused.status, refused.error["param"]) == (400, "stream_options")


async def _us_02(case: Case) -> None:
    expected = {"prompt_tokens": 2570, "completion_tokens": 9, "total_tokens": 2579}
    whole = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [{"type": "text", "text": "hi"}],
        "stop_reason": "end_turn",
        "usage": {
            "input_tokens": 50,
            "cache_read_input_tokens": 2400,
            "cache_creation_input_tokens": 120,
            "output_tokens": 9,
        },
    }
    async with staged(case) as stage:
        *chunks, last = (await stage.post()).chunks
        assert fold(chunks)[0].content == "hi"
        stage.upstream.script(Answer.json(json.dumps(whole).encode()))
        body = {name: value for name, value in case.body.items() if name not in ("stream", "stream_options")}
        for usage in (last["usage"], (await stage.post(body)).ok["usage"]):
            assert {name: usage[name] for name in expected} == expected
            assert usage["prompt_tokens_details"]["cached_tokens"] == 2400


async def _fr_01(case: Case) -> None:
    async with staged(case) as stage:
        message = fold_messages((await stage.post()).events)
        (block,) = message.blocks
        assert block.start["type"] == "tool_use"
        assert block.start["name"] == "get_weather"
        assert block.start["id"]
        assert json.loads(block.text) == {"city": "Oslo"}
        assert message.stop_reason == "tool_use"
        assert (message.usage["input_tokens"], message.usage["output_tokens"]) == (7, 5)
        lines = [json.loads(line) for line in case.upstream_bytes.splitlines()]
        whole = {**lines[1], "message": lines[0]["message"]}
        stage.upstream.script(Answer.json(json.dumps(whole).encode()))
        body = (await stage.post(case.body_with(stream=False))).ok
        (content,) = body["content"]
        assert content.pop("id")
        assert content == {"type": "tool_use", "name": "get_weather", "input": {"city": "Oslo"}}
        assert body["stop_reason"] == "tool_use"
        assert (body["usage"]["input_tokens"], body["usage"]["output_tokens"]) == (7, 5)


async def _fr_02(case: Case) -> None:
    words = {
        "STOP": "stop",
        "MAX_TOKENS": "length",
        "SAFETY": "content_filter",
        "RECITATION": "content_filter",
        "BLOCKLIST": "content_filter",
        "PROHIBITED_CONTENT": "content_filter",
        "SPII": "content_filter",
        "IMAGE_SAFETY": "content_filter",
    }
    async with staged(case) as stage:
        for word, finish in words.items():
            answer = case.upstream_json()
            answer["candidates"][0]["finishReason"] = word
            _check_blocked(await _asked(stage, answer), finish)
        blocked = {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": case.upstream_json()["usageMetadata"]}
        _check_blocked(await _asked(stage, blocked), "content_filter")
        answer["candidates"][0]["finishReason"] = "SOMETHING_NEW"
        reply = await _asked(stage, answer)
        assert "SOMETHING_NEW" in reply.body.decode()


async def _asked(stage: Stage, answer: object) -> Reply:
    stage.upstream.script(Answer.json(json.dumps(answer).encode()))
    return await stage.post()


def _check_blocked(reply: Reply, finish: str) -> None:
    assert reply.ok["choices"][0]["message"]["content"] is None
    assert message_of(reply.json).finish == finish
    assert reply.json["usage"]["prompt_tokens"] == 6
    assert reply.json["usage"]["completion_tokens"] == 0


CHECKS = {
    "SSE-01": _sse_01,
    "SSE-01/any-chunking": _sse_01_any_chunking,
    "SSE-01/endless-line": _sse_01_endless_line,
    "SSE-02": _sse_02,
    "SSE-03": _sse_03,
    "SSE-03/messages": _sse_03_messages,
    "SSE-03/responses": _sse_03_responses,
    "FR-05": _fr_05,
    "US-01": _us_01,
    "US-02": _us_02,
    "FR-01": _fr_01,
    "FR-02": _fr_02,
}
