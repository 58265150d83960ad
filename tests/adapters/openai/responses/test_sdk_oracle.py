"""The openai SDK as oracle: every event and object is of its types, and its accumulator agrees with our stream."""

import json
from typing import Any, get_args

import openai
import pytest
from openai.lib.streaming.responses._responses import ResponseStreamState
from openai.types.responses import Response, ResponseError, ResponseStreamEvent
from pydantic import TypeAdapter

from adapters.canonical.errors import UpstreamInternal
from adapters.canonical.events import Event
from adapters.canonical.result import fold
from adapters.openai.responses.wire_events import OPEN_RESPONSES_FORM
from tests.adapters.golden_case import GoldenCase, golden_cases
from tests.adapters.openai.responses.event_order import check_events, checked, events_in
from tests.adapters.openai.responses.exchange import Exchange, front_of

CASES = [case for case in golden_cases("openai_responses") if not case.name.startswith("chat_")]
STREAMS = [case for case in CASES if case.stream is not None]
GOOD = [case for case in STREAMS if Exchange(case.request).read_stream(case.stream or b"")[1] is None]
EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
OPEN_RESPONSES_KEYS = frozenset(
    [
        "id",
        "object",
        "created_at",
        "completed_at",
        "status",
        "incomplete_details",
        "model",
        "previous_response_id",
        "instructions",
        "output",
        "error",
        "tools",
        "tool_choice",
        "truncation",
        "parallel_tool_calls",
        "text",
        "top_p",
        "presence_penalty",
        "frequency_penalty",
        "top_logprobs",
        "temperature",
        "reasoning",
        "usage",
        "max_output_tokens",
        "max_tool_calls",
        "store",
        "background",
        "service_tier",
        "metadata",
        "safety_identifier",
        "prompt_cache_key",
    ]
)
NULLABLE = frozenset(
    [
        "completed_at",
        "incomplete_details",
        "previous_response_id",
        "instructions",
        "error",
        "reasoning",
        "usage",
        "max_output_tokens",
        "max_tool_calls",
        "safety_identifier",
        "prompt_cache_key",
    ]
)
KNOWN_TO_OPEN_RESPONSES = frozenset(
    [
        "response.created",
        "response.queued",
        "response.in_progress",
        "response.completed",
        "response.incomplete",
        "response.failed",
        "response.output_item.added",
        "response.output_item.done",
        "response.content_part.added",
        "response.content_part.done",
        "response.output_text.delta",
        "response.output_text.done",
        "response.output_text.annotation.added",
        "response.refusal.delta",
        "response.refusal.done",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.reasoning.delta",
        "response.reasoning.done",
        "response.reasoning_summary_part.added",
        "response.reasoning_summary_part.done",
        "response.reasoning_summary_text.delta",
        "response.reasoning_summary_text.done",
        "error",
    ]
)


def named(cases: list[GoldenCase]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", cases, ids=[case.name for case in cases])


def frames_of(case: GoldenCase, exchange: Exchange | None = None) -> bytes:
    exchange = exchange or Exchange(case.request)
    assert case.stream is not None
    return exchange.stream(*exchange.read_stream(case.stream))


def events_of(case: GoldenCase) -> list[Event]:
    assert case.stream is not None
    events, error = Exchange(case.request).read_stream(case.stream)
    assert error is None
    return events


@named(STREAMS)
def test_every_stream_is_in_order(case: GoldenCase) -> None:
    checked(frames_of(case))


@named(STREAMS)
def test_every_event_is_the_sdks_event(case: GoldenCase) -> None:
    for event in events_in(frames_of(case)):
        found = EVENT.validate_python(event, strict=True)
        assert found.type == event["type"]


@named(GOOD)
def test_the_body_is_what_the_terminal_event_carries_and_the_sdks_response(case: GoldenCase) -> None:
    exchange = Exchange(case.request)
    events = events_of(case)
    body = json.loads(exchange.answer(events))
    Response.model_validate(body, strict=True)
    assert body == checked(exchange.stream(events))


@named(STREAMS)
def test_the_sdks_accumulator_agrees_with_the_stream(case: GoldenCase) -> None:
    state = ResponseStreamState[None](input_tools=openai.omit, text_format=openai.omit)
    final = checked(frames_of(case))
    for event in events_in(frames_of(case)):
        state.handle_event(EVENT.validate_python(event))
    if final["status"] == "completed":
        completed = state._completed_response
        assert completed is not None
        assert completed.output_text == "".join(
            part["text"]
            for item in final["output"]
            if item["type"] == "message"
            for part in item["content"]
            if part["type"] == "output_text"
        )


@named(STREAMS)
def test_the_response_has_the_keys_of_both_dialects(case: GoldenCase) -> None:
    responses = [event["response"] for event in events_in(frames_of(case)) if "response" in event]
    for response in responses:
        assert response.keys() >= OPEN_RESPONSES_KEYS
        assert not [name for name in OPEN_RESPONSES_KEYS - NULLABLE if response[name] is None]
        if response["usage"] is not None:
            assert {"input_tokens_details", "output_tokens_details"} <= response["usage"].keys()


@named(STREAMS)
def test_the_other_dialect_differs_in_the_names_of_reasoning_alone(case: GoldenCase) -> None:
    front = front_of(OPEN_RESPONSES_FORM)
    theirs = events_in(frames_of(case, Exchange(case.request, front)))
    ours = events_in(frames_of(case))
    check_events(theirs)
    assert [event["type"].replace("response.reasoning.", "response.reasoning_text.") for event in theirs] == [
        event["type"] for event in ours
    ]
    plain = [event["type"] for event in theirs if "_call" not in event["type"] and "custom" not in event["type"]]
    assert set(plain) <= KNOWN_TO_OPEN_RESPONSES


@named([case for case in STREAMS if case.body is not None])
def test_ids_are_the_same_in_stream_and_body(case: GoldenCase) -> None:
    exchange = Exchange(case.request)
    assert case.body is not None
    body_events, _ = exchange.read_body(case.body)
    body = json.loads(exchange.answer(body_events))
    streamed = checked(frames_of(case))
    assert [item["id"] for item in body["output"]] == [item["id"] for item in streamed["output"]]
    assert body == streamed


def test_the_codes_of_failed_responses_are_the_sdks() -> None:
    known = get_args(ResponseError.model_fields["code"].annotation)
    for code in (*known, "another"):
        found = checked(Exchange(CASES[0].request).stream([], UpstreamInternal("x", code=code)))
        assert found["error"]["code"] == (code if code in known else "server_error")


def test_a_fold_of_the_events_is_what_the_body_is_made_of() -> None:
    case = next(case for case in STREAMS if case.name == "reasoning_summary_and_encrypted")
    exchange = Exchange(case.request)
    answer = exchange.front.render_result(exchange.request, fold(events_of(case)), exchange.head)
    assert json.loads(answer) == checked(frames_of(case))
