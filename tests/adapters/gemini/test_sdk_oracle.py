"""The google-genai SDK as oracle: what we render are its types, and a stream adds up to the body."""

import json
from typing import Any

import pytest
from google.genai import errors, types

from adapters.canonical.errors import (
    AuthenticationFailed,
    GatewayError,
    InvalidRequest,
    ModelNotFound,
    NotReady,
    PermissionDenied,
    RateLimited,
    StreamTruncated,
    UpstreamOverloaded,
    UpstreamTimeout,
)
from adapters.front import ListedModel
from adapters.gemini.errors import render_error
from adapters.gemini.front import GenerateFront
from adapters.gemini.vocabulary import STOP_REASONS
from tests.adapters.gemini.exchange import Exchange, chunks_of, generate, parts_of
from tests.adapters.good_streams import GoodStream, good_streams, streams
from tests.adapters.openai.exchange import Exchange as ChatExchange


def strictly(model: Any, value: Any) -> Any:
    """The value as this type, which forbids fields that it does not have."""
    return model.model_validate(value)


BEYOND_THE_SDK = ("unknown_fields",)


GOOD = [
    stream
    for stream in good_streams("gemini", Exchange, of=lambda exchange: isinstance(exchange.front, GenerateFront))
    if stream.name not in BEYOND_THE_SDK
]


@streams(GOOD)
def test_every_chunk_is_the_sdks_response(stream: GoodStream[Exchange]) -> None:
    exchange, events = stream.exchange, stream.events
    for chunk in chunks_of(exchange.stream(events)):
        strictly(types.GenerateContentResponse, chunk)


@streams(GOOD)
def test_every_body_is_the_sdks_response_and_says_what_the_stream_says(stream: GoodStream[Exchange]) -> None:
    exchange, events = stream.exchange, stream.events
    frames = exchange.stream(events)
    body = json.loads(exchange.answer(events))
    whole = strictly(types.GenerateContentResponse, body)
    assert whole.model_version == "public-name"
    last = chunks_of(frames)[-1]
    assert last["usageMetadata"] == body["usageMetadata"]
    for candidate in body.get("candidates", ()):
        index = candidate["index"]
        said = candidate.get("content", {"parts": []})["parts"]
        assert parts_of(frames, index) == said
        ends = {key: value for key, value in candidate.items() if key not in ("content", "logprobsResult")}
        streamed = {key: value for key, value in last["candidates"][index].items() if key != "content"}
        assert streamed.items() >= {"finishReason": ends["finishReason"]}.items()


FOREIGN = good_streams("openai", ChatExchange)


@streams(FOREIGN)
def test_answers_of_other_providers_are_responses_too(stream: GoodStream[ChatExchange]) -> None:
    """Whatever an OpenAI-shaped upstream says, a Gemini client reads a response, the same streamed and whole."""
    events = stream.events
    exchange = generate()
    frames = exchange.stream(events)
    for chunk in chunks_of(frames):
        strictly(types.GenerateContentResponse, chunk)
    body = json.loads(exchange.answer(events))
    strictly(types.GenerateContentResponse, body)
    last = chunks_of(frames)[-1]
    assert last["usageMetadata"] == body["usageMetadata"]
    for candidate in body["candidates"]:
        found = next(one for one in last["candidates"] if one["index"] == candidate["index"])
        assert found["finishReason"] == candidate["finishReason"]
        if stream.name != "audio":  # whose pieces are parts of their own in a stream
            assert parts_of(frames, candidate["index"]) == candidate.get("content", {"parts": []})["parts"]


@streams(GOOD)
def test_an_array_holds_the_chunks_of_the_events(stream: GoodStream[Exchange]) -> None:
    exchange, events = stream.exchange, stream.events
    renderer = GenerateFront(stream=True).renderer(exchange.request, exchange.head)
    array = b"".join([renderer.feed([event]) for event in events]) + renderer.finish()
    assert json.loads(array) == chunks_of(exchange.stream(events))


def test_an_array_that_fails_ends_in_the_error() -> None:
    exchange = generate()
    for events in ([], exchange.read_stream(b'data: {"candidates":[{"content":{"parts":[{"text":"a"}]}}]}\n\n')[0]):
        renderer = GenerateFront(stream=True).renderer(exchange.request, exchange.head)
        array = json.loads(renderer.feed(events) + renderer.fail(UpstreamOverloaded("busy")))
        assert array[-1]["error"]["status"] == "UNAVAILABLE"
        assert len(array) == (2 if events else 1)


def test_every_finish_reason_of_the_sdk_has_its_meaning() -> None:
    assert {reason.value for reason in types.FinishReason} == set(STOP_REASONS)


@pytest.mark.parametrize(
    ("error", "code", "word"),
    [
        (InvalidRequest("x", param="contents[0]"), 400, "INVALID_ARGUMENT"),
        (AuthenticationFailed("x"), 401, "UNAUTHENTICATED"),
        (PermissionDenied("x"), 403, "PERMISSION_DENIED"),
        (ModelNotFound("x"), 404, "NOT_FOUND"),
        (RateLimited("x", retry_after_s=1.5), 429, "RESOURCE_EXHAUSTED"),
        (NotReady("x"), 503, "UNAVAILABLE"),
        (UpstreamOverloaded("x"), 503, "UNAVAILABLE"),
        (UpstreamTimeout("x"), 504, "DEADLINE_EXCEEDED"),
        (StreamTruncated("x"), 502, "UNAVAILABLE"),
    ],
)
def test_an_error_is_the_sdks_error(error: GatewayError, code: int, word: str) -> None:
    found = errors.APIError(code, json.loads(render_error(error)))
    assert (found.code, found.status, found.message) == (code, word, "x")
    details = {row["@type"].rpartition(".")[2]: row for row in found.details["error"].get("details", ())}
    assert ("BadRequest" in details) == (error.param is not None)
    assert ("RetryInfo" in details) == (error.retry_after_s is not None)


def test_a_model_list_and_a_count_are_the_sdks() -> None:
    front = GenerateFront()
    model = ListedModel(id="fast", created=1790000000, owned_by="gateway", context=8192)
    row = json.loads(front.render_model(model))
    assert (row["name"], row["inputTokenLimit"]) == ("models/fast", 8192)
    assert json.loads(front.render_models([model, model]))["models"] == [row, row]
    assert json.loads(front.render_count(7)) == {"totalTokens": 7}
