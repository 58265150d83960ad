"""The openai SDK as oracle: what we render validates as its types, and its accumulator over our frames is our body."""

import json
from typing import Any

import pytest
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types import Completion
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from adapters.canonical.errors import GatewayError
from tests.adapters.golden_case import GoldenCase, golden_cases
from tests.adapters.good_streams import GoodStream, good_streams, streams
from tests.adapters.openai.exchange import Exchange, chunks_of

GOOD = good_streams("openai", Exchange)


def parametrized(*, chat: bool, custom: bool = True) -> pytest.MarkDecorator:
    """`custom` False leaves out calls of custom tools: the SDK's chunk type knows function calls alone."""
    wanted = [one for one in GOOD if (one.exchange.request.prompts is None) is chat]
    return streams([one for one in wanted if custom or "custom" not in one.name])


@parametrized(chat=True, custom=False)
def test_every_chat_chunk_is_the_sdks_chunk(stream: GoodStream[Exchange]) -> None:
    exchange, events = stream.exchange, stream.events
    for chunk in chunks_of(exchange.stream(events)):
        ChatCompletionChunk.model_validate(chunk, strict=True)


@parametrized(chat=True)
def test_every_chat_body_is_the_sdks_completion(stream: GoodStream[Exchange]) -> None:
    exchange, events = stream.exchange, stream.events
    ChatCompletion.model_validate_json(exchange.answer(events), strict=True)


def as_the_sdk_declares(body: dict[str, Any]) -> dict[str, Any]:
    """The SDK has one type for chunk and body, so it lacks the null finish_reason of a chunk; nor does it know the null
    logprob of a prompt's first token (echo)."""
    for choice in body["choices"]:
        choice["finish_reason"] = choice["finish_reason"] or "stop"
        logprobs = choice["logprobs"] or {}
        for name, stand_in in (("token_logprobs", 0.0), ("top_logprobs", {})):
            if logprobs and logprobs[name][0] is None:
                logprobs[name][0] = stand_in
    return body


@parametrized(chat=False)
def test_every_legacy_chunk_is_the_sdks_completion(stream: GoodStream[Exchange]) -> None:
    exchange, events = stream.exchange, stream.events
    for chunk in chunks_of(exchange.stream(events)):
        Completion.model_validate(as_the_sdk_declares(chunk), strict=True)


@parametrized(chat=False)
def test_every_legacy_body_is_the_sdks_completion(stream: GoodStream[Exchange]) -> None:
    exchange, events = stream.exchange, stream.events
    body = json.loads(exchange.answer(events))
    assert all(choice["finish_reason"] for choice in body["choices"])
    Completion.model_validate(as_the_sdk_declares(body), strict=True)


@parametrized(chat=True, custom=False)
def test_the_sdks_accumulator_over_our_frames_gives_our_body(stream: GoodStream[Exchange]) -> None:
    exchange, events = stream.exchange, stream.events
    state: ChatCompletionStreamState[None] = ChatCompletionStreamState()
    for chunk in chunks_of(exchange.stream(events)):
        state.handle_chunk(ChatCompletionChunk.model_validate(chunk))
    found = json.loads(state.current_completion_snapshot.model_dump_json())
    expected = json.loads(exchange.answer(events))
    for choice, ours in zip(sorted(found["choices"], key=lambda c: int(c["index"])), expected["choices"], strict=True):
        assert essence(choice) == essence(ours)
    if exchange.request.include_usage:
        assert without_nulls(found["usage"]) == expected["usage"]
    assert (found["id"], found["created"], found["model"]) == (expected["id"], expected["created"], expected["model"])


def essence(choice: dict[str, Any]) -> Any:
    """A choice without nulls, and without what the SDK adds or what an extension field says in both forms."""
    message = {name: value for name, value in choice["message"].items() if name not in ("parsed", "role")}
    for call in message.get("tool_calls") or ():
        call.pop("index", None)
        call["function"].pop("parsed_arguments", None)
    logprobs = choice["logprobs"] or {}
    return without_nulls(
        {
            "index": choice["index"],
            "finish": choice["finish_reason"],
            "message": message | {"content": message.get("content") or None},
            "logprobs": logprobs.get("content"),
            "refusal_logprobs": logprobs.get("refusal"),
        }
    )


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {name: without_nulls(inner) for name, inner in value.items()}
        return {name: inner for name, inner in kept.items() if inner is not None}
    if isinstance(value, list):
        return [without_nulls(inner) for inner in value]
    return value


def refused(case: GoldenCase) -> GatewayError | None:
    if case.body is None:
        return None
    return Exchange(case.request).read_body(case.body)[1]


@pytest.mark.parametrize(
    "case", [case for case in golden_cases("openai") if refused(case)], ids=lambda case: str(case.name)
)
def test_an_error_object_has_the_four_fields_of_the_sdks_error(case: GoldenCase) -> None:
    exchange = Exchange(case.request)
    error = refused(case)
    assert error is not None
    found = json.loads(exchange.front.render_error(error))["error"]
    assert list(found) == ["message", "type", "param", "code"]
    assert isinstance(found["message"], str)
    assert isinstance(found["code"], str)
