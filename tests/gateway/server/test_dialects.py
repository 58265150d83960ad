"""Every client's dialect to every vendor's server over real sockets: what only the whole gateway can lose or add."""

import json
from typing import Any

import aiohttp
import pytest

from tests.gateway.server.one_upstream import one_upstream
from tests.mock_upstream import Answer

pytestmark = pytest.mark.timeout(30)


def said(body: Any) -> Answer:
    return Answer.json(json.dumps(body).encode())


VENDORS: dict[str, Answer] = {
    "openai": said({"id": "1", "choices": [{"index": 0, "finish_reason": "stop", "message": {"content": "hi"}}]}),
    "anthropic": said({
        "id": "1", "type": "message", "role": "assistant", "model": "m", "content": [{"type": "text", "text": "hi"}],
        "stop_reason": "end_turn", "usage": {"input_tokens": 1, "output_tokens": 1},
    }),
    "gemini": said({"candidates": [{"content": {"parts": [{"text": "hi"}]}, "finishReason": "STOP"}]}),
    "ollama": said({
        "model": "m", "message": {"role": "assistant", "content": "hi"}, "done": True, "done_reason": "stop",
    }),
    "cohere": said({"id": "1", "finish_reason": "COMPLETE", "message": {"content": [{"type": "text", "text": "hi"}]}}),
    "bedrock": said({"output": {"message": {"content": [{"text": "hi"}]}}, "stopReason": "end_turn", "usage": {}}),
    "openai-responses": said({
        "id": "1", "object": "response", "created_at": 1, "model": "m", "status": "completed", "output": [
            {"type": "message", "id": "m", "role": "assistant", "status": "completed",
             "content": [{"type": "output_text", "text": "hi", "annotations": []}]},
        ],
    }),
}  # fmt: skip
USER = [{"role": "user", "content": "Weather in Oslo?"}]
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOL = {"type": "function", "function": {"name": "f", "parameters": SCHEMA}}
CLIENTS: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": (
        "/v1/chat/completions",
        {"model": "up/m", "messages": USER, "tools": [TOOL]},
    ),
    "responses": ("/v1/responses", {"model": "up/m", "input": "Weather in Oslo?", "store": False}),
    "messages": (
        "/v1/messages",
        {"model": "up/m", "max_tokens": 64, "messages": USER, "tools": [{"name": "f", "input_schema": SCHEMA}]},
    ),
    "gemini": ("/v1beta/models/up/m:generateContent", {"contents": [{"role": "user", "parts": [{"text": "Rain?"}]}]}),
    "ollama": ("/api/chat", {"model": "up/m", "messages": USER, "stream": False}),
}  # fmt: skip
FIELDS = {
    "openai": {"model", "messages", "tools", "max_completion_tokens"},
    "anthropic": {"model", "messages", "tools", "max_tokens"},
    "gemini": {"contents", "tools", "generationConfig"},
    "ollama": {"model", "messages", "tools", "stream", "truncate", "shift", "options"},
    "cohere": {"model", "messages", "tools", "stream", "max_tokens"},
    "bedrock": {"messages", "toolConfig", "inferenceConfig"},
    "openai-responses": {"model", "input", "tools", "store", "max_output_tokens"},
}
"""All that a server may be sent of such requests."""


@pytest.mark.parametrize("vendor", VENDORS)
@pytest.mark.parametrize("client", CLIENTS)
async def test_the_same_request_twice_is_the_same_bytes_and_nothing_that_was_not_asked(
    client: str, vendor: str
) -> None:
    path, body = CLIENTS[client]
    async with one_upstream(vendor, VENDORS[vendor]) as at, aiohttp.ClientSession() as session:
        for _ in range(2):
            async with session.post(at.url + path, json=body) as answer:
                assert answer.status == 200, await answer.text()
        first, second = at.upstream.requests
    assert (first.path, first.body) == (second.path, second.body)
    assert set(json.loads(first.body)) <= FIELDS[vendor]
