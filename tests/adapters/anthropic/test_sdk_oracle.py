"""The anthropic SDK as oracle: what we render is its types, and its accumulator over our frames gives our body."""

import json
from typing import Any

import pytest
from anthropic.lib.streaming._messages import accumulate_event
from anthropic.types import Message, MessageTokensCount, ModelInfo, RawMessageStreamEvent
from anthropic.types.shared.error_response import ErrorResponse
from pydantic import TypeAdapter

from adapters.anthropic.errors import error_frame, render_error
from adapters.anthropic.front import MessagesFront
from adapters.canonical.errors import (
    AuthenticationFailed,
    GatewayError,
    InvalidRequest,
    ModelNotFound,
    NotReady,
    PermissionDenied,
    RateLimited,
    StreamTruncated,
    UpstreamAuth,
    UpstreamOverloaded,
    UpstreamTimeout,
)
from adapters.front import ListedModel
from tests.adapters.anthropic.exchange import Exchange, blocks_of, events_of, messages
from tests.adapters.good_streams import GoodStream, good_streams, streams
from tests.adapters.openai.exchange import Exchange as ChatExchange

EVENT: TypeAdapter[RawMessageStreamEvent] = TypeAdapter(RawMessageStreamEvent)
BEYOND_THE_SDK = ("unknown_fields_events_and_deltas",)
"""Its block types are a closed union."""


GOOD = [
    stream
    for stream in good_streams("anthropic", Exchange, of=lambda exchange: isinstance(exchange.front, MessagesFront))
    if stream.name not in BEYOND_THE_SDK
]


@streams(GOOD)
def test_every_event_is_the_sdks_event(stream: GoodStream[Exchange]) -> None:
    exchange, events = stream.exchange, stream.events
    for event in events_of(exchange.stream(events)):
        EVENT.validate_python(event)


@streams(GOOD)
def test_every_body_is_the_sdks_message(stream: GoodStream[Exchange]) -> None:
    exchange, events = stream.exchange, stream.events
    Message.model_validate_json(exchange.answer(events))


WHOLE = [stream for stream in GOOD if "cut" not in stream.name]
"""Half of a call's input has no place in a body."""


@streams(WHOLE)
def test_the_sdks_accumulator_over_our_frames_gives_our_body(stream: GoodStream[Exchange]) -> None:
    exchange, events = stream.exchange, stream.events
    snapshot: Any = None
    buffers: dict[int, bytes] = {}
    for event in events_of(exchange.stream(events)):
        snapshot = accumulate_event(event=EVENT.validate_python(event), current_snapshot=snapshot, json_bufs=buffers)
    found = json.loads(snapshot.model_dump_json(warnings=False))
    ours = Message.model_validate_json(exchange.answer(events))
    assert without_nulls(found) == without_nulls(json.loads(ours.model_dump_json()))


FOREIGN = good_streams("openai", ChatExchange, of=lambda exchange: exchange.request.num_choices == 1)


@streams(FOREIGN)
def test_answers_of_other_providers_are_messages_too(stream: GoodStream[ChatExchange]) -> None:
    """Whatever an OpenAI-shaped upstream says, a Messages client reads a message, the same streamed and whole."""
    events = stream.events
    exchange = messages(stream=True)
    frames = exchange.stream(events)
    for event in events_of(frames):
        EVENT.validate_python(event)
    body = exchange.answer(events)
    Message.model_validate_json(body)
    expected = json.loads(body)
    last = events_of(frames)[-2]
    assert last["usage"] == expected["usage"]
    assert last["delta"]["stop_reason"] == expected["stop_reason"]
    if "cut" not in stream.name and "custom" not in stream.name:
        assert blocks_of(frames) == expected["content"]


NOT_OF_THE_SDK = ("native_stop_reason", "parsed_output")
"""An extension field, which stands in the delta, and what the accumulator adds."""


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {name: without_nulls(inner) for name, inner in value.items() if name not in NOT_OF_THE_SDK}
        return {name: inner for name, inner in kept.items() if inner is not None}
    if isinstance(value, list):
        return [without_nulls(inner) for inner in value]
    return value


@pytest.mark.parametrize(
    ("error", "word"),
    [
        (InvalidRequest("x", param="messages[0]"), "invalid_request_error"),
        (AuthenticationFailed("x"), "authentication_error"),
        (PermissionDenied("x"), "permission_error"),
        (ModelNotFound("x"), "not_found_error"),
        (RateLimited("x"), "rate_limit_error"),
        (UpstreamOverloaded("x"), "overloaded_error"),
        (NotReady("x"), "overloaded_error"),
        (UpstreamTimeout("x"), "timeout_error"),
        (UpstreamAuth("x"), "api_error"),
        (StreamTruncated("x"), "api_error"),
    ],
)
def test_an_error_is_the_sdks_error_in_a_body_and_in_a_stream(error: GatewayError, word: str) -> None:
    (event,) = events_of(error_frame(error))
    for body in (json.loads(render_error(error)), event):
        assert ErrorResponse.model_validate(body).error.type == word
        assert body["error"]["message"] == "x"


def test_a_model_list_and_a_count_are_the_sdks() -> None:
    front = MessagesFront()
    model = ListedModel(id="fast", created=1790000000, owned_by="gateway", context=8192)
    ModelInfo.model_validate_json(front.render_model(model))
    page = json.loads(front.render_models([model, model]))
    assert [ModelInfo.model_validate(row).id for row in page["data"]] == ["fast", "fast"]
    assert (page["first_id"], page["last_id"], page["has_more"]) == ("fast", "fast", False)
    assert json.loads(front.render_models([]))["data"] == []
    assert MessageTokensCount.model_validate_json(front.render_count(7)).input_tokens == 7
