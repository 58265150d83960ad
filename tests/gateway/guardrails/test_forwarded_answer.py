"""Transcripts and prompts in answers that pass through are filtered, in whichever form and however they are cut."""

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing

import orjson
import pytest

from adapters.canonical.errors import BadUpstreamResponse, ContentRefused
from adapters.sse import SseDecoder
from gateway.guardrails.chain import FilterChain
from gateway.guardrails.forwarded_answer import filtered_json, filtered_transcript
from gateway.guardrails.guardrail import Subject
from gateway.guardrails.regex import RegexGuardrail

HIDES = RegexGuardrail(r"\d{4}", "[pin]", max_length=4)
REFUSES = RegexGuardrail("bomb", None, max_length=4)


def filters() -> FilterChain:
    return FilterChain([each.output_filter(Subject("m")) for each in (HIDES, REFUSES)])


async def arriving(pieces: Sequence[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


def cuts(data: bytes) -> list[list[bytes]]:
    return [[data[:at], data[at:]] for at in range(len(data))] + [[bytes([byte]) for byte in data]]


async def told(kind: str, pieces: Sequence[bytes]) -> bytes:
    async with aclosing(filtered_transcript(arriving(pieces), kind, filters)) as passed:
        return b"".join([piece async for piece in passed])


@pytest.mark.parametrize("kind", ["text/plain; charset=utf-8", "text/vtt", ""])
async def test_a_transcript_as_text_is_the_same_at_every_cut(kind: str) -> None:
    for pieces in cuts("00:01 → my pin ist 1234, größer".encode()):
        assert await told(kind, pieces) == "00:01 → my pin ist [pin], größer".encode()


async def test_a_body_of_json_that_is_fine_passes_as_it_came() -> None:
    body = b'{ "text": "fine",\n "segments": [{"text": "fine", "start": 1.0}] }'
    assert await told("application/json", [body[:7], body[7:]]) == body


async def test_what_tells_a_changed_transcript_once_more_is_left_out() -> None:
    body = {"text": "it is 1234", "words": [{"word": "12"}], "segments": [{"text": "34"}], "usage": {"seconds": 1}}
    found = await told("application/json", [orjson.dumps(body)])
    assert orjson.loads(found) == {"text": "it is [pin]", "usage": {"seconds": 1}}


async def test_the_prompts_that_images_were_made_of_are_filtered() -> None:
    body = b'{"created":1,"data":[{"b64_json":"1234","revised_prompt":"a card with 1234"},{"url":"http://x/1234"}]}'
    found = orjson.loads(await filtered_json(body, filters))
    assert found["data"][0] == {"b64_json": "1234", "revised_prompt": "a card with [pin]"}
    assert found["data"][1] == {"url": "http://x/1234"}


async def test_deltas_are_filtered_over_their_borders_and_told_before_the_whole() -> None:
    events = [
        {"type": "transcript.text.delta", "delta": "it is 12", "logprobs": [{"token": "12"}]},
        {"type": "transcript.text.delta", "delta": "34 or", "logprobs": []},
        {"type": "transcript.text.delta", "delta": " 99", "logprobs": []},
        {"type": "transcript.text.done", "text": "it is 1234 or 99", "logprobs": [{"token": "12"}], "usage": {"x": 1}},
    ]
    stream = b"".join(b"data: " + orjson.dumps(event) + b"\n\n" for event in events) + b"data: [DONE]\n\n"
    for pieces in cuts(stream):
        *found, done = SseDecoder().feed(b"\n" + await told("text/event-stream", pieces))
        assert done == b"[DONE]"
        *deltas, whole = map(orjson.loads, found)
        assert "".join(delta["delta"] for delta in deltas) == "it is [pin] or 99"
        assert {delta["type"] for delta in deltas} == {"transcript.text.delta"}
        assert not any("logprobs" in event for event in [*deltas, whole])
        assert whole == {"type": "transcript.text.done", "text": "it is [pin] or 99", "usage": {"x": 1}}


async def test_what_is_held_back_is_told_where_a_stream_ends_without_a_whole() -> None:
    assert b'"delta":"99"' in await told("text/event-stream", [b'data: {"type":"x.delta","delta":"99"}\n\n'])


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("text/plain", b"a bomb"),
        ("application/json", b'{"text":"a bomb"}'),
        ("text/event-stream", b'data: {"delta":"a bomb"}\n\n'),
        ("text/event-stream", b'data: {"type":"transcript.text.segment","text":"a bomb"}\n\n'),
    ],
)
async def test_a_text_that_is_refused_is_not_told(kind: str, body: bytes) -> None:
    with pytest.raises(ContentRefused):
        await told(kind, [body])


@pytest.mark.parametrize(
    ("kind", "body"),
    [("application/json", b'{"text":'), ("text/event-stream", b'data: {"text":\n\n'), ("text/plain", b"\xff\xfe")],
)
async def test_what_cannot_be_read_is_not_passed_on(kind: str, body: bytes) -> None:
    with pytest.raises(BadUpstreamResponse):
        await told(kind, [body])
