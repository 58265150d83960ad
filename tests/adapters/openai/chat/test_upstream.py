"""The edges of chat answers: what ends them, what breaks them, what is not said twice."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from adapters.canonical.errors import (
    BadUpstreamResponse,
    GatewayError,
    InvalidRequest,
    StreamTruncated,
    UpstreamError,
    UpstreamInternal,
    UpstreamOverloaded,
    UpstreamRateLimited,
)
from adapters.canonical.events import (
    ChoiceFinished,
    Event,
    ProviderReported,
    ReasoningDelta,
    Started,
    TextDelta,
    UsageReported,
)
from adapters.canonical.result import fold
from adapters.canonical.stop_reason import StopReason
from adapters.canonical.usage import Usage, usage_of_turns
from adapters.openai.chat.upstream import ChatUpstream
from adapters.openai.vocabulary import CHAT
from tests.adapters.openai.exchange import DONE, HEAD, Exchange, chat, chunks_of, completion, sse
from tests.adapters.openai.responses.exchange import front_of
from tests.adapters.sides import Sides


def chunk(delta: Any = None, finish: str | None = None, index: Any = 0, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": index, "delta": delta or {}, "finish_reason": finish, **fields}]}


def test_a_choice_without_tools_is_left_out_where_another_dialect_allows_it() -> None:
    def sent(**fields: Any) -> Any:
        body = json.dumps({"model": "m", "input": "hi", **fields}).encode()
        return Sides(front_of(), ChatUpstream(), HEAD, body).sent().get("tool_choice")

    assert [sent(tools=[], tool_choice=choice) for choice in ("auto", "none")] == [None, None]
    assert sent(tools=[{"type": "function", "name": "f"}], tool_choice="auto") == "auto"
    assert chat(tool_choice="none").sent()["tool_choice"] == "none"


def read(*chunks: Any, **fields: Any) -> tuple[list[Event], GatewayError | None]:
    events, error = chat(stream=True, **fields).read_stream(sse(*chunks))
    return events[1:], error


A = chunk({"content": "a"})
STOP = chunk({}, "stop")


@pytest.mark.parametrize(
    "late",
    [{"content": "b"}, {"reasoning": "b"}, {"refusal": "b"}, {"tool_calls": [{"id": "x"}]}, {"audio": {"id": "x"}}],
)
def test_output_after_the_finish_is_an_error(late: dict[str, Any]) -> None:
    events, error = read(A, STOP, chunk(late))
    assert isinstance(error, BadUpstreamResponse)
    assert sum(isinstance(event, ChoiceFinished) for event in events) == 1


def test_a_repeated_finish_and_empty_deltas_after_it_say_nothing() -> None:
    events, error = read(A, STOP, chunk({}, "length"), chunk({"role": "assistant", "content": ""}), chunk())
    assert error is None
    assert events == [TextDelta(0, 0, "a"), ChoiceFinished(0, StopReason.STOP, "stop")]


def test_text_that_comes_with_the_finish_is_delivered_before_it() -> None:
    events, _ = read({**chunk({"content": "a"}, "stop"), "usage": {"prompt_tokens": 1}})
    assert [type(event) for event in events] == [TextDelta, ChoiceFinished, UsageReported]


@pytest.mark.parametrize("index", [1, -1, 10**9])
def test_a_choice_that_nobody_asked_for_is_an_error(index: int) -> None:
    assert isinstance(read(chunk({"content": "a"}, index=index))[1], BadUpstreamResponse)


def test_a_missing_choice_is_an_error() -> None:
    assert isinstance(read(A, STOP, n=2)[1], StreamTruncated)
    body = b'{"choices":[{"index":0,"message":{"content":"a"},"finish_reason":"stop"}]}'
    assert isinstance(chat(n=2).read_body(body)[1], BadUpstreamResponse)


def test_the_finish_makes_a_broken_connection_a_normal_end() -> None:
    exchange = chat(stream=True)
    parser = exchange.upstream.stream_parser(exchange.request)
    parser.feed(sse(A))
    assert not parser.finished
    parser.feed(sse(STOP))
    assert parser.finished


@pytest.mark.parametrize(
    "body", [b"", b"{}", b"[]", b"null", b'"x"', b"<html>", b'{"choices":[]}', b'{"choices":null}']
)
def test_a_body_without_an_answer_is_an_upstream_error(body: bytes) -> None:
    error = chat().read_body(body)[1]
    assert isinstance(error, BadUpstreamResponse)
    assert error.status == 502


@pytest.mark.parametrize(
    "payload",
    [
        b"{",
        b'{"choices":[{"index":0,"delta":{"content":5}}]}',
        b'{"choices":[{"index":"a"}]}',
        b'{"choices":[5]}',
        b'{"choices":{}}',
        b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"x":1,"choices":[{"y":' + b"[" * 100_000 + b"]" * 100_000 + b"}]}",
        rb'{"choices":[{"index":0,"delta":{"content":"\ud800"}}]}',
        b'{"choices":[{"index":0,"delta":{"content":"a"},"logprobs":{"content":[{"token":5}]}}]}',
        b'{"choices":[{"index":0,"finish_reason":"stop","stop_reason":12345678901234567890123}]}',
        b'{"unknown":"\xff"}',
        rb'{"unknown":"\ud800"}',
        b'{"choices":[{"index":0,"delta":{"unknown":"\xff"}}]}',
        b'{"choices":[{"index":0,"delta":{"annotations":["\xff"]}}]}',
        b'{"choices":[{"index":0,"delta":{"reasoning_details":["\xff"]}}]}',
        b'{"choices":[{"index":0,"delta":{"tool_calls":[{"function":{"name":"f"},"extra_content":"\xff"}]}}]}',
    ],
    ids=lambda payload: repr(payload[:60]),
)
def test_what_is_not_the_protocol_is_an_upstream_error_and_never_a_crash(payload: bytes) -> None:
    for error in (chat().read_body(payload)[1], chat(stream=True).read_stream(b"data: " + payload + b"\n\n")[1]):
        assert isinstance(error, BadUpstreamResponse)


def test_numbers_that_a_host_writes_as_strings_or_with_a_point_are_numbers() -> None:
    usage = {"prompt_tokens": "7", "completion_tokens": 2.0}
    choice = {"index": "0", "message": {"content": "a"}, "finish_reason": "stop"}
    body = {"created": "1790000000", "choices": [choice], "usage": usage}
    events, error = chat().read_body(json.dumps(body).encode())
    assert error is None
    assert events[0] == Started(None, 1790000000, None)
    assert fold(events).usage == Usage(prompt_tokens=7, completion_tokens=2)


@pytest.mark.parametrize(
    ("error", "expected", "message"),
    [
        ("broken", UpstreamError, "broken"),
        ({"message": "slow down", "code": 429}, UpstreamRateLimited, "slow down"),
        ({"message": "slow down", "code": "429"}, UpstreamRateLimited, "slow down"),
        ({"message": "m", "type": "overloaded_error"}, UpstreamOverloaded, "m"),
        ({"message": "m", "code": 400}, InvalidRequest, "m"),
        ({"message": "m", "code": 200}, UpstreamError, "m"),
        ({"message": {"odd": 1}}, UpstreamError, "the upstream answered 502"),
        ({}, UpstreamError, "the upstream answered 502"),
        (True, UpstreamError, "the upstream answered 502"),
        (["x", "y"], UpstreamError, "x; y"),
    ],
)
def test_an_error_object_of_any_form_ends_the_answer(error: Any, expected: type[GatewayError], message: str) -> None:
    for found in (
        read(A, {"error": error})[1],
        read(A, chunk({}, "error", error=error))[1],
        chat().read_body(sse({"error": error})[6:])[1],
    ):
        assert type(found) is expected
        assert found.message == message


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        ({"code": "500", "message": "boom"}, UpstreamInternal),
        ({"code": 429, "message": "boom"}, UpstreamRateLimited),
        ({"type": "overloaded_error", "message": "boom"}, UpstreamOverloaded),
        ({"object": "error", "message": "boom"}, UpstreamError),
        ({"detail": "boom"}, UpstreamError),
        ({"error_type": "validation_error", "error_message": "boom"}, UpstreamError),
        ({"error_code": 336003, "error_msg": "boom"}, UpstreamError),
    ],
)
def test_an_error_without_an_object_around_it_is_an_error(payload: Any, expected: type[GatewayError]) -> None:
    for error in (read(payload)[1], read(A, payload)[1], chat().read_body(json.dumps(payload).encode())[1]):
        assert isinstance(error, expected)
        assert error.message == "boom"
    assert read({"message": "still thinking"}, A, STOP)[1] is None
    assert read({**A, "message": "x", "type": "y", "detail": "z"}, STOP)[1] is None


@pytest.mark.parametrize("word", ["error", "abort"])
def test_a_choice_that_the_upstream_gave_up_is_an_error_not_a_finish(word: str) -> None:
    events, error = read(A, chunk({}, word))
    assert isinstance(error, UpstreamError)
    assert not any(isinstance(event, ChoiceFinished) for event in events)


def test_an_empty_finish_word_is_none() -> None:
    assert isinstance(read(chunk({"content": "a"}, ""))[1], StreamTruncated)


def test_done_alone_is_no_finish() -> None:
    assert isinstance(chat(stream=True).read_stream(sse(A) + b"data: [DONE]\n\n")[1], StreamTruncated)


def test_logprobs_that_arrive_with_the_finish_come_before_it() -> None:
    entry = {"token": "a", "logprob": -1.0, "bytes": None, "top_logprobs": None}
    events, _ = read(A, chunk({}, "stop", logprobs={"content": [entry]}))
    assert isinstance(events[1], TextDelta)
    assert len(events[1].logprobs) == 1
    assert isinstance(events[2], ChoiceFinished)


def test_reasoning_and_text_of_one_chunk_keep_their_order() -> None:
    events, _ = read(chunk({"content": "a", "reasoning_content": "r"}, "stop"))
    assert events[:2] == [ReasoningDelta(0, 0, "r"), TextDelta(0, 1, "a")]


def test_unknown_fields_of_a_chunk_keep_their_bytes() -> None:
    payload = (
        b'data: {"x" : [1.0,  2],"choices":[{"index":0,"y":1e400,"delta":{"z":{"a" :1}},"finish_reason":"stop"}]}\n\n'
    )
    events, error = chat(stream=True).read_stream(payload)
    assert error is None
    reported = [event for event in events if isinstance(event, ProviderReported)]
    assert reported[0].fields == {"x": b"[1.0,  2]"}
    assert reported[1].fields == {"y": b"1e400", "delta.z": b'{"a" :1}'}
    assert reported[1].choice == 0


USAGE = {
    "prompt_tokens": 10,
    "completion_tokens": 2,
    "total_tokens": 12,
    "cost": 0.01,
    "cost_details": {"upstream_inference_cost": None},
}


@pytest.mark.parametrize("surface", [chat, completion])
def test_what_an_upstream_tells_beside_the_counts_stands_in_the_usage(surface: Callable[..., Exchange]) -> None:
    message: dict[str, Any] = {"text": "a"} if surface is completion else {"message": {"content": "a"}}
    body = {"choices": [{"index": 0, **message, "finish_reason": "stop"}], "usage": USAGE, "provider": "p"}
    whole = surface()
    events, error = whole.read_body(json.dumps(body).encode())
    assert error is None
    told = json.loads(whole.answer(events))
    assert told["usage"] == USAGE
    assert told["provider"] == "p"
    assert "usage.cost" not in told

    streamed = surface(stream=True, stream_options={"include_usage": True})
    delta: dict[str, Any] = {"text": "a"} if surface is completion else {"delta": {"content": "a"}}
    said = {"choices": [{"index": 0, **delta, "finish_reason": "stop"}]}
    events, error = streamed.read_stream(sse(said, {"choices": [], "usage": USAGE}) + DONE)
    assert error is None
    last = chunks_of(streamed.stream(events))[-1]
    assert last["usage"] == USAGE
    assert "usage.cost" not in last


def test_what_was_told_beside_the_counts_of_one_turn_is_not_told_of_several() -> None:
    asked = chat()
    usage = usage_of_turns([Usage(prompt_tokens=1, completion_tokens=1), Usage(prompt_tokens=2, completion_tokens=1)])
    told = ProviderReported({"usage.cost": b"0.01"}, CHAT)
    finish = ChoiceFinished(0, StopReason.STOP, "stop", None)
    assert "cost" not in json.loads(asked.answer([told, finish, UsageReported(usage)]))["usage"]


def test_choices_without_a_number_are_in_order() -> None:
    body = {"id": 12, "choices": [{"message": {"content": word}, "finish_reason": "stop"} for word in "ab"]}
    events, error = chat(n=2).read_body(json.dumps(body).encode())
    assert error is None
    assert events[0] == Started("12", None, None)
    assert [(event.choice, event.text) for event in events if isinstance(event, TextDelta)] == [(0, "a"), (1, "b")]


def test_the_reason_why_a_stream_was_stopped_is_told() -> None:
    _, error = read(A, {"choices": [], "x_groq": {"error": "over capacity"}})
    assert isinstance(error, UpstreamError)
    assert error.message == "over capacity"
    for harmless in ({"id": "r"}, None, "x", {"error": None}, {"error": ""}):
        assert read(A, {"choices": [], "x_groq": harmless}, STOP)[1] is None


@pytest.mark.parametrize(
    ("total", "thought", "completion"),
    [(242, 200, 205), (519, None, 482), (519, 0, 482), (42, 3, 5), (99, 3, 5), (41, None, 5), ("242", 200, 5)],
    ids=["xai", "gemini", "gemini-0", "inclusive", "unexplained", "too-small", "no-number"],
)
def test_what_the_model_thought_is_part_of_the_completion_where_only_the_total_has_it(
    total: object, thought: int | None, completion: int
) -> None:
    usage: dict[str, object] = {"prompt_tokens": 37, "completion_tokens": 5, "total_tokens": total}
    if thought is not None:
        usage["completion_tokens_details"] = {"reasoning_tokens": thought}
    events, _ = read(A, {**STOP, "usage": usage})
    (told,) = [event.usage for event in events if isinstance(event, UsageReported)]
    assert (told.completion_tokens, told.reasoning_tokens) == (completion, thought)
