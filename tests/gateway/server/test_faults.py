"""Fault injection over real sockets: whatever an upstream does, every request ends in one way (laws 3, 4, 13, 14).

Before the first output a client with a healthy second target sees nothing of it, and one without gets a true status.
After it there is one error in the stream and no finish.
"""

import asyncio
import json
import socket
from typing import Any

import aiohttp
import pytest

from tests.gateway.server.faulty import BODY, CHUNKS, Faults, Seen, Then, faults, head, whole
from tests.gateway.server.running import until
from tests.gateway.soak.questions import STREAMS
from tests.mock_upstream import Answer, MockUpstream
from tests.providers.remote import anthropic_wire, gemini_wire, ollama_wire
from tests.serving import serving

pytestmark = pytest.mark.timeout(60)

STREAM_HEAD = head()
JSON_HEAD = head("application/json")
PAGE = b"<html><head><title>x</title></head><body>Please <b>log in</b></body></html>"
NEVER_BEGAN: dict[str, tuple[bytes, Then]] = {
    # What an upstream may send in place of an answer, and then do.
    "nothing, closed": (b"", "close"),
    "nothing, reset": (b"", "reset"),
    "a head, reset": (STREAM_HEAD, "reset"),
    "a head, closed": (STREAM_HEAD, "close"),
    "no HTTP": (b"\x16\x03\x01 what is this\r\n\r\n", "close"),
    "an endless header": (b"HTTP/1.1 200 X\r\nx: " + b"a" * 100_000, "close"),
    "a page with status 200": (head("text/html") + PAGE, "close"),
    "a page with status 502": (head("text/html", 502) + PAGE, "close"),
    "a page with status 500": (head("text/html", 500) + PAGE, "close"),
    "a redirect": (head("text/html", 302, "location: http://127.0.0.1:9/") + PAGE, "close"),
    "an error with status 500": (head("application/json", 500) + b'{"error": {"message": "x"}}', "close"),
    "an error with status 503": (head("application/json", 503) + b'{"error": {"message": "x"}}', "close"),
    "an error with status 429": (head("application/json", 429) + b'{"error": {"message": "x"}}', "close"),
    "a refused key": (head("application/json", 401) + b'{"error": {"message": "x"}}', "close"),
    "an error inside a 200": (JSON_HEAD + b'{"error": {"message": "x", "code": 500}}', "close"),
    "an error inside a stream": (STREAM_HEAD + b'data: {"error": {"message": "x", "code": 503}}\n\n', "close"),
    "an error after the start": (STREAM_HEAD + CHUNKS[0] + b'data: {"error": {"message": "x"}}\n\n', "close"),
    "an empty body": (JSON_HEAD, "close"),
    "an empty object": (JSON_HEAD + b"{}", "close"),
    "no choices": (JSON_HEAD + b'{"choices": []}', "close"),
    "half an object": (JSON_HEAD + BODY[:60], "close"),
    "null": (JSON_HEAD + b"null", "close"),
    "garbage as JSON": (JSON_HEAD + b"\xff\xfe\x00garbage", "close"),
    "garbage as a stream": (STREAM_HEAD + b"\xff\xfe\x00garbage\n\n\x80\x81\n\n", "close"),
    "garbage as an event": (STREAM_HEAD + b"data: {nonsense\n\n", "close"),
    "an end without a beginning": (STREAM_HEAD + CHUNKS[4], "close"),
    "a start alone": (STREAM_HEAD + CHUNKS[0], "close"),
    "broken gzip": (head("application/json", 200, "content-encoding: gzip") + b"\x1f\x8bnot gzip at all", "close"),
    "a broken chunk": (
        b"HTTP/1.1 200 X\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\nzz\r\nx",
        "close",
    ),
}


def words(seen: Seen) -> str:
    """The text of a chat answer, streamed or whole."""
    if seen.body.startswith(b"{"):
        text: str = json.loads(seen.body)["choices"][0]["message"]["content"]
        return text
    chunks: list[dict[str, Any]] = [json.loads(frame) for frame in seen.frames if frame != "[DONE]"]
    return "".join(
        choice["delta"].get("content") or "" for chunk in chunks for choice in chunk.get("choices", ()) if chunk
    )


def check_end(seen: Seen) -> bool:
    """Fails unless the answer ended in exactly one way. Gives whether it ended well."""
    if seen.status != 200:
        assert seen.status in (429, 500, 502, 503, 504), seen
        assert set(seen.error) == {"message", "type", "param", "code"}
        return False
    if seen.body.startswith(b"{"):
        (choice,) = json.loads(seen.body)["choices"]
        assert choice["finish_reason"] == "stop"
        return True
    *frames, last = seen.frames
    assert last == "[DONE]"
    decoded = [json.loads(frame) for frame in frames]
    finishes = [c for chunk in decoded for c in chunk.get("choices", ()) if c["finish_reason"] is not None]
    errors = [chunk for chunk in decoded if "error" in chunk]
    assert len(finishes) + len(errors) == 1, seen
    if errors:
        assert decoded[-1] is errors[0]
    return bool(finishes)


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
async def test_what_fails_before_the_first_output_is_a_true_status_alone_and_unseen_with_a_second_target(
    stream: bool,
) -> None:
    async with faults(stream=stream) as here:
        for name, (here.faulty.sent, here.faulty.then) in NEVER_BEGAN.items():
            alone = await here.ask("lone", stream=stream)
            assert not check_end(alone), name
            assert alone.status != 200, name
            assert "127.0.0.1" not in alone.error["message"], name
            assert "<" not in alone.error["message"], name
            helped = await here.ask("pair", stream=stream)
            assert check_end(helped), name
            assert words(helped) == "good", name
        assert here.faulty.calls == 2 * len(NEVER_BEGAN)
        await until(lambda: here.faulty.open == 0)


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("then", ["reset", "close"])
async def test_a_connection_that_ends_at_any_byte(stream: bool, then: Then) -> None:
    answer = whole(stream=stream)
    partial = 0
    async with faults(stream=stream) as here:
        here.faulty.then = then
        for cut in range(len(answer)):
            here.faulty.sent = answer[:cut]
            alone, helped = await here.ask("lone", stream=stream), await here.ask("pair", stream=stream)
            ended_well = check_end(alone)
            assert check_end(helped) or words(helped) in ("par", "partial"), cut
            if alone.status != 200:
                assert words(helped) == "good", cut  # nothing was said, so the second target says it
            elif not ended_well:
                assert words(helped) == words(alone), cut
                partial += 1
            else:
                assert words(alone) == words(helped) == "partial", cut
        assert partial > 0 if stream else partial == 0
        await until(lambda: here.faulty.open == 0)


PHASES = {
    "before the status": b"",
    "inside the head": b"HTTP/1.1 200 X\r\ncontent-",
    "before the body": STREAM_HEAD,
    "inside the first event": STREAM_HEAD + CHUNKS[0][:30],
    "after the start": STREAM_HEAD + CHUNKS[0],
    "with comments": STREAM_HEAD + b": still here\n\n",
}


@pytest.mark.parametrize("phase", PHASES)
async def test_a_stall_before_the_first_output(phase: str) -> None:
    async with faults(timeouts="{first_token_s: 0.1}") as here:
        here.faulty.sent, here.faulty.then = PHASES[phase], "hang"
        alone = await here.ask("lone", stream=True)
        assert (alone.status, alone.error["code"]) == (504, "upstream_timeout")
        assert words(await here.ask("pair", stream=True)) == "good"
        await until(lambda: here.faulty.open == 0)


@pytest.mark.parametrize("said", [2, 3], ids=["one word", "two words"])
async def test_a_stall_after_the_first_output_is_told_in_the_stream(said: int) -> None:
    async with faults(timeouts="{first_token_s: 5, gap_s: 0.1}") as here:
        here.faulty.sent, here.faulty.then = STREAM_HEAD + b"".join(CHUNKS[:said]), "hang"
        for model in ("lone", "pair"):
            seen = await here.ask(model, stream=True)
            assert not check_end(seen)
            assert words(seen) == ("par", "partial")[said - 2]
        assert here.healthy.requests == []
        await until(lambda: here.faulty.open == 0)


async def test_a_stall_after_the_finish_takes_nothing_away() -> None:
    async with faults() as here:
        here.faulty.sent, here.faulty.then = STREAM_HEAD + b"".join(CHUNKS[:4]), "hang"
        seen = await here.ask("lone", stream=True)
        assert check_end(seen)
        assert words(seen) == "partial"


async def test_a_stall_of_an_answer_that_comes_whole_ends_at_the_deadline_and_is_overtaken_by_a_hedge() -> None:
    async with faults(stream=False, timeouts="{total_s: 0.3}", more=", hedge_s: 0.05") as here:
        here.faulty.sent, here.faulty.then = JSON_HEAD + BODY[:40], "hang"
        assert (await here.ask("lone", stream=False)).status == 504
        assert words(await here.ask("pair", stream=False)) == "good"
        await until(lambda: here.faulty.open == 0)


WHOLE_STALLS = {
    "before the status": (b"", "{whole_s: 0.25}"),
    "inside the head": (b"HTTP/1.1 200 X\r\ncontent-", "{whole_s: 0.25}"),
    "before the body": (JSON_HEAD, "{gap_s: 0.25}"),
    "inside the body": (JSON_HEAD + BODY[:40], "{gap_s: 0.25}"),
}


@pytest.mark.parametrize(
    ("path", "phase"),
    [
        *[("/v1/chat/completions", phase) for phase in WHOLE_STALLS],
        ("/v1/embeddings", "before the status"),
        ("/v1/embeddings", "inside the body"),
    ],
)
async def test_a_stall_of_an_answer_that_comes_whole_leads_to_the_next_target_before_the_deadline(
    phase: str, path: str
) -> None:
    sent, timeouts = WHOLE_STALLS[phase]
    is_chat = path.endswith("completions")
    fields = {} if is_chat else {"input": "hi", "messages": None}
    body = None if is_chat else b'{"object":"list","data":[{"index":0,"embedding":[0.5]}],"model":"m"}'
    async with faults(stream=False, timeouts=timeouts, healthy_body=body) as here:
        here.faulty.sent, here.faulty.then = sent, "hang"
        alone = await here.ask("lone", stream=False, path=path, **fields)
        assert (alone.status, alone.error["code"]) == (504, "upstream_timeout")
        assert (await here.ask("pair", stream=False, path=path, **fields)).status == 200
        await until(lambda: here.faulty.open == 0)


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
async def test_a_refused_connection(stream: bool) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, not listening: connections are refused
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        async with faults(stream=stream, refusing=url) as here:
            alone = await here.ask("lone", stream=stream)
            assert (alone.status, alone.error["code"]) == (502, "upstream_unreachable")
            assert words(await here.ask("pair", stream=stream)) == "good"


async def test_garbage_after_the_first_output_is_told_in_the_stream() -> None:
    async with faults() as here:
        for junk in (b"data: {nonsense\n\n", b'data: {"error": {"message": "x"}}\n\n', b"\xff\xfe\n\n" * 3, CHUNKS[4]):
            here.faulty.sent = STREAM_HEAD + CHUNKS[1] + junk
            seen = await here.ask("pair", stream=True)
            assert not check_end(seen), junk
            assert words(seen) == "par"
        assert here.healthy.requests == []


async def test_embeddings_fail_over_from_every_fault_and_never_end_well_on_one() -> None:
    vectors = (
        b'{"object": "list", "data": [{"object": "embedding", "index": 0, "embedding": [0.5, 1.0]}], "model": "m"}'
    )
    async with faults(stream=False, healthy_body=vectors) as here:
        for name, (here.faulty.sent, here.faulty.then) in NEVER_BEGAN.items():
            for model, good in (("lone", False), ("pair", True)):
                seen = await here.ask(model, stream=False, path="/v1/embeddings", input="hi", messages=None)
                assert (seen.status == 200) is good, (name, seen)
                if good:
                    assert json.loads(seen.body)["data"][0]["embedding"] == [0.5, 1.0]
                else:
                    assert set(seen.error) == {"message", "type", "param", "code"}, name


@pytest.mark.parametrize("dialect", STREAMS)
async def test_a_stream_of_any_dialect_ends_in_one_way_wherever_the_upstream_stops(dialect: str) -> None:
    asked = STREAMS[dialect]

    async def ended_well(here: Faults, model: str) -> tuple[int, bool]:
        body = asked.body if dialect == "gemini" else {**asked.body, "model": model}
        async with here.session.post(here.url + asked.path.replace("MODEL", model), json=body) as answer:
            return answer.status, asked.ended_well(answer.status, await answer.read())

    async with faults() as here:
        for number in range(len(CHUNKS) + 1):
            here.faulty.sent = STREAM_HEAD + b"".join(CHUNKS[:number])
            alone, helped = await ended_well(here, "lone"), await ended_well(here, "pair")
            if number < 2:  # nothing was said
                assert (alone, helped) == ((502, False), (200, True)), number
            else:
                assert alone == helped == (200, number >= 4), number


UPSTREAMS = {
    "anthropic": [anthropic_wire.start(), *anthropic_wire.text_block("par", "tial"), *anthropic_wire.finish()],
    "gemini": [gemini_wire.chunk({"text": "par"}), gemini_wire.chunk({"text": "tial"}, finish="STOP")],
    "ollama": [ollama_wire.line("par"), ollama_wire.line("tial"), ollama_wire.last()],
}


@pytest.mark.parametrize("kind", UPSTREAMS)
async def test_an_upstream_of_any_dialect_may_stop_anywhere(kind: str) -> None:
    pieces = UPSTREAMS[kind]
    answer = head("application/x-ndjson" if kind == "ollama" else "text/event-stream") + b"".join(pieces)
    ends = {len(answer) - sum(map(len, pieces[number:])) for number in range(len(pieces) + 1)}
    cuts = sorted({*ends, *(end - 2 for end in ends), *range(0, len(answer), 97)})
    seen_good = 0
    async with faults(kind=kind) as here:
        here.faulty.then = "reset"
        for cut in cuts:
            here.faulty.sent = answer[:cut]
            alone, helped = await here.ask("lone", stream=True), await here.ask("pair", stream=True)
            ended_well = check_end(alone)
            if alone.status != 200:
                assert check_end(helped), cut
                assert words(helped) == "good", cut
            else:
                assert check_end(helped) == ended_well, cut
                assert words(helped) == words(alone), cut
                assert words(alone) == "partial" or not ended_well, cut
            seen_good += ended_well
        assert 1 <= seen_good < len(cuts)
        await until(lambda: here.faulty.open == 0)


async def test_a_provider_that_is_gone_is_probed_without_a_token_and_asked_again_when_it_is_back() -> None:
    listing = Answer.json(b'{"object": "list", "data": []}')
    gone = Answer.json(b'{"error": {"message": "x"}}', 500)
    back = Answer.json(BODY)
    async with MockUpstream(gone, gone, gone, listing, back) as upstream, MockUpstream(Answer.json(BODY)) as other:
        text = (
            "version: 1\nstorage: {url: memory}\nproviders:\n"
            f"  a: {{type: openai-compatible, base_url: '{upstream.base_url}'}}\n"
            f"  b: {{type: openai-compatible, base_url: '{other.base_url}'}}\n"
            "models: {smart: {targets: [a/m, b/m]}}\n"
            "reliability: {retry: {attempts: 1}, breaker: {failures: 1, open_s: 0.2}}\n"
        )
        async with serving(text) as url, aiohttp.ClientSession() as session:

            async def ask() -> str | None:
                body = {"model": "smart", "messages": [{"role": "user", "content": "hi"}]}
                async with session.post(f"{url}/v1/chat/completions", json=body) as answer:
                    assert answer.status == 200
                    return answer.headers["x-gateway-provider"]

            assert await ask() == "b"
            await upstream.seen(4)
            await until(lambda: upstream.open_calls == 0)
            assert [seen.method for seen in upstream.requests] == ["POST", "GET", "GET", "GET"]
            async with asyncio.timeout(2):
                while await ask() != "a":
                    pass
        assert [seen.path for seen in upstream.requests] == [
            "/v1/chat/completions",
            *["/v1/models"] * 3,
            "/v1/chat/completions",
        ]
