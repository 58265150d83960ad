"""The ollama SDK as oracle: what we render are its types, and a stream adds up to the body."""

import json
from typing import Any

import pytest
from ollama import ChatResponse, GenerateResponse, ListResponse, ProcessResponse, ResponseError, ShowResponse

from adapters.canonical.errors import GatewayError, InvalidRequest, ModelNotFound, UpstreamOverloaded
from adapters.front import Front, ListedModel
from adapters.ollama.errors import render_error
from adapters.ollama.front import OllamaChatFront, OllamaGenerateFront
from adapters.ollama.model_list import ModelCards, RunningModels, Tags
from tests.adapters.good_streams import GoodStream, good_streams, streams
from tests.adapters.ollama.exchange import Exchange, generate, lines_of, ollama
from tests.adapters.openai.exchange import Exchange as ChatExchange


def is_ollamas(exchange: Exchange) -> bool:
    return isinstance(exchange.front, OllamaChatFront | OllamaGenerateFront)


def type_of(front: Front) -> Any:
    return ChatResponse if isinstance(front, OllamaChatFront) else GenerateResponse


def joined(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """What a client makes of the lines: texts and thoughts joined, calls and logprobs in order, the end of the last."""
    found: dict[str, Any] = {**rows[-1]}
    for where in ("message", "response"):
        if where not in found:
            continue
        said = [row["message"] if where == "message" else row for row in rows]
        content = "content" if where == "message" else "response"
        target: dict[str, Any] = {"role": "assistant"} if where == "message" else {}
        target[content] = "".join([one[content] for one in said])
        thinking = "".join([one.get("thinking", "") for one in said])
        calls = [call for one in said for call in one.get("tool_calls", ())]
        target |= ({"thinking": thinking} if thinking else {}) | ({"tool_calls": calls} if calls else {})
        found |= {"message": target} if where == "message" else target
    logprobs = [token for row in rows for token in row.get("logprobs", ())]
    return found | ({"logprobs": logprobs} if logprobs else {})


@streams(good_streams("ollama", Exchange, of=is_ollamas))
def test_every_line_and_body_is_the_sdks_and_the_lines_add_up_to_the_body(stream: GoodStream[Exchange]) -> None:
    exchange, events = stream.exchange, stream.events
    rows = lines_of(exchange.stream(events))
    for row in rows:
        type_of(exchange.front)(**row)
    body = json.loads(exchange.answer(events))
    type_of(exchange.front)(**body)
    assert [row["done"] for row in rows] == [False] * (len(rows) - 1) + [True]
    assert joined(rows) == body


def is_askable(exchange: ChatExchange) -> bool:
    """Whether these clients can ask for the like."""
    return exchange.request.num_choices == 1 and not exchange.request.echo


@streams(good_streams("openai", ChatExchange, of=is_askable))
@pytest.mark.parametrize("generates", [False, True], ids=["chat", "generate"])
def test_answers_of_other_providers_are_ollamas_too(stream: GoodStream[ChatExchange], generates: bool) -> None:
    """Whatever an OpenAI-shaped upstream says, an Ollama client reads it, the same streamed and whole."""
    events = stream.events
    exchange = generate() if generates else ollama()
    rows = lines_of(exchange.stream(events))
    for row in rows:
        type_of(exchange.front)(**row)
    body = json.loads(exchange.answer(events))
    type_of(exchange.front)(**body)
    assert joined(rows) == body


@pytest.mark.parametrize("error", [InvalidRequest("x", param="messages"), ModelNotFound("x"), UpstreamOverloaded("x")])
def test_an_error_is_the_sdks_error(error: GatewayError) -> None:
    found = ResponseError(render_error(error).decode(), error.status)
    assert (found.error, found.status_code) == ("x", error.status)


def test_lists_and_cards_are_the_sdks() -> None:
    model = ListedModel(id="fast", created=1790000000, owned_by="gateway", context=8192)
    listed = ListResponse.model_validate_json(Tags().render_models([model, model]))
    assert [row.model for row in listed.models] == ["fast", "fast"]
    running = ProcessResponse.model_validate_json(RunningModels().render_models([model]))
    assert running.models[0].context_length == 8192
    card = ShowResponse.model_validate_json(ModelCards().render_model(model))
    assert card.modelinfo is not None
    assert card.modelinfo["gateway.context_length"] == 8192
    assert card.capabilities == ["completion", "tools"]
    embedding = ListedModel(id="e", created=1790000000, owned_by="gateway", abilities=frozenset(("embed",)))
    assert ShowResponse.model_validate_json(ModelCards().render_model(embedding)).capabilities == ["embedding"]
    assert ListResponse.model_validate_json(Tags().render_models([])).models == []
